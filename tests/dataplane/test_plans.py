"""Which transforms keep each row, as Spark's own plan states: denied in doubt, affirmed only where it is so."""

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.connect.tvf import TableValuedFunction

from rota.dataplane.files import texts
from rota.dataplane.files.listed import Listed
from rota.dataplane.spark import parsing, plans
from rota.errors import EnvironmentFailed
from rota.run.consume import CommittedBatch
from tests.dataplane import avro_cases
from tests.dataplane.conftest import log
from tests.dataplane.world import World

MARK = "rota_mark"
ROWS = 6
DATA = (
    "id", "id % 3 as k", "cast(id as string) as s", "if(id % 2 = 0, array(id, 1L), cast(array() as array<long>)) as l",
    "map('a', id) as m", "array(struct(id)) as t",
)  # fmt: skip
ONE_FOR_ONE = {  # these are known, too
    "column": "df.withColumn('c', F.col('id') + 1)",
    "text": "df.selectExpr('*', 'upper(s) as u', 'transform(l, x -> x + 1) as v').drop('s')",
    "renamed": "df.withColumnRenamed('s', 'r').toDF('id', 'k', 'r', 'l', 'm', 't')",
    "alias": "df.alias('x').select('x.*', F.lit('a\\n+- Project [b').alias('z'))",
    "schema": "df.to(df.schema)",
    "filled": "df.fillna('x')",
    "wide": "df.select('*', *[F.lit(n).alias(f'c{n}') for n in range(60)])",
    "udf": "df.withColumn('u', F.udf(lambda n: str(n), 'string')('id'))",
}
STEPS = (
    *ONE_FOR_ONE.values(),
    "df.where('id > 2')",
    "df.where('id >= 0')",
    "df.limit(3)",
    "df.distinct()",
    "df.dropDuplicates(['k'])",
    "df.dropna()",
    "df.union(df)",
    "df.sample(0.5, 1)",
    "df.orderBy('id')",
    "df.repartition(2)",
    "df.join(df.select('k').distinct(), 'k', 'left_semi')",
    "df.crossJoin(df.select(F.lit(1).alias('o')))",
    "df.withColumn('e', F.explode('l'))",
    "df.selectExpr('*', 'posexplode_outer(l) as (p, q)')",
    "df.selectExpr('*', 'stack(2, 1, 2) as w')",
    "df.withColumn('n', F.row_number().over(Window.partitionBy('k').orderBy('id')))",
    "df.withColumn('n', df.agg(F.max('id')).scalar())",
    "df.where(F.lit(False))",
    "df.mapInArrow(lambda it: it, df.schema)",
    "df.sparkSession.createDataFrame([], df.schema)",
    "df.selectExpr('id', 'k', 's', 'l', 'm', 't').observe('mine', F.count(F.lit(1)).alias('n'))",
)
NO_GENERATORS = {"collations", "python_worker_logs", "range", "sql_keywords"}  # they take no row
GENERATED = {
    "explode": "l", "explode_outer": "l", "posexplode": "l", "posexplode_outer": "l", "inline": "t", "inline_outer": "t",
    "stack": "2, id, id", "json_tuple": "s, 'a', 'b'",
}  # fmt: skip
TABLES = {"variant_explode", "variant_explode_outer"}  # in FROM alone, which a step of its own joins


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS).selectExpr(*DATA).alias(MARK)


def apply(step: str, df: DataFrame) -> DataFrame:
    result: DataFrame = eval(step, {"df": df, "F": F, "Window": Window})
    return result


def keeps(result: DataFrame) -> bool:
    return plans.keeps_each_row(plans.explain(result), MARK)


def test_what_keeps_each_row_is_known(frame: DataFrame) -> None:
    kept = {name: keeps(apply(text, frame)) for name, text in ONE_FOR_ONE.items()}
    assert kept == dict.fromkeys(ONE_FOR_ONE, True)
    assert keeps(frame)


def test_no_generator_is_taken_for_what_keeps_each_row(frame: DataFrame) -> None:
    """Spark lists all that it has as functions of its table-valued functions."""
    known = {name for name in dir(TableValuedFunction) if not name.startswith("_")}
    assert known == GENERATED.keys() | TABLES | NO_GENERATORS
    for name, words in GENERATED.items():
        assert not keeps(frame.selectExpr("id", f"{name}({words})")), name
        assert not keeps(frame.selectExpr(f"{name}({words})").alias("x").select("x.*")), name


def test_another_frame_or_another_mark_is_not_ours(frame: DataFrame, spark: SparkSession) -> None:
    assert not keeps(spark.range(ROWS).alias("another"))
    assert not keeps(spark.range(ROWS))
    assert not plans.keeps_each_row("", MARK)
    assert not plans.keeps_each_row(plans.explain(frame), f"{MARK}s")


@pytest.mark.parametrize("seed", range(3))
def test_random_transforms_that_are_said_to_keep_each_row_do(seed: int, frame: DataFrame) -> None:
    draw, said = random.Random(seed), Counter[bool]()
    for _ in range(12):
        result = frame
        steps = draw.choices(STEPS, k=draw.randint(1, 3))
        try:
            for step in steps:
                result = apply(step, result)
            kept = keeps(result)
            ids = sorted(row[0] for row in result.select("id").collect()) if kept else []
        except AnalysisException:  # such as a column that an earlier step dropped
            continue
        said[kept] += 1
        assert not kept or ids == list(range(ROWS)), steps
    assert said[True]
    assert said[False]


@pytest.mark.parametrize("seed", range(3))
def test_random_transforms_that_are_said_to_go_row_by_row_do(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Of files that one task reads, Spark has that one open which a row is from, and reports it. Of two relations it does
    not, also where it drops one."""
    spark.range(ROWS).selectExpr(*DATA).repartition(5).write.parquet(str(tmp_path / "files"))
    none = f"df.sparkSession.read.schema('dim long').parquet({str(tmp_path / 'files')!r}).where('false')"
    dropped = f"df.join({none}, F.expr('id = dim'), 'left').drop('dim')"
    files, draw, said = spark.read.parquet(str(tmp_path / "files")), random.Random(seed), Counter[bool]()
    of = {row["id"]: row["name"] for row in files.select("id", F.input_file_name().alias("name")).collect()}
    assert len(set(of.values())) > 2
    for _ in range(12):
        result = files
        steps = draw.choices((*STEPS, "df.where('id % 3 > 0')", dropped), k=draw.randint(1, 3))
        try:
            for step in steps:
                result = apply(step, result)
            row_by_row = plans.goes_row_by_row(plans.explain(result.select("id")))
        except AnalysisException:
            continue
        said[row_by_row] += 1
        found = result.select("id", F.input_file_name().alias("name")).collect() if row_by_row else []
        assert all(of[row["id"]] == row["name"] for row in found), steps
    assert said[True]
    assert said[False]
    assert not plans.goes_row_by_row("")
    plan = plans.explain(apply(dropped, files))
    assert "Join" not in plan.partition(plans.OPTIMIZED)[2]
    assert not plans.goes_row_by_row(plan)


CALLS = (
    "df.withColumn('u', F.udf(lambda n: str(n), 'string')('id'))",
    "df.withColumn('u', F.udf(lambda n: str(n), 'string', useArrow=True)('id')).where('u <> 1')",
    "df.mapInArrow(lambda it: it, df.schema).union(df)",
    "df.mapInPandas(lambda it: it, df.schema).select('id')",
    "df.groupBy('k').applyInPandas(lambda rows: rows, df.schema)",
    "df.groupBy('k').applyInArrow(lambda rows: rows, df.schema)",
)


def test_each_step_that_calls_python_is_seen(frame: DataFrame) -> None:
    """Else its rows would go there unmeasured."""
    assert [plans.calls_python(plans.explain(apply(one, frame))) for one in CALLS] == [True] * len(CALLS)
    others = [one for name, one in ONE_FOR_ONE.items() if name != "udf"] + ["df.where('id > 2')", "df.repartition(2)"]
    assert not any(plans.calls_python(plans.explain(apply(one, frame))) for one in others)
    assert plans.calls_python("")


# --- a run ----------------------------------------------------------------------------------------------------------


TRANSFORMS = {"keeps each row": "frame.drop('word')", "filters": "frame.where('n <> 1')"}


def land(world: World, transform: str, format: str) -> None:
    """Two files of three rows each in `a`."""
    world.write(f"""
pipeline = Pipeline(source=source(format={format!r}), table=delta({{table!r}}), transform=lambda frame: {transform})
""")
    world.give("a")
    (world.folder / "land/a").mkdir(parents=True)
    for file in (0, 3):
        if format == "json":
            world.rows("a", str(file), 3, file)
        elif format == "avro":
            records = [{"n": n, "word": "w"} for n in range(file, file + 3)]
            world.put(f"a/{file}.avro", avro_cases.write_file({"n": "int", "word": "string"}, records))
        else:
            rows = {"n": pa.array(range(file, file + 3), pa.int32()), "word": ["w"] * 3}
            pq.write_table(pa.table(rows), world.folder / f"land/a/{file}.parquet")


def run(world: World) -> int:
    """Rows that came into the table."""
    return sum(e.rows for e in world.run("a") if isinstance(e, CommittedBatch))


@pytest.mark.parametrize("format", ["json", "parquet", "avro"])
def test_a_transform_that_keeps_each_row_is_not_observed(
    world: World, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """Of text the bad records are counted, as ever."""
    asked: list[str] = []
    real = parsing.read_counts
    monkeypatch.setattr(parsing, "read_counts", lambda seen: asked.append("") or real(seen))
    land(world, TRANSFORMS["keeps each row"], format)
    assert run(world) == 6
    assert len(asked) == (1 if format == "json" else 0)


@pytest.mark.parametrize("format", ["json", "parquet", "avro"])
def test_a_plan_that_is_wrongly_said_to_keep_each_row_ends_in_the_error_of_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    land(world, TRANSFORMS["filters"], format)
    monkeypatch.setattr(plans, "keeps_each_row", lambda *_: True)
    with pytest.raises(
        EnvironmentFailed,
        match=r"differ: [36] records to read, [25] that were written or found bad",
    ):
        world.run("a")
    assert not log(world.table / "main").said("commit")
    monkeypatch.undo()
    assert run(world) == 5


@pytest.mark.parametrize("transform", ["frame", "frame.where('n > 0')"])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_records_of_text_are_counted_beside_spark(
    world: World, monkeypatch: pytest.MonkeyPatch, format: str, transform: str
) -> None:
    """Where all of them are good nothing is read twice, and no listing is compared. A count that is too large costs a look,
    and one that is too small loses the bad record."""
    world.write(f"""
pipeline = Pipeline(source=source(format={format!r}), table=delta({{table!r}}), max_bad_ratio=1.0,
    transform=lambda frame: {transform})
""")
    lines = {"csv": ["1,a", "2,b"], "json": ['{"n": 1}', '{"n": 2}']}[format]
    world.give("a")

    def consume(name: str, *more: str) -> tuple[int, int]:
        world.land("a", name, [*lines, *more], f".{format}")
        (event,) = world.run("a")
        assert isinstance(event, CommittedBatch)
        return event.rows, event.bad_rows

    listing, count, listed = Listed.check_seen, texts.count_most, list[str]()
    monkeypatch.setattr(Listed, "check_seen", lambda *what: listed.append("") or listing(*what))
    assert consume("0") == (2, 0)
    assert not listed
    assert consume("1", "x,x") == (2, 1)
    monkeypatch.setattr(texts, "count_most", lambda *what: (count(*what) or 0) + 1)
    assert consume("2") == (2, 0)
    assert len(listed) == 2
    monkeypatch.setattr(texts, "count_most", lambda *what: (count(*what) or 0) - 1)
    assert consume("3", "x,x") == (2, 0)


# --- what Spark does not see ----------------------------------------------------------------------------------------


def hide_last(file: Path) -> None:
    """A name from a cache."""
    file.unlink()


def cut_last(file: Path) -> None:
    """A size from a cache: the file grew since, and Spark reads no further."""
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(whole[: whole.index(b"\n") + 1])


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(
    ("format", "stale", "lost", "guarded"),
    [
        ("parquet", hide_last, 3, True),
        ("json", hide_last, 3, True),
        ("json", cut_last, 2, True),
        ("json", hide_last, 3, False),
        ("json", cut_last, 2, False),
        ("parquet", hide_last, 3, False),
    ],
)
def test_a_landed_file_that_spark_does_not_see_is_noticed(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    transform: str,
    format: str,
    stale: Callable[[Path], None],
    lost: int,
    guarded: bool,
) -> None:
    """Its rows would be lost, and its offset consumed. Spark has a disk of its own, on which the last file of each job is
    stale. Without the guards a list without that file, or with a shorter one, is a job like any other."""
    land(world, TRANSFORMS[transform], format)
    real, number = Listed.of, itertools.count()

    def list_stale(place: str, *rest: Any) -> Listed:
        listed, disk = real(place, *rest), world.folder / f"disk{next(number)}"
        shutil.copytree(world.landing, disk)
        last = max(file.path for of in listed.files.values() for file in of.values())
        stale(disk / last)
        left = {
            p: {o: f for o, f in of.items() if guarded or (disk / f.path).exists()} for p, of in listed.files.items()
        }
        return replace(listed, place=f"file://{disk}", files=left)

    monkeypatch.setattr(Listed, "of", list_stale)
    if guarded:
        with pytest.raises(EnvironmentFailed, match=r"Spark does not see what landed: it .* a/[03]"):
            world.run("a")
        assert not log(world.table / "main").said("commit")
        assert not world.tree.parked()
        monkeypatch.undo()
        assert run(world) == (6 if transform == "keeps each row" else 5)
    else:
        monkeypatch.setattr(Listed, "check_seen", lambda *_: None)
        monkeypatch.setattr(parsing, "require_same", lambda *_: None)
        rows = 6 if transform == "keeps each row" else 5
        assert run(world) == rows - lost
        assert world.tree.checkpoints()["p:a"].record.offset == 2
