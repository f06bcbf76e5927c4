"""A deadline for the transform's own Python, which the run's process calls before Spark has a job to end.

Invariant: a transform that waits on the driver (a socket without a timeout, `time.sleep`, a loop) ends at the deadline,
also in a system call and below `except Exception`. `deadline.limit` ends a wait for Spark. Code that never returns to
Python ends the process `GRACE` seconds later, with all stacks in the run's log; the next run retries. The interrupt works
only in the process's main thread, where Dagster runs a step; the end of the process works in any thread.
"""

import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from types import FrameType

from rota.errors import BadTransform

AGAIN = 1.0  # seconds between two interrupts of a transform that catches them
GRACE = 60.0  # seconds from the deadline to the end of a process that cannot be interrupted


class TransformHangs(BaseException):
    """The transform exceeded its deadline. No `except Exception` of the transform catches it."""


@contextmanager
def limit_driver(seconds: float, file: str | None) -> Iterator[None]:
    """Limit the transform in the context to `seconds`.

    Args:
        seconds: The pipeline's deadline.
        file: The pipeline's file, whose line the error names.

    Raises:
        BadTransform: The transform did not return in time. All partitions fail alike, and rota retries them.
    """
    if seconds == inf:
        yield
        return
    place, over = "", False

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal place
        if not over and not _waits_for_spark(frame):
            place = place or _find_place(frame, file)
            raise TransformHangs

    bound = min(seconds, threading.TIMEOUT_MAX / 2)
    signals = threading.current_thread() is threading.main_thread()
    if signals:
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, bound, AGAIN)
    with suppress(ValueError, OSError, AttributeError):  # no stderr, as below a GUI
        faulthandler.dump_traceback_later(bound + GRACE, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    except TransformHangs:
        raise BadTransform(
            f"The transform did not return within {seconds:g} s{place}. What it calls there needs a timeout, or the "
            f"pipeline a longer deadline",
            step="At once: rota retry",
            everywhere=True,
        ) from None
    finally:
        over = True
        faulthandler.cancel_dump_traceback_later()
        if signals:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _list_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _waits_for_spark(frame: FrameType | None) -> bool:
    """Whether the stack waits for a query of Spark: its innermost frame of pyspark or rota is one of pyspark."""
    for one in _list_frames(frame):
        name = one.f_globals.get("__name__", "")
        if name.startswith("pyspark."):
            return True
        if name.startswith("rota."):
            return False
    return False


def _find_place(frame: FrameType | None, file: str | None) -> str:
    """Return where the transform is: the innermost line of the pipeline's file, and what that line calls."""
    called = ""
    for one in _list_frames(frame):
        if file and one.f_code.co_filename == file:
            return f": it is at {Path(file).name}, line {one.f_lineno}" + (f", in {called}" if called else "")
        called = f"{one.f_globals.get('__name__', '?')}.{one.f_code.co_name}"
    return ""
