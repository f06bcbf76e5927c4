"""Ends the session of a worker whose loop stands still, because another thread would keep the session alive.

Law: if the loop makes no progress for `bound` seconds while this thread runs and the session is good, the session is ended,
once for each standstill. The time in which the whole process was stopped does not count.
"""

import threading
from collections.abc import Callable

TICKS = 10  # looks at the progress within the bound


class Watchdog:
    """A context manager. `progress` returns another value after each step of the loop, `good` whether there is a session,
    and `end` ends it. None of the three may wait for the loop."""

    def __init__(
        self, progress: Callable[[], object], good: Callable[[], bool], end: Callable[[], None], bound: float
    ) -> None:
        self._progress, self._good, self._end, self._bound = progress, good, end, bound
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rota-watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        seen, still, ended = None, 0, False
        while not self._over.wait(self._bound / TICKS):
            if (now := self._progress()) != seen:
                seen, still, ended = now, 0, False
            elif not ended and self._good():
                still += 1
                if still >= TICKS:
                    self._end()
                    ended = True
