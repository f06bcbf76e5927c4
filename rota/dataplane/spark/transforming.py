"""Apply a pipeline's transform to a frame, and report what Spark refuses before it reads a row.

Invariant: a run refuses a transform that `rota check` refuses on an empty frame, for the same reason: both call `apply`.
"""

from typing import TYPE_CHECKING

from rota.dataplane.spark import failures, origins, parsing, plans
from rota.dataplane.spark.driver_time import limit_driver
from rota.dataplane.spark.session import send_by_value, take_first_line
from rota.errors import BadTransform, DataError
from rota.ledger.schema import check_columns
from rota.pipeline import Pipeline
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EMPTY_FRAME = 30.0  # seconds that a transform has on an empty frame


def apply(
    pipeline: Pipeline, parsed: parsing.Parsed, spark: "SparkSession", deadline: float, schema: str | None
) -> "tuple[DataFrame, str, bool]":
    """Apply the transform to the good records.

    Args:
        pipeline: the pipeline of the transform; without a transform the records are the result.
        parsed: the records.
        spark: the session of the records.
        deadline: seconds that the transform has on the driver.
        schema: the columns of the table, JSON; None if there is no table.

    Returns:
        The result, its analyzed plan (empty without a transform), and whether the plan shows the record of each row.

    Raises:
        BadTransform: Spark or the transform failed before a row was read, so each partition fails alike.
        EnvironmentFailed: Spark does not work.
    """
    try:
        with limit_driver(deadline, getattr(pipeline.module, "__file__", None)):
            result = pipeline.transform(parsed.good) if pipeline.transform else parsed.good
        if pipeline.module is not None:
            send_by_value(pipeline.module)  # also what the transform itself imported
        given = result.schema.json()
    except BadTransform:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        judged = failures.judge_failure(error, spark, None, module=pipeline.module)
        raise (_as_everywhere(judged) if isinstance(judged, DataError) else judged) from error
    require_columns(given, schema)
    try:
        plan = "" if result is parsed.good else plans.explain(origins.select_origins(result))
        return result, plan, not plan or origins.shows_origins(plan, parsed.mark)
    except BadTransform as error:
        raise _as_everywhere(error) from None


def require_columns(given: str, schema: str | None) -> None:
    """Raise BadTransform, as of every partition, if a table with the columns `schema` cannot hold the columns `given`."""
    try:
        check_columns(given, schema)
    except BadTransform as error:
        raise _as_everywhere(error) from None


def _as_everywhere(error: DataError) -> BadTransform:
    """Return the same error, marked as one that every partition has."""
    return BadTransform(error.what, step=error.step, everywhere=True, person=True)


def find_refused(spark: "SparkSession", pipeline: Pipeline, frame: str, schema: str | None) -> tuple[str, str]:
    """Try the pipeline on a frame without rows.

    Args:
        spark: a session that is fit for a run.
        pipeline: the pipeline to try.
        frame: the columns that its transform gets, as Spark DDL, without `_partition` and `_offset`.
        schema: the columns of its table, JSON; None if there is no table.

    Returns:
        Why Spark does not read the schema, and why a run would refuse the transform; each empty if it is right.

    Raises:
        EnvironmentFailed: Spark does not work.
    """
    from pyspark.errors import PySparkException

    try:
        empty = spark.createDataFrame([], f"{frame}, {PARTITION} string, {OFFSET} bigint")
    except PySparkException as error:
        return take_first_line(error), ""
    try:
        apply(
            pipeline,
            parsing.parse(empty, False),
            spark,
            min(pipeline.deadline, EMPTY_FRAME),
            schema,
        )
    except DataError as error:
        return "", error.what
    return "", ""
