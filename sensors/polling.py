"""Waiting inside a tick: Dagster ticks a sensor every 5 s at best, ZooKeeper knows at once."""

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Seconds a tick may wait. Dagster starts ticks every 5 s: this ends just before such a moment, so that somebody is nearly
# always looking, and far below the 60 s that it gives a tick.
WINDOW = 18.8
PAUSE = 0.5  # between two looks; three times as long as a look took, where looking is slow

# The code server answers launches and the page from the same threads as the ticks: at most half of them may wait here.
# In `dagster dev` there are two servers in a row; `rota up` gives both enough threads, plain Dagster min(32, cores + 4).
_SERVERS = ("DAGSTER_GRPC_MAX_WORKERS", "DAGSTER_CODE_SERVER_MAX_WORKERS")
_threads = min(int(os.environ.get(name) or min(32, (os.cpu_count() or 1) + 4)) for name in _SERVERS)
_places = threading.BoundedSemaphore(max(1, _threads // 2))


def poll(look: Callable[[], T], enough: Callable[[T], bool]) -> T:
    """The first look that is enough, or the last one of the window; one look when too many ticks wait already."""
    began = time.monotonic()
    if enough(seen := look()) or not _places.acquire(blocking=False):
        return seen
    started = began
    try:
        while (again := (now := time.monotonic()) + max(PAUSE, 3 * (now - started))) < began + WINDOW + PAUSE:
            time.sleep(again - now)
            started = time.monotonic()
            if enough(seen := look()):
                break
        return seen
    finally:
        _places.release()
