"""A deadline for queries of Spark: rota interrupts the query that exceeds it.

Law: the caller gets a result, an error of Spark's, or an error with the fact `late`. If a query is late or its caller is
cancelled, Spark ends the query's tasks (measured: a Python function that sleeps, within 1 s). The worker handles a task
that cannot be ended: see `SparkServer.stuck`.

Spark Connect (4.3) accepts one interrupt for a query. If this interrupt arrives while Spark plans the query, a helper of
Hadoop's swallows it, and the query runs for ever. So a query is interrupted once its tasks run, or after `PLANNING` seconds
without a task.
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

AGAIN = 0.5  # seconds between two checks or interrupts: a caller sends several queries, one after the other
PLANNING = 30.0  # seconds


@contextmanager
def limit(spark: "SparkSession", seconds: float) -> Iterator[None]:
    """Limit this thread's queries of `spark` in the context. Raises EnvironmentFailed with the fact `late`."""
    if seconds == inf:
        yield
        return
    tag, over, late = f"rota-{uuid.uuid4().hex}", threading.Event(), threading.Event()
    going = threading.Event()  # set while tasks run

    quiet = time.monotonic()  # since when no task of the current query runs

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
                with suppress(Exception):  # Spark may be gone: then the caller's query fails
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
