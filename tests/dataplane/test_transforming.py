"""`rota check` tries schema and transform on a frame without rows; a run refuses the same."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.kafka.declaration import kafka
from rota.dataplane.spark.session import fit_session
from rota.dataplane.spark.transforming import find_refused
from rota.pipeline import Pipeline, delta, files
from rota.registry import describe_frame, open_tables
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane.world import World

TRANSFORM = "def transform(df):\n    return {}  # <-\n\n"
END = "pipeline = Pipeline(source=source(), table=delta({table!r}), transform=transform)\n"
# Transform -> text in its refusal; empty if it is accepted. `LINE` is the line of the transform in p.py.
TRANSFORMS = {
    "df": "",
    "df.where('n >= 0').withColumn('n', df.n + 1)": "",
    "df.mapInPandas(lambda frames: frames, df.schema)": "",
    "df.withColumn('m', df.amout)": "amout",
    "df.withColumn('m', __import__('pyspark').sql.functions.col('amout') + 1)": "amout",
    "df.select('n')": "_partition",
    "df.dropDuplicates(['word'])": "dropDuplicates over rows of several offsets",
    "df.withColumn('_offset', df._offset + 0)": "the column _offset anew",
    "df.limit({}['k'])": "KeyError: 'k'",
    "None": "NoneType",
    "df.withColumn('n', df.n.cast('string'))": "n",  # the table has an int
}


def test_a_run_refuses_the_transforms_that_an_empty_frame_refuses(
    tmp_path: Path, endpoint: str, spark: SparkSession
) -> None:
    world, wrong = World(tmp_path, endpoint, spark=spark), dict[str, object]()
    world.give("a")
    world.rows("a", "first", 2)
    assert isinstance(world.run("a")[0], CommittedBatch), "there is a table now"
    for number, (text, said) in enumerate(TRANSFORMS.items()):
        world.write(TRANSFORM.format(text) + END)
        table = open_tables(world.pipeline, "g").main.read_schema()
        schema, why = find_refused(fit_session(spark), world.pipeline, "n int, word string", table)
        world.give(f"k{number}")
        world.rows(f"k{number}", "0", 2)
        (event,) = world.run(f"k{number}")
        if isinstance(event, ParkedPartition):
            agrees = bool(why) and event.reason.startswith(why.rstrip("."))
        else:
            agrees = isinstance(event, CommittedBatch) and not why
        if schema or not agrees or bool(why) != bool(said) or said not in why:
            wrong[text] = (schema, why, event)
    assert wrong == {}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id long, `a b` string, m map<string, struct<x: decimal(9,2)>>, t timestamp_ntz", ""),
        ("id lnog", '"LNOG"'),
        ("id long,", "syntax"),
        ("long", "syntax"),
        ("", "syntax"),
    ],
)
def test_a_schema_that_spark_cannot_read_is_found(spark: SparkSession, schema: str, said: str) -> None:
    pipeline = Pipeline(files("/x", format="json", schema="n int"), delta("/t"))
    found, transform = find_refused(fit_session(spark), pipeline, schema, None)
    assert (bool(found), transform) == (bool(said), "")
    assert said.lower() in found.lower()
    assert found.isprintable()


def test_the_frame_has_what_a_record_of_kafka_has_beside_its_value(spark: SparkSession) -> None:
    source = kafka("h:1", "t", schema="id long", columns=("key", "timestamp", "headers"))
    kept = ("_partition", "_offset", "_key", "_timestamp", "_headers[0].value v")
    pipeline = Pipeline(source, delta("/t"), lambda df: df.selectExpr(*kept))
    frame = describe_frame(pipeline)
    assert frame
    assert find_refused(fit_session(spark), pipeline, frame, None) == ("", "")
    added = files("/x", format="parquet", schema="n int", new_columns="add")
    assert describe_frame(Pipeline(added, delta("/t"))) is None
