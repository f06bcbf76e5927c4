"""Tasks write the files that Spark itself would write, one partition per file, in bounded memory."""

import json
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rota.dataplane import footers, names
from rota.dataplane.spark import on_executors, writing
from rota.dataplane.spark.session import fit_session
from rota.errors import BadTransform, EnvironmentFailed
from rota.ledger.values import Ranges
from rota.local.bucket import BucketServer
from rota.run.consume import CommittedBatch
from rota.stores import describe_to_executors, open_executors_files
from tests.dataplane.world import World

KINDS = """
    n8 tinyint, n16 smallint, n32 int, `n.64` bigint, f float, d double, t boolean, s string, b binary, day date,
    at timestamp, local timestamp_ntz, small decimal(5,2), middle decimal(18,4), large decimal(38,10),
    `ma``ny` array<decimal(9,1)>, named map<string, array<int>>, inside struct<a: timestamp, b: struct<c: string>>
"""
VALUES = """
    1, 2, 3, 4, 1.5, 2.25, true, 'ü', 'x', date'1582-10-03',
    timestamp'1900-01-01 00:00:00.000001Z', timestamp_ntz'2262-05-01 1:2:3',
    1.50, -12345678901234.5678, 1234567890123456789012345678.0123456789,
    array(1.5, null), map('k', array(1, null)),
    named_struct('a', timestamp'2024-02-29 12:00:00Z', 'b', named_struct('c', 'z'))
"""


def quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, bucket: str, bucket_server: BucketServer, tmp_path: Path) -> tuple[str, Path]:
    """The location of a table, and the folder of its files."""
    if request.param == "disk":
        return str(tmp_path / "main"), tmp_path / "main"
    return f"{bucket}/main", bucket_server.data / bucket.removeprefix("s3://") / "main"


@pytest.mark.parametrize(
    ("counted", "known", "number"),
    [
        (True, None, None),
        (False, None, None),
        (False, {"p:a": (0, 2), "p:b": (7, 9), "p:c": (3, 3)}, None),
        (True, {"p:a": (0, 2), "p:b": (7, 9)}, lambda *_: 7),
        (True, {"p:a": (0, writing.NUMBERED), "p:b": (7, 9)}, lambda *_: pytest.fail("a number for each message")),
    ],
    ids=["counted", "measured", "by numbers", "all have one number", "too many offsets"],
)
def test_files_are_what_spark_itself_would_have_written(
    counted: bool,
    known: Ranges | None,
    number: Callable[..., int] | None,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    place: tuple[str, Path],
    tmp_path: Path,
) -> None:
    """Each type of Delta, with values and nulls: schema, footer metadata, statistics and rows are the same."""
    fit_session(spark)
    if number:
        monkeypatch.setattr(writing, "number", number)
    rows = spark.sql(f"select * from values ({VALUES}, 'p:a', 0L), ({VALUES}, 'p:b', 7L)")
    columns = [one.name for one in spark.createDataFrame([], f"{KINDS}, _partition string, _offset bigint").schema]
    declared = spark.createDataFrame([], f"{KINDS}, _partition string, _offset bigint").schema
    whole = rows.toDF(*columns).select(*(F.col(quote(one.name)).cast(one.dataType) for one in declared))
    absent = whole.select(
        *(F.when(F.col("_offset") < 0, F.col(quote(one))).alias(one) for one in columns[:-2]),
        "_partition",
        (F.col("_offset") + 1).alias("_offset"),
    )
    frame = whole.union(absent).coalesce(1)
    table, folder = place
    ours = writing.write(frame, table, "data/x", counted=counted, known=known)
    assert [file.partition for file in ours] == ["p:a", "p:b"]
    for one in ours:
        kept = tmp_path / "oracle" / "data" / "x" / names.split(one.partition)
        frame.where(F.col("_partition") == one.partition).write.parquet(str(kept))
        (path,) = kept.glob("*.parquet")
        other = footers.read_footer(str(tmp_path / "oracle"), str(path.relative_to(tmp_path / "oracle")))
        said = [json.loads(file.columns.replace(" collate UTF8_BINARY", "")) for file in (one, other)]
        assert said[0] == said[1]
        assert json.loads(one.statistics) == json.loads(other.statistics)
        paths = [str(folder / one.path), str(path)]
        here, there = (str(pq.ParquetFile(path).schema).splitlines()[2:] for path in paths)
        assert here == there
        found = [sorted(map(str, spark.read.parquet(path).collect())) for path in paths]
        assert found[0] == found[1]
        assert len(found[0]) == one.rows == 2


@given(pairs=st.lists(st.tuples(st.text(max_size=80), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=50))
@settings(max_examples=15)
def test_spark_makes_the_same_number(pairs: list[tuple[str, int]], spark: SparkSession) -> None:
    """For ids and names of any length, in any script."""
    frame = spark.createDataFrame(pairs, "id string, offset bigint")
    both, one = F.xxhash64("id", "offset"), F.crc32(F.col("id").cast("binary"))
    found = frame.select(both.alias("both"), one.alias("one")).collect()
    assert [(row["both"], row["one"]) for row in found] == [
        (writing.number(*pair), zlib.crc32(pair[0].encode())) for pair in pairs
    ]


def test_an_offset_that_the_batch_does_not_have_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    """Such as one that `fillna` gives to rows of an outer join."""
    frame = spark.range(9).select(F.lit("p:a").alias("_partition"), F.col("id").alias("_offset"), "id")
    assert sum(file.rows for file in writing.write(frame, str(tmp_path), "data/x", known={"p:a": (0, 9)})) == 9
    with pytest.raises(BadTransform, match="an _offset that this batch does not have"):
        writing.write(frame, str(tmp_path), "data/y", known={"p:a": (0, 8)})


@pytest.mark.parametrize("known", [None, {"p:a": (0, 1)}], ids=["by ids", "by numbers"])
@pytest.mark.parametrize("absent", ["null", "''"])
def test_rows_without_a_partition_are_reported_as_such(
    absent: str, known: Ranges | None, spark: SparkSession, place: tuple[str, Path]
) -> None:
    """A folder name may not be empty: in a bucket the task failed, on a disk the disk was blamed."""
    ids = F.expr(f"if(id < 5, 'p:a', {absent})").alias("_partition")
    frame = spark.range(10).select(ids, F.lit(0).cast("long").alias("_offset"), "id")
    with pytest.raises(BadTransform, match="made rows without _partition"):
        writing.write(frame, place[0], "data/x", known=known)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_disk_of_spark_s_own_is_noticed(
    guarded: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task reports a file that the run cannot read: the table would name a missing file."""
    frame = spark.range(9).select(F.lit("p:a").alias("_partition"), F.lit(0).cast("long").alias("_offset"), "id")
    elsewhere = describe_to_executors(str(tmp_path))
    root = {"kind": "LocalFileSystem", "given": {}, "found": {}}
    assert elsewhere == root
    real = on_executors.make_writer

    def make(folder: str, *rest: Any) -> Any:
        write = real(str(tmp_path / "other") + folder, *rest)

        def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for said in write(batches):
                row = said.column("said")[0].as_py().replace(str(tmp_path / "other").encode(), b"")
                yield pa.record_batch({"said": [row]})

        return tell

    monkeypatch.setattr(on_executors, "make_writer", make)
    if not guarded:
        monkeypatch.setattr(footers, "check_there", lambda *_: None)
        files = writing.write(frame, str(tmp_path / "main"), "data/x")
        assert sum(file.rows for file in files) == 9
        assert not any((tmp_path / "main" / file.path).exists() for file in files)
        return
    with pytest.raises(EnvironmentFailed, match=r"of [0-9]+ bytes is not there. Check that the run sees"):
        writing.write(frame, str(tmp_path / "main"), "data/x")


LONG = 20_000  # bytes of a text; a batch with the counted number of rows would have 160 MB


@pytest.mark.parametrize("guarded", [True, False])
def test_what_goes_to_a_task_at_a_time_is_bounded(
    guarded: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, most = on_executors.make_writer, tmp_path / "most"

    def make(*args: Any) -> Any:
        write = real(*args)

        def watch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                with most.open("a") as file:
                    file.write(f"{batch.nbytes}\n")
                yield batch

        return lambda batches: write(watch(batches))

    monkeypatch.setattr(on_executors, "make_writer", make)
    text = F.concat(F.col("id").cast("string"), F.repeat(F.lit("x"), LONG)).alias("text")
    frame = spark.range(0, 5000, 1, 1).select(F.lit("p:a").alias("_partition"), F.col("id").alias("_offset"), text)
    if guarded:
        with pytest.raises(writing.WideRow):
            writing.write(frame, str(tmp_path / "main"), "data/x", counted=True)
        most.unlink(missing_ok=True)
        writing.write(frame, str(tmp_path / "main"), "data/x")
    else:
        monkeypatch.setattr(writing, "AT_ONCE", 1 << 60)
        writing.write(frame, str(tmp_path / "main"), "data/x", counted=True)
    largest = max(map(int, most.read_text().split()))
    assert (largest <= (64 << 20) + 2 * LONG) == guarded


@pytest.mark.parametrize("transform", [None, "transform"])
def test_a_wide_row_goes_in_like_any_other(world: World, transform: str | None) -> None:
    world.write(
        "def transform(df):\n    return df.mapInPandas(lambda them: them, df.schema)\n"
        f"pipeline = Pipeline(source=source(), table=delta({{table!r}}), transform={transform})\n"
    )
    world.give("a")
    world.land("a", "0", [json.dumps({"n": n, "word": "x" * (LONG if n == 7 else 1)}) for n in range(20)])
    assert [e.rows for e in world.run("a") if isinstance(e, CommittedBatch)] == [20]
    assert not world.tree.parked()


COLUMNS = ["_partition", "n", "_offset"]


def put(
    folder: Path, batches: Iterable[pa.RecordBatch], origins: on_executors.Origins | None = None
) -> list[dict[str, Any]]:
    """Return a task's reports of the files that it made from these rows."""
    opened = partial(open_executors_files, describe_to_executors(str(folder)))
    write = on_executors.make_writer(str(folder), opened, {}, COLUMNS, "_partition", names.split, None, origins)
    return [on_executors.read_said(row["said"]) for batch in write(batches) for row in batch.to_pylist()]


NUMBERS = {of * 3 + offset: (f"p:{of}", offset) for of in range(41) for offset in range(3)}


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("held", [1, 200, 1 << 26])
@given(drawn=st.lists(st.lists(st.sampled_from(sorted(NUMBERS)), max_size=60), max_size=12))
def test_each_row_is_in_one_file_of_its_partition(
    numbered: bool, held: int, drawn: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In any order, and for any memory bound of a task; with partition and offset, or with a number for both."""
    folder, count = tmp_path_factory.mktemp("files"), iter(range(10**6))
    given_rows = [[(*NUMBERS[number], next(count), number) for number in batch] for batch in drawn]
    sent = [[(n, number) if numbered else (of, n, offset) for of, offset, n, number in rows] for rows in given_rows]
    schema = pa.schema([(one, pa.string() if one == "_partition" else pa.int64()) for one in COLUMNS[numbered:]])
    batches = [
        pa.record_batch(list(zip(*rows, strict=True)) if rows else [[]] * len(schema), schema=schema) for rows in sent
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_executors, "HELD", held)
        said = put(folder, batches, on_executors.Origins("_offset", NUMBERS, (True, True)) if numbered else None)
    found: list[tuple[str, int, int]] = []
    for one in said:
        rows = pq.read_table(one["path"]).to_pylist()
        assert {row["_partition"] for row in rows} == {one["partition"]}
        assert [row["n"] for row in rows] == sorted(row["n"] for row in rows)
        assert list(rows[0]) == COLUMNS
        found += [(row["_partition"], row["_offset"], row["n"]) for row in rows]
    assert sorted(found) == sorted(row[:3] for rows in given_rows for row in rows)
    if held > 1 << 20:  # all at once
        assert max(Counter(one["partition"] for one in said).values(), default=0) <= 1
    assert len(list(folder.rglob("*.parquet"))) == len(said)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_task_s_python_does_without_pandas(numbered: bool, tmp_path: Path) -> None:
    """Importing it takes as long as everything else that a new Python of Spark does before its first row."""
    code = f"""
import sys
from functools import partial
import pyarrow as pa
from rota import stores
from rota.dataplane import names
from rota.dataplane.spark import on_executors
given = pa.ipc.open_stream(sys.stdin.buffer).read_next_batch()
opened = partial(stores.open_executors_files, stores.describe_to_executors({str(tmp_path)!r}))
origins = on_executors.Origins("_offset", {{1: ("p:a", 0), 2: ("p:b", 0)}}, (True, True)) if {numbered} else None
write = on_executors.make_writer(
    {str(tmp_path)!r}, opened, {{}}, ["_partition", "_offset"], "_partition", names.split, None, origins
)
print(len(list(write([given]))), "pandas" in sys.modules)
"""
    ids = {} if numbered else {"_partition": ["p:b", "p:a"] * 99}
    batch, sent = pa.record_batch({**ids, "_offset": [2, 1] * 99}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sent, batch.schema) as stream:
        stream.write_batch(batch)
    done = subprocess.run(
        [sys.executable, "-c", code], input=sent.getvalue().to_pybytes(), capture_output=True, check=True
    )
    assert done.stdout.split() == [b"2", b"False"], done


UTC = pa.timestamp("us", "UTC")
SMALLER = {"_partition", "few", "text", "none", "b", "int8", "int16"}  # Parquet holds the last two as 32 bits


@pytest.mark.parametrize(("rows", "decided"), [(100_000, True), (on_executors.FIRST - 1, False)])
def test_a_dictionary_is_written_where_it_makes_a_column_smaller(rows: int, decided: bool, tmp_path: Path) -> None:
    """For each type that is not nested. A choice made from many rows holds for all files of a task."""
    columns: dict[str, Any] = {
        "_partition": ["p:a"] * rows,
        "n": range(rows),
        "few": [n % 7 for n in range(rows)],
        "text": [f"text {n % 1000}" for n in range(rows)],
        "own": [f"text {n}" for n in range(rows)],
        "none": pa.nulls(rows, pa.float64()),
        "decimal": pa.array(range(rows), pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(30, 2)),
        "t": [n % 2 == 0 for n in range(rows)],
        "b": [b"x"] * rows,
        **{str(kind): pa.array(range(rows), pa.int32()).cast(kind) for kind in (pa.int32(), pa.date32(), pa.float32())},
        **{str(kind): pa.array(range(rows), pa.int64()).cast(kind) for kind in (pa.timestamp("us"), UTC)},
        **{str(kind): pa.array([n % 100 for n in range(rows)], kind) for kind in (pa.int8(), pa.int16())},
    }
    whole = pa.record_batch(columns)
    batches = [whole.slice(at, 8192) for at in range(0, rows, 8192)]
    opened = partial(open_executors_files, describe_to_executors(str(tmp_path)))
    write = on_executors.make_writer(str(tmp_path), opened, {}, list(columns), "_partition", names.split, None)
    (said,) = [on_executors.read_said(row["said"]) for batch in write(batches) for row in batch.to_pylist()]
    footer = pq.ParquetFile(said["path"]).metadata
    chunks = map(footer.row_group(0).column, range(len(columns)))
    assert {one.path_in_schema for one in chunks if one.has_dictionary_page} == SMALLER
    assert pq.read_table(said["path"]).to_pylist() == whole.to_pylist()
    chosen = on_executors.Repeated()
    chosen.choose(pa.Table.from_batches([whole]))
    assert (chosen.chosen is not None) == decided
