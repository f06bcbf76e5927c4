"""The one place of the tests that sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


LONG = 240.0  # seconds: what real processes do within 20 s takes minutes beside all the other tests on a small machine


def wait_until(what: Callable[[], T], timeout: float = LONG, pause: float = 0.05) -> T:
    """The first truthy value of `what()`; AssertionError naming `what` and the last value after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := what()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {getattr(what, '__name__', what)}; last seen: {value!r}")
        time.sleep(pause)
    return value
