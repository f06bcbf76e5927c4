"""Polls inside a sensor's tick, because Dagster starts a tick every 5 s at best.

Invariants:
1. No other sensor waits for rota's. If Dagster evaluates sensors one after another (without `use_threads` in
   dagster.yaml, its default), a tick polls once. Otherwise ticks wait in at most half of the threads of the daemon and of
   the code server.
2. Polls take at most a quarter of the time. A watch in ZooKeeper (a `ChangeSignal`) ends the pause between two polls, so
   that the pause can be long.
3. If the code server ends, for example because its code location is reloaded, a tick ends after its pause.
4. A tick costs more than many polls, so a tick that finds nothing polls for the seconds of `ROTA_TICK`.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import dagster as dg

from rota.dagster.private import GUARDS, SERVERS
from rota.settings import Settings

T = TypeVar("T")

PAUSE = 1.0  # seconds between two polls; three times the duration of a poll if that is more

# The code server runs ticks, launches and the page in the same threads. `dagster dev` has two servers in a row; `rota up`
# gives both 24 threads, Dagster by itself min(32, cores + 4), which is also the default of the daemon.
_DEFAULT = min(32, (os.cpu_count() or 1) + 4)
_lock = threading.Lock()
_waiting = 0  # ticks of this process


def count_places(instance: dg.DagsterInstance) -> int:
    """Return how many ticks of this process may wait at a time."""
    sensors = instance.get_settings("sensors") or {}
    if not sensors.get("use_threads"):
        return 0
    servers = (int(os.environ.get(name) or _DEFAULT) for name in SERVERS)
    return min(sensors.get("num_workers") or _DEFAULT, *servers) // 2


def poll(
    poll_once: Callable[[], T],
    enough: Callable[[T], bool],
    places: int,
    *,
    pause: float = PAUSE,
    rest: Callable[[float], object] | None = None,
) -> T:
    """Poll until a result is `enough`, or the code server ends, for at most the seconds of `ROTA_TICK`.

    Args:
        poll_once: one poll.
        enough: whether its result ends the tick.
        places: how many ticks may wait at a time. If as many wait, the tick polls once.
        pause: seconds between two polls.
        rest: waits for at most the seconds that it is given.

    Returns:
        the last result.
    """
    began = time.monotonic()
    if enough(seen := poll_once()):
        return seen
    end, took = began + Settings.from_environment().tick.total_seconds(), time.monotonic() - began
    guards = [one for one in threading.enumerate() if one.name in GUARDS]
    with _place(places) as free:
        while free and (now := time.monotonic()) + 3 * took < end:
            time.sleep(3 * took)
            if (left := min(pause, end - now) - 3 * took) > 0:
                (rest or time.sleep)(left)
            if not all(one.is_alive() for one in guards):
                break
            started = time.monotonic()
            if enough(seen := poll_once()):
                break
            took = time.monotonic() - started
    return seen


@contextmanager
def _place(places: int) -> Iterator[bool]:
    """Hold one of the places for the block, if one is free; yield whether one was."""
    global _waiting
    with _lock:
        free = _waiting < places
        _waiting += free
    try:
        yield free
    finally:
        with _lock:
            _waiting -= free
