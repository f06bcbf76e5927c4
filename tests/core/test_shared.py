"""Scrapes share an observation: one runs at a time, a late one holds no scrape up, a failed one is not hidden."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rota.errors import EnvironmentFailed
from rota.face.shared import MAX_AGE, SHARED, Shared
from tests.waiting import LONG, wait_until


class Observed:
    """Counts the observations; `thaw` lets one end, and `fault` is raised by it."""

    def __init__(self) -> None:
        self.times, self.clock = 0, 0.0
        self.thaw = threading.Event()
        self.thaw.set()
        self.fault: Exception | None = None
        self.shared = Shared(self.make, lambda: self.clock)

    def make(self) -> int:
        self.times += 1
        number = self.times
        assert self.thaw.wait(LONG)
        if self.fault:
            raise self.fault
        return number


def test_calls_within_some_seconds_share_one() -> None:
    one = Observed()
    assert [one.shared.get(), one.shared.get()] == [1, 1]
    one.clock += SHARED
    assert one.shared.get() == 1
    one.clock += 0.1
    assert one.shared.get() == 2


def test_calls_at_once_share_one() -> None:
    one = Observed()
    one.thaw.clear()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(one.shared.get, LONG) for _ in range(4)]
        wait_until(lambda: one.times)
        one.thaw.set()
        assert {each.result() for each in asked} == {1}


def test_while_one_is_late_the_one_before_is_there_for_a_minute() -> None:
    one = Observed()
    one.shared.get()
    one.clock += SHARED + 1
    one.thaw.clear()
    assert [one.shared.get(0.01), one.shared.get(0.01)] == [1, 1]
    assert one.times == 2, "the late one is not begun twice"
    one.clock += MAX_AGE
    with pytest.raises(EnvironmentFailed, match=r"was not observed within 0\.01 s"):
        one.shared.get(0.01)
    one.thaw.set()
    assert wait_until(lambda: one.shared.get(LONG)) == 2, "what came late counts"


def test_a_failed_one_is_raised_and_the_next_one_is_tried() -> None:
    one = Observed()
    one.shared.get()
    one.clock += SHARED + 1
    one.fault = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        one.shared.get()
    with pytest.raises(ZeroDivisionError):
        one.shared.get()
    assert one.times == 2
    one.clock += SHARED + 1
    one.fault = None
    assert one.shared.get() == 3
