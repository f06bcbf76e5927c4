"""When a query is told to stop, on a client that a test plays: test_disturbed_spark has the real one."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rota.dataplane.spark import deadline
from rota.dataplane.spark.deadline import limit
from rota.errors import EnvironmentFailed


class Planning:
    """A thin client's query that hears one interrupt, and none while it is planned, which takes longer than its time."""

    __module__ = "pyspark.sql.connect"

    def __init__(self) -> None:
        self.planned, self.heard = False, 0
        self.ended, self.called = threading.Event(), threading.Event()

    def registerProgressHandler(self, handler: Callable[..., None]) -> None:
        self.handler = handler

    def removeProgressHandler(self, _: Callable[..., None]) -> None:
        pass

    addTag = removeTag = removeProgressHandler  # noqa: N815

    def interruptTag(self, _: str) -> None:
        self.heard += 1
        if self.heard == 1 and self.planned:
            self.ended.set()
        self.called.set()

    def ask(self, planning: float) -> None:
        self.called.wait(planning)
        self.planned = True
        self.handler(stages=[SimpleNamespace(done=False)], inflight_tasks=1, operation_id="1", done=False)
        if not self.ended.wait(2.0):
            raise AssertionError("it runs for ever")
        raise RuntimeError("OPERATION_CANCELED")


@pytest.mark.parametrize("guarded", [True, False])
def test_a_query_is_not_interrupted_while_it_is_planned(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    spark: Any = Planning()
    if not guarded:
        monkeypatch.setattr(deadline, "PLANNING", 0.0)
    wanted = pytest.raises(EnvironmentFailed, match="was not done")
    with wanted as raised, limit(spark, 0.1):
        spark.ask(1.0)
    assert isinstance(raised.value.__cause__, RuntimeError if guarded else AssertionError)


def test_what_a_cancelled_run_asked_is_ended() -> None:
    spark: Any = Planning()
    with pytest.raises(KeyboardInterrupt), limit(spark, 600.0):
        raise KeyboardInterrupt
    assert spark.heard == 1
