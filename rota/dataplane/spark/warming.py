"""Warm a Spark with jobs like those of a pipeline, so that the first batch of a worker takes as long as its later ones.

Law: a job of `warm` reads, parses and writes with the code of a run: Spark loads the same classes, generates the same
kinds of code and starts the same Python processes. It needs no pipeline, and leaves no file behind.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rota.dataplane.formats import values
from rota.dataplane.spark import parsing, plans, writing
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "n long, name string, at timestamp, price double"
RECORD = {"n": 1, "name": "w", "at": "2024-01-01T00:00:00Z", "price": 1.5}
TASKS, ROWS = 2, 1_000  # tasks of a job, each with a Python process of its own, and the records of each task


def warm(spark: "SparkSession", local: bool) -> None:
    """Read and write a few records: once as messages, and once as files.

    Args:
        spark: a session that is fit for a run.
        local: Spark's tasks see the disk of this process. Otherwise the records are read, and nothing is written.

    Raises: the errors of Spark and of its Python.
    """
    messages = read_messages(spark)
    if not local:
        messages.collect()
        return
    with tempfile.TemporaryDirectory(prefix="rota-warm-") as folder:
        _write(messages, folder, "messages")
        for number in range(TASKS):
            file = Path(folder, "landed", f"{PARTITION}={number}", "0.json")
            file.parent.mkdir(parents=True)
            file.write_text(f"{json.dumps(RECORD)}\n" * ROWS)
        landed = spark.read.schema(f"{SCHEMA}, {PARTITION} string").json(str(Path(folder, "landed")))
        _write(landed.selectExpr("*", f"0L AS {OFFSET}"), folder, "files")


def read_messages(spark: "SparkSession") -> "DataFrame":
    """Return records as a Kafka source has them: Python gives the values, and Spark parses them."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ddl = f"value binary, {PARTITION} string, {OFFSET} bigint"
    read = make_reader(json.dumps(RECORD).encode(), (PARTITION, OFFSET))
    frame = spark.range(0, TASKS, 1, TASKS).mapInArrow(read, ddl)
    return parsing.parse(values.parse(frame, SCHEMA, "json", {}, (), False), True).good


def make_reader(value: bytes, ids: tuple[str, str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that yields the value `ROWS` times for each number, with the columns `ids`."""
    rows = ROWS

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                parts, offsets = pa.array([str(number)] * rows), pa.array(range(rows), pa.int64())
                yield pa.RecordBatch.from_arrays([pa.array([value] * rows), parts, offsets], ["value", *ids])

    return read


def _write(frame: "DataFrame", folder: str, name: str) -> None:
    """Write the frame as a run does, after a look at its plan."""
    plans.explain(frame)
    writing.write(frame, folder, name, known={str(n): (0, ROWS) for n in range(TASKS)})
