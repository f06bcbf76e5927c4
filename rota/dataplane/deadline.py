"""A deadline for what Spark is asked: past it, Spark is told to stop, again and again until the asking comes back.

Law: whoever asks gets an answer, an error of Spark's or `late`, and what is late does not go on behind his back: Spark
ends its tasks (measured: a Python function that sleeps, within 1 s). A task that cannot be ended is the worker's matter:
see `SparkServer.stuck`.
"""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING

from rota.errors import EnvironmentFailed, RotaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGAIN = 1.0  # seconds between two interrupts: what is asked of Spark is several queries, one after the other


@contextmanager
def limited(spark: "SparkSession", seconds: float) -> Iterator[None]:
    """What this thread asks of `spark` inside has so many seconds; else raises EnvironmentFailed with the fact `late`."""
    if seconds == inf:
        yield
        return
    tag, done, late = f"rota-{uuid.uuid4().hex}", threading.Event(), threading.Event()

    def interrupt() -> None:
        if done.wait(seconds):
            return
        late.set()
        while not done.is_set():
            with suppress(Exception):  # Spark may be gone: then whoever waits for it is told by his own connection
                spark.interruptTag(tag)
            done.wait(AGAIN)

    watch = threading.Thread(target=interrupt, name=tag, daemon=True)
    spark.addTag(tag)
    watch.start()
    try:
        yield
    except Exception as error:
        if late.is_set() and (isinstance(error, EnvironmentFailed) or not isinstance(error, RotaError)):
            raise EnvironmentFailed(f"Spark was not done after {seconds:g} s", late=seconds) from error
        raise
    finally:
        done.set()
        spark.removeTag(tag)
