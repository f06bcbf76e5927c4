"""A deadline for what Spark is asked: past it, Spark is told to stop.

Law: whoever asks gets an answer, an error of Spark's, or `late`; and what is late, or whose asker was told to end, does
not go on behind his back: Spark ends its tasks (measured: a Python function that sleeps, within 1 s). A task that cannot
be ended is the worker's matter: see `SparkServer.stuck`.

A query of Spark Connect (4.3) hears one interrupt only, and one that comes while it is planned gets lost: a helper of
Hadoop's swallows it, and the query runs for ever. So a query is interrupted once its tasks are on their way; if none is
within `PLANNING` seconds, nevertheless.
"""

import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any

from rota.dataplane.spark.session import is_remote
from rota.errors import EnvironmentFailed, RotaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGAIN = 0.5  # seconds between two looks, and interrupts: what is asked is several queries, one after the other
PLANNING = 30.0  # seconds


@contextmanager
def limit(spark: "SparkSession", seconds: float) -> Iterator[None]:
    """What this thread asks of `spark` inside has so many seconds; else raises EnvironmentFailed with the fact `late`."""
    if seconds == inf:
        yield
        return
    tag, over, late = f"rota-{uuid.uuid4().hex}", threading.Event(), threading.Event()
    going = threading.Event()  # tasks are on their way

    quiet = time.monotonic()  # since then none are, of the query of now

    def progress(stages: Iterable[Any], done: bool, **_: object) -> None:
        nonlocal quiet
        quiet = time.monotonic() if done else quiet
        (going.clear if done or all(stage.done for stage in stages) else going.set)()

    def interrupt() -> None:
        nonlocal quiet
        if over.wait(min(seconds, threading.TIMEOUT_MAX)):
            return
        late.set()
        quiet = time.monotonic()
        while not over.wait(AGAIN):
            if going.is_set() or time.monotonic() - quiet > PLANNING:
                with suppress(Exception):  # Spark may be gone: whoever waits for it is told by his own connection
                    spark.interruptTag(tag)

    if is_remote(spark):
        spark.registerProgressHandler(progress)
    else:
        going.set()
    watch = threading.Thread(target=interrupt, name=tag, daemon=True)
    spark.addTag(tag)
    watch.start()
    try:
        yield
    except Exception as error:
        if late.is_set() and (isinstance(error, EnvironmentFailed) or not isinstance(error, RotaError)):
            raise EnvironmentFailed(f"Spark was not done after {seconds:g} s", late=seconds) from error
        raise
    except BaseException:  # such as a run that was cancelled
        with suppress(Exception):
            spark.interruptTag(tag)
        raise
    finally:
        over.set()
        spark.removeTag(tag)
        if is_remote(spark):
            spark.removeProgressHandler(progress)
