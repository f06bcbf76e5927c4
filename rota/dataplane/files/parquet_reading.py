"""Read landed Parquet files by Spark, once their footers show that Spark returns equal values."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rota.dataplane.files import added, parquet, recount
from rota.dataplane.files.landing import LandedBytes, Refuse
from rota.dataplane.files.listed import Listed
from rota.dataplane.files.nanoseconds import Truncated
from rota.dataplane.formats.options import make_options
from rota.dataplane.spark.spark_source import Records
from rota.pipeline import Files
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Landed = Mapping[str, tuple[str, int, LandedBytes]]  # path -> partition, offset, file


def read(
    spark: "SparkSession",
    listed: Listed,
    declared: Files,
    landed: Landed,
    read_columns: Callable[[], str | None],
    refuse: Callable[[Refuse], None],
) -> Records:
    """Read the files of a job.

    Args:
        listed: the files as Spark reads them.
        read_columns: returns the table's columns.
        refuse: raises SourceChanged for the first file for which its argument returns a reason.
    """
    more, cut, new = added.Added(frozenset(), {}), Truncated(), declared.new_columns
    with ThreadPoolExecutor(1) as pool:  # while Spark lists the files
        reading = pool.submit(parquet.read_footers, {path: file for path, (_, _, file) in landed.items()})
        if new == "add":
            more = added.Added.of(declared.schema, read_columns())
            refuse(lambda _, path: more.take(path, reading.result()[path]))
        if declared.nanoseconds == "truncate":
            cut = Truncated.of(spark, declared.schema, reading.result())
        options = make_options(declared.format, declared.options)
        frame = listed.load(spark, declared, options, added=[*more.chosen.values(), *cut.fields])
        schema = json.loads(frame.schema.json())
    footers = {path: cut.adapt(footer) for path, footer in reading.result().items()}
    schema["fields"] = [field for field in schema["fields"] if field["name"] not in (PARTITION, OFFSET)]
    null = declared.options.get("mergeSchema", "false").lower() == "true"
    refuse(lambda file, path: parquet.explain_misfit(file, schema, null, new, footers[path]))
    offsets = {path: (partition, offset) for path, (partition, offset, _) in landed.items()}
    held = {offsets[path]: (path, footer.rows) for path, footer in footers.items() if footer}

    def identify(frame: "DataFrame") -> "DataFrame":
        return cut.restore(listed.identify(frame), offsets)

    def check() -> None:
        wrong = recount.explain_miscounts(spark, listed, frame, held)
        refuse(lambda _, path: wrong.get(path, ""))

    rows = sum(rows for _, rows in held.values())
    return Records(frame, None, lambda: rows, identify=identify, named=listed.named, recount=check)
