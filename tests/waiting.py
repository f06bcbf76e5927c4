"""The one place of the tests that sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


LONG = 240.0  # seconds: what real processes do within 20 s takes minutes beside all the other tests on a small machine


def wait_until(what: Callable[[], T], timeout: float = LONG, pause: float | None = None) -> T:
    """The first truthy value of `what()`; AssertionError naming `what` and the last value after `timeout` seconds. Between
    two looks it rests for `pause` seconds; by itself the longer, the longer it has waited: looks cost what others need."""
    began = time.monotonic()
    while not (value := what()):
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"not within {timeout} s: {getattr(what, '__name__', what)}; last seen: {value!r}")
        time.sleep(min(0.5, 0.05 + waited / 20) if pause is None else pause)
    return value
