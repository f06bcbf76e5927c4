"""Polls inside a sensor's tick, because Dagster starts a tick every 5 s at best."""

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Seconds that a tick may take. Dagster starts ticks every 5 s: a window that ends just before such a moment leaves hardly
# any time without a tick. Dagster allows 60 s.
WINDOW = 18.8
PAUSE = 0.5  # seconds between two looks; three times the duration of a look if that is more

# The code server runs ticks, launches and the page in the same threads, so at most half of them may wait here. `dagster dev`
# has two servers in a row; `rota up` gives both 24 threads, Dagster by itself min(32, cores + 4).
_SERVERS = ("DAGSTER_GRPC_MAX_WORKERS", "DAGSTER_CODE_SERVER_MAX_WORKERS")
_threads = min(int(os.environ.get(name) or min(32, (os.cpu_count() or 1) + 4)) for name in _SERVERS)
_places = threading.BoundedSemaphore(max(1, _threads // 2))


def poll(look: Callable[[], T], enough: Callable[[T], bool]) -> T:
    """Looks until a look is `enough`, for `WINDOW` seconds at most; returns the last look. Looks once if many ticks wait."""
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
