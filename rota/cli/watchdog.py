"""Liveness is the loop's: whoever keeps a session alive in a thread of its own must not do so for a loop that stands still.

Law: a loop that made no progress for `bound` seconds, in which this thread itself ran and the session was good, has its
session ended, once for each standstill. A process that was stopped, and the loop with it, is judged from when it goes on.
"""

import threading
from collections.abc import Callable

TICKS = 10  # looks at the progress within the bound


class Watchdog:
    """A context. `progress` gives something else whenever the loop did something; `good` says whether there is a session
    to end; `end` ends it. Neither may wait for the loop."""

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
