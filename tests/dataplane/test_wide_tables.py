"""Tables of many columns: for any width that Spark accepts, the table has every value in its column."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rota.dataplane.formats import values
from rota.dataplane.spark import plans, session, writing
from rota.run.consume import CommittedBatch
from tests.dataplane.conftest import log
from tests.dataplane.world import World

WIDEST = 9_000  # columns; public files have up to 9,074
WIDE, MANY = 1_000, 300
CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
PLAN_OF_A_FIELD = 1_500  # characters of the four plans that Spark prints
KINDS = {
    "string": lambda n: f"t{n}",
    "binary": lambda n: b"\xff%d" % n,
    "bigint": lambda n: n,
    "double": lambda n: n / 2,
    "boolean": lambda n: n % 2 == 0,
    "array<string>": lambda n: [f"t{n}", None],
    "struct<a:string,b:binary>": lambda n: {"a": f"t{n}", "b": b"\xfe%d" % n},
    "map<string,binary>": lambda n: [(f"t{n}", b"\xfd%d" % n)],
}
ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "array<string>": pa.list_(pa.string()),
    "struct<a:string,b:binary>": pa.struct({"a": pa.string(), "b": pa.binary()}),
    "map<string,binary>": pa.map_(pa.string(), pa.binary()),
}


def declare(world: World, format: str, schema: str, more: str = "") -> None:
    world.write(
        f"pipeline = Pipeline(source=source(format={format!r}, schema={schema!r}{more}), table=delta({{table!r}}), "
        "max_bad_ratio=1)\n"
    )
    world.give("a")


def consume(world: World) -> list[CommittedBatch]:
    found = [event for event in world.until_idle("a") if isinstance(event, CommittedBatch)]
    assert not {p: one.record.reason for p, one in world.tree.parked().items()}
    return found


def test_parquet_of_nine_thousand_columns(world: World) -> None:
    values = {f"c{n}": f"v{n}" for n in range(WIDEST)}
    declare(world, "parquet", ", ".join(f"{name} string" for name in values))
    sink = io.BytesIO()
    pq.write_table(pa.table({name: [value] for name, value in values.items()}), sink)
    world.put("a/0.parquet", sink.getvalue())
    assert [batch.rows for batch in consume(world)] == [1]
    (row,) = log(world.table / "main").rows()
    assert {name: row[name] for name in values} == values


def test_a_bad_record_of_many_columns(world: World) -> None:
    names = [f"c{n}" for n in range(MANY)]
    declare(world, "json", ", ".join(f"{name} int" for name in names))
    world.land("a", "0", [json.dumps(dict.fromkeys(names, 1)), json.dumps({**dict.fromkeys(names, 2), names[-1]: "x"})])
    assert [batch.rows for batch in consume(world)] == [1]
    (bad,) = log(world.table / "quarantine").rows()
    assert names[-1] in str(bad["_reason"])


def test_columns_of_each_type_that_come_by_themselves(world: World) -> None:
    kinds = list(KINDS)
    names = {f"c{n}": kinds[n % len(kinds)] for n in range(WIDE)}
    declare(world, "parquet", "n int", ", new_columns='add'")
    sink = io.BytesIO()
    arrays = {
        name: pa.array([KINDS[kind](n), KINDS[kind](n + 1)], ARROW[kind])
        for n, (name, kind) in enumerate(names.items())
    }
    pq.write_table(pa.table({"n": pa.array([0, 1], pa.int32()), **arrays}), sink)
    world.put("a/0.parquet", sink.getvalue())
    assert [batch.rows for batch in consume(world)] == [2]
    (file,) = log(world.table / "main").files
    found = pq.read_table(file, partitioning=None).sort_by("n")
    assert {name: found[name].to_pylist() for name in names} == {name: one.to_pylist() for name, one in arrays.items()}


@pytest.mark.parametrize("nested", [False, True])
def test_no_expression_is_nested_by_column(nested: bool, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ablation adds sizes one by one, which Spark Connect refuses."""
    many = 100 if nested else writing.COUNTED_COLUMNS - 2
    frame = spark.range(1).select(
        F.lit("p:a").alias("_partition"),
        F.col("id").alias("_offset"),
        *(F.lit("x").alias(f"c{n}") for n in range(many)),
    )
    if nested:
        monkeypatch.setattr(writing, "add_sizes", lambda terms: sum(terms[1:], terms[0]))
    wide = writing.find_wide(frame, ())
    assert wide is not None
    read = frame.toDF(*(f"c{n}" for n in range(many + 2))).select(wide)
    if nested:
        with pytest.raises(Exception, match=r"DecodeError|Error parsing message"):
            read.collect()
    else:
        assert [bool(value) for (value,) in read.collect()] == [False]


@pytest.mark.parametrize("lines_of_files", [False, True])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_the_plan_has_a_bounded_text_for_each_field(format: str, lines_of_files: bool, spark: SparkSession) -> None:
    """Spark's driver holds several copies of a plan. One expression for each text took 10,000 characters a field,
    and the driver's memory at 3,000 fields."""

    def measure(fields: int) -> int:
        frame = spark.createDataFrame([(b"{}", "p", 0)], values.DDL)
        schema = ", ".join(f"c{n} string" for n in range(fields))
        return len(plans.explain(values.parse(frame, schema, format, {}, lines_of_files=lines_of_files)))

    assert (measure(150) - measure(50)) / 100 < PLAN_OF_A_FIELD


@pytest.mark.parametrize("guarded", [True, False])
def test_spark_infers_no_constraint_above_a_filter(spark: SparkSession, guarded: bool, tmp_path: Path) -> None:
    """Spark's time for constraints grows with the square of the number of columns. The ablation turns them on."""
    pq.write_table(pa.table({"n": pa.array([1], pa.int64())}), tmp_path / "0.parquet")
    frame = spark.read.schema("n bigint").parquet(str(tmp_path)).where("n > 1")
    spark.conf.set(CONSTRAINTS, session.SETTINGS[CONSTRAINTS] if guarded else "true")
    try:
        assert ("isnotnull(n" in plans.explain(frame)) == (not guarded)
    finally:
        spark.conf.unset(CONSTRAINTS)
