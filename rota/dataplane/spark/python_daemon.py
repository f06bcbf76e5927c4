"""Spark's Python daemon, with the imports of a task done before it forks: `spark.python.daemon.module` of a local Spark.

Law: a process of Python that Spark starts for a task forks with these modules loaded. Spark ends idle ones after a minute,
so that otherwise a batch after a quiet minute would take some 0.5 CPU seconds longer in each task.

A fork copies one thread. What these imports start (the threads of OpenBLAS, that of jemalloc) is made anew in the fork by
handlers of those libraries. Arrow's and librdkafka's own threads start when they are first used, in the fork.
"""

import contextlib
import importlib

from pyspark.daemon import manager

MODULES = (
    "pyspark.worker",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyarrow.fs",
    "confluent_kafka",
    "fastavro",
)

if __name__ == "__main__":
    for name in MODULES:
        with contextlib.suppress(ImportError):  # only pipelines of Kafka need the last two
            importlib.import_module(name)
    manager()
