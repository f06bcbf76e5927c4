"""The log below the ledger lies, and the checker counts the damage. Rows stay right as long as the log compares."""

from typing import Any

import pytest

from rota.ledger import change
from simulator.actors import Parts
from simulator.memory_log import MemoryLog
from simulator.table import MemoryTable
from tests.sim.ablations import Offsetless
from tests.sim.damage import breaks
from tests.sim.handover import HandOver
from tests.sim.lying_logs import Blind, Forgetful, Late, LateBlind, LateList, LateListBlind, TokenBlind

BUSY = {"longest_batch": 8.0, "poisoned": 0.0}


def play(log: type[MemoryLog], rule: str, table: type[MemoryTable] = MemoryTable, **more: Any) -> bool:
    """Whether one of some worlds on this log breaks the rule."""
    worlds = (HandOver(seed, parts=Parts(log=log, table=table), **more) for seed in range(40))
    return any(breaks(one, one.play, rule) for one in worlds)


@pytest.mark.parametrize(("log", "rule"), [(TokenBlind, "stale"), (Blind, "doubled")])
def test_a_log_that_drops_a_comparison(log: type[MemoryLog], rule: str) -> None:
    assert play(log, rule, **BUSY)


def test_a_log_that_loses_its_answers_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(10):
        world = HandOver(seed, parts=Parts(log=Forgetful)).play()
        assert not world.checker.found, world.repro()
    monkeypatch.setattr(change, "find_commit", lambda *_: None)
    assert play(Forgetful, "doubled", Offsetless, faults=False)


@pytest.mark.parametrize(("log", "rule"), [(Late, "restored"), (LateList, "unreported")])
def test_a_log_that_answers_or_lists_late_keeps_its_rows_and_misleads_its_readers(
    log: type[MemoryLog], rule: str
) -> None:
    assert play(log, rule)
    for seed in range(10):
        world = HandOver(seed, parts=Parts(log=log)).play()
        assert not world.checker.found.keys() & {"doubled", "lost", "ahead", "stale"}, world.repro()


@pytest.mark.parametrize("log", [LateBlind, LateListBlind])
def test_late_and_without_comparisons_rows_are_doubled(log: type[MemoryLog]) -> None:
    assert play(log, "doubled", **BUSY)
