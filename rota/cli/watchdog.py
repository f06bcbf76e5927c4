"""Ends the session of a worker whose loop has stalled; another thread would keep the session alive.

Law: if the loop makes no progress for `bound` seconds while this thread runs and the session is good, the watchdog ends
the session, once per stall. Time in which the whole process was stopped does not count.
"""

import threading
from collections.abc import Callable

from rota.machine import start_lasting

TICKS = 10  # checks of the progress within the bound


class Watchdog:
    """A context manager.

    Args:
        progress: returns another value after each step of the loop.
        good: returns whether there is a session.
        end: ends the session.

    None of the three may wait for the loop.
    """

    def __init__(
        self,
        progress: Callable[[], object],
        good: Callable[[], bool],
        end: Callable[[], None],
        bound: float,
        note: Callable[[Exception], object],
    ) -> None:
        self._progress, self._good, self._end, self._bound, self._note = progress, good, end, bound, note
        self._over = threading.Event()
        self._seen: object = None
        self._still, self._ended = 0, False

    def __enter__(self) -> "Watchdog":
        start_lasting("rota-watchdog", self._watch, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> bool:
        """Check the progress once; return whether another check follows."""
        if self._over.wait(self._bound / TICKS):
            return False
        if (now := self._progress()) != self._seen:
            self._seen, self._still, self._ended = now, 0, False
        elif not self._ended and self._good():
            self._still += 1
            if self._still >= TICKS:
                self._end()
                self._ended = True
        return True
