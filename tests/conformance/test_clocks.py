"""Law: a clock that went back, or differs from another machine's, makes no wait longer than it was to be."""

from dataclasses import replace
from typing import Any

import pytest

from rota.catalog import Catalog
from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.parking import is_waiting, park
from rota.coordination.records import Live
from rota.core import Policy, plan
from rota.core.assignors.rounds import ROUND, start_round
from rota.group.found import follow
from rota.group.rebalance import rebalance
from rota.pipeline import Group
from simulator.memory_store import MemoryServer
from tests.claiming import claim_one
from tests.core.groups import LOPSIDED, build_plain_snapshot

pytestmark = pytest.mark.fast

BACK = 3600.0


def test_a_parked_partition_is_tried_again() -> None:
    clock = [2 * BACK]
    tree = GroupState(MemoryServer(clock=lambda: clock[0]).connect(), "g")
    tree.found()
    parked = park(tree, "p:a", "bad", retry_after=5.0)
    assert is_waiting(parked, clock[0] + 4)
    assert not is_waiting(parked, clock[0] + 5)
    assert not is_waiting(parked, clock[0] - BACK)
    assert is_waiting(park(tree, "p:b", "bad"), clock[0] - BACK), "it needs an operator"


def test_voluntary_moves_cool_down_no_longer_than_the_cooldown() -> None:
    snapshot = build_plain_snapshot(["w1", "w2", "w3"], LOPSIDED, now=2 * BACK)
    policy = Policy(budget=3, cooldown=60.0)
    first = plan(snapshot, policy=policy)
    held = {p: w for w, ps in first.assignment.as_dict().items() for p in ps}
    moved = build_plain_snapshot(["w1", "w2", "w3"], held, now=BACK)
    back = plan(moved, memory=first.memory, policy=policy)
    assert back.due == BACK + 60
    assert plan(replace(moved, now=BACK + 60), memory=back.memory, policy=policy).measures.moves == 3


def test_the_shedders_look_again_after_one_round() -> None:
    snapshot = build_plain_snapshot(["w1"], {}, now=BACK)
    assert start_round(snapshot, BACK - ROUND / 2, 1)[0] is False
    assert start_round(snapshot, 2 * BACK, 1) == (True, 2, BACK + ROUND)


def test_grace_is_no_longer_than_grace() -> None:
    """It went back after the decision that set the time: that is found, and decided again, once."""
    clock = [2 * BACK]
    server = MemoryServer(clock=lambda: clock[0])
    store = server.connect()
    tree, agent = GroupState(store, "g"), server.connect()
    catalog = Catalog({}, {"g": Group("g", grace=30.0)}, (), {})
    assert follow(store, catalog, "g").needed
    tree.grow("p", ["a"])
    incarnation = membership.join(GroupState(agent, "g"), "w1", Live())
    rebalance(tree, "r1")
    claim_one(GroupState(agent, "g"), incarnation, "p:a", 0)
    agent.close()
    rebalance(tree, "r2")
    assert tree.head().record.due == 2 * BACK + 30
    clock[0] = BACK
    assert follow(store, catalog, "g").needed
    rebalance(tree, "r3")
    assert tree.head().record.due == BACK + 30
    assert not follow(store, catalog, "g").needed
    clock[0] += 30
    assert follow(store, catalog, "g").needed


@pytest.mark.parametrize("remembers", [True, False])
def test_two_that_declare_a_group_differently_do_not_ask_for_ever(
    monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    """A rolling deployment, or staging and production by mistake: the last write wins, and both are named."""
    from rota.group import found as verb

    store = MemoryServer().connect()
    memories: list[Any] = [{}, {}]  # two processes
    catalogs = [Catalog({}, {"g": Group("g", budget=budget)}, (), {}) for budget in (None, 5)]
    asked, problems = 0, set[str]()
    for turn in range(20):
        monkeypatch.setattr(verb, "last_declared", memories[turn % 2] if remembers else {})
        seen = follow(store, catalogs[turn % 2], "g")
        problems |= set(seen.problems.values())
        if seen.needed:
            asked += 1
            rebalance(GroupState(store, "g"), "r")
    assert asked == (2 if remembers else 20)
    if not remembers:
        return
    assert GroupState(store, "g").meta().budget == 5
    (problem,) = problems
    assert "is declared with budget=None here, and with budget=5 by another Dagster" in problem
    monkeypatch.setattr(
        verb, "last_declared", {}
    )  # the first is started again: it declares, and the other reports that
    assert follow(store, catalogs[0], "g").problems == {}
    monkeypatch.setattr(verb, "last_declared", memories[1])
    assert "budget=5 here, and with budget=None" in follow(store, catalogs[1], "g").problems["group g"]


@pytest.mark.parametrize("guarded", [True, False])
def test_settings_that_came_back_with_an_older_zookeeper_are_put_again(
    monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """By the same process that declared the newer ones: no other process declares anything, and it is not restarted."""
    from rota.group import found as verb

    server = MemoryServer()
    store, memory = server.connect(), dict[str, verb.Declared]()
    monkeypatch.setattr(verb, "last_declared", memory)
    older, newer = (Catalog({}, {"g": Group("g", budget=budget)}, (), {}) for budget in (None, 5))
    follow(store, older, "g")
    tree = GroupState(store, "g")
    meta = server.entries[tree.paths.meta]
    backup = meta.node
    follow(store, newer, "g")
    assert tree.meta().budget == 5
    meta.node = backup
    if not guarded:
        memory.update({group: (*declared[:2], 0) for group, declared in memory.items()})
    problems = [follow(store, newer, "g").problems for _ in range(3)]
    if guarded:
        assert tree.meta().budget == 5
        assert problems == [{}] * 3
    else:
        assert tree.meta().budget is None, "the older settings rule, for as long as the process lives"
        assert "by another Dagster" in problems[-1]["group g"], "of which there is none"
