"""One observation for all calls within some seconds.

Laws:
1. `get` returns within `WAIT` seconds. An observation that takes longer continues, and its result is for later calls.
2. One observation runs at a time. An observation is at most `SHARED` seconds old when a call takes it without another one.
3. While an observation takes longer than `WAIT`, calls get the last one, unless that ended more than `MAX_AGE` seconds ago.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Lock, Thread
from typing import Generic, TypeVar

from rota.errors import EnvironmentFailed

T = TypeVar("T")
SHARED = 5.0  # seconds for which calls share an observation
WAIT = 8.0  # seconds that a call waits: Prometheus gives up a scrape after 10
MAX_AGE = 60.0  # seconds for which an observation is returned while the next one is late


class Shared(Generic[T]):
    """Shares the results of `make`. Thread-safe."""

    def __init__(self, make: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._make, self._clock, self._lock = make, clock, Lock()
        self._newest: Future[tuple[T, float]] | None = None
        self._last: tuple[T, float] | None = None  # the last result, and when it was there
        self._ended = 0.0

    def get(self, seconds: float = WAIT) -> T:
        """Return an observation. Raises what `make` raised, if that is newer; EnvironmentFailed if there is none in time."""
        with self._lock:
            if self._newest is None or (self._newest.done() and self._clock() - self._ended > SHARED):
                self._newest = self._start()
            newest = self._newest
        wait([newest], seconds)
        if newest.done():
            return newest.result()[0]
        if self._last and self._clock() - self._last[1] <= MAX_AGE:
            return self._last[0]
        raise EnvironmentFailed(f"The group was not observed within {seconds:g} s. See whether its stores answer")

    def _start(self) -> "Future[tuple[T, float]]":
        future: Future[tuple[T, float]] = Future()

        def run() -> None:
            try:
                self._last = made = self._make(), self._clock()
                self._ended = made[1]
                future.set_result(made)
            except BaseException as error:  # the callers get it
                self._ended = self._clock()
                future.set_exception(error)

        Thread(target=run, name="rota-observes", daemon=True).start()
        return future
