"""What the differential once found, what it finds with a guard away, and that the checker sees planted damage."""

import io
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession

from rota.dataplane.spark import parsing
from rota.record import CORRUPT
from tests.conservation import play
from tests.conservation.case import Case, File
from tests.conservation.play import Play
from tests.conservation.shape import Column, Type
from tests.conservation.shrink import shrink
from tests.conservation.transforms import Transform, make_transform
from tests.dataplane.conftest import log

LINES = [*(f"{n},w{n}" for n in range(40)), "x,bad", "41,good", "many,bad too"]
PLAIN = Case(
    "by hand",
    "csv",
    (Column("n", Type("int")), Column("word", Type("string"))),
    {},
    1.0,
    (File("a", "0.csv", "\n".join(LINES).encode()), File("a", "1.csv", b"1,w\n2,w\n")),
)


def two_rows() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32())}), sink)
    return sink.getvalue()


NUMBER = (Column("n", Type("int")),)
ONCE_FOUND = {
    "a Parquet file of no bytes ended the run, for ever": (
        "parquet",
        (File("a", "0.parquet", two_rows()), File("a", "1.parquet", b"")),
    ),
    "the second record of a list in quarantine had no line": (
        "json",
        (File("a", "0.json", b'{"n": 1}\n[{"n": 2}, {"n": "x"}]\n'),),
    ),
    "a filter that nothing passes read no bad record": ("json", (File("a", "0.json", b'{"n": 1}\n{"n": "x"}\n'),)),
}


@pytest.mark.parametrize("what", ONCE_FOUND)
def test_what_the_differential_once_found(what: str, tmp_path: Path, endpoint: str, spark: SparkSession) -> None:
    format, files = ONCE_FOUND[what]
    transform = make_transform(random.Random(0), NUMBER, "nothing" if "nothing" in what else "none")
    found = play.judge_case(Case("by hand", format, NUMBER, {}, 1.0, files, transform), tmp_path, endpoint, spark)
    assert not found.faults
    assert sum(found.records.values()) == 2


def first_column_only(frame: DataFrame) -> SparkColumn:
    """What rota once asked for: Spark then parsed no other column."""
    from pyspark.sql import functions as F  # noqa: N812

    first = frame.columns[0]
    few = frame[CORRUPT].isNotNull() if parsing.is_marked(frame) else frame[first].isNull()
    return F.when(few, F.struct(first))


@pytest.mark.parametrize(
    "guarded", [True, False], ids=["guarded", "without the parse of all columns and the comparison of counts"]
)
def test_a_value_of_the_wrong_type_in_the_second_column_is_found(
    guarded: bool, tmp_path: Path, endpoint: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The differential finds the fault for which it was made, behind a transform that reads the first column alone."""
    if not guarded:
        monkeypatch.setattr(parsing, "mark_whole", first_column_only)
        monkeypatch.setattr(parsing, "require_same", lambda *_: None)
    lines = [f'{{"n": {n}, "word": "w", "amount": {n}}}' for n in range(19)] + [
        '{"n": 19, "word": "w", "amount": "many"}'
    ]
    schema = (Column("n", Type("long")), Column("word", Type("string")), Column("amount", Type("int")))
    files = (File("a", "0.json", "\n".join(lines).encode()),)
    first = Transform("drop", "df.drop('word', 'amount')", ("n",), lambda row: [row[:1]])
    found = play.judge_case(Case("by hand", "json", schema, {}, 1.0, files, first), tmp_path, endpoint, spark)
    assert found.counts() == ({} if guarded else {"misplaced": 1})


# --- planted damage -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def consumed(tmp_path_factory: pytest.TempPathFactory, endpoint: str, spark: SparkSession) -> Play:
    return play.consume_case(PLAIN, tmp_path_factory.mktemp("plain"), endpoint, spark)


@pytest.fixture
def plain(consumed: Play, tmp_path: Path) -> Play:
    """PLAIN as it was consumed, in tables that a test may damage."""
    return replace(consumed, table=shutil.copytree(consumed.table, tmp_path / "tables"))


def rewrite(table: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """The newest file of the table with other rows in it, as a faulty engine might have written them."""
    file = log(table).files[-1]
    rows = pq.ParquetFile(file).read()
    pq.write_table(change(rows), file)


def without_first(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def first_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def first_elsewhere(rows: pa.Table) -> pa.Table:
    """The first row's offset is that of the other file."""
    at = rows.schema.get_field_index("_offset")
    offsets = rows.column(at).to_pylist()
    return rows.set_column(at, rows.schema.field(at), pa.array([1 - offsets[0], *offsets[1:]], pa.int64()))


def first_of_another_value(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("word")
    words = rows.column(at).to_pylist()
    return rows.set_column(at, rows.schema.field(at), pa.array(["another", *words[1:]]))


def first_on_another_line(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("_position")
    return rows.set_column(at, rows.schema.field(at), pc.add(rows.column(at), 1))


@pytest.mark.parametrize(
    ("table", "change", "counted"),
    [
        ("main", None, {}),
        ("main", without_first, {"lost": 1}),
        ("main", first_twice, {"doubled": 1}),
        ("main", first_elsewhere, {"lost": 1, "doubled": 1}),
        ("main", first_of_another_value, {"wrong": 1}),
        ("quarantine", without_first, {"lost": 1}),
        ("quarantine", first_twice, {"doubled": 1}),
        ("quarantine", first_on_another_line, {"mislaid": 2}),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_the_checker_counts_each_planted_damage(
    table: str, change: Callable[[pa.Table], pa.Table] | None, counted: dict[str, int], plain: Play
) -> None:
    if change:
        rewrite(plain.table / table, change)
    found = plain.judge()
    assert found.counts() == Counter(counted), found.faults
    assert found.records == {"good": 43, "bad": 2}


def test_a_bad_record_in_main_is_misplaced_and_one_in_both_tables_is_doubled(plain: Play) -> None:
    main, aside = plain.table / "main", plain.table / "quarantine"

    def with_a_bad_one(rows: pa.Table) -> pa.Table:
        bad = {"_partition": ["p:a"], "_offset": [0], "n": [None], "word": ["bad"]}
        return pa.concat_tables([rows, pa.table(bad, schema=rows.schema)])

    rewrite(main, with_a_bad_one)
    assert plain.judge().counts() == {"doubled": 1}
    rewrite(aside, without_first)
    assert plain.judge().counts() == {"misplaced": 1}


def test_a_counterexample_is_made_small() -> None:
    """Judged by a rule of its own: a file is at fault that holds the word."""

    def judge(one: Case) -> play.Judgement:
        bad = [f for f in one.files if b"many" in f.data]
        return play.Judgement(tuple(play.Fault("lost", 1, f.key, f.name, "") for f in bad), {})

    small, why = shrink(PLAIN, judge(PLAIN), judge)
    assert [f.data for f in small.files] == [b"many,bad too"]
    assert why.counts() == {"lost": 1}
