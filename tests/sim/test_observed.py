"""What workers that decide alone did is noted once it has settled: epochs, moves, reasons, and what `rota why` prints."""

import pytest

from rota.catalog import Catalog
from rota.cli.observer import GroupObserver
from rota.cli.status import read_status
from rota.cli.why import explain
from rota.coordination import membership, overrides
from rota.coordination.alone import grab, list_grabs
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.coordination.snapshot import read_basis
from rota.errors import ConfigError
from rota.face.history import find_spans, read_story
from rota.group.found import follow
from rota.group.observed import find_unsettled
from rota.group.rebalance import preview, rebalance
from rota.pipeline import Group
from simulator.memory_store import MemoryServer
from tests.sim.alone_group import found_group, rounds, start


def settle(tree: GroupState, *agents: object) -> None:
    for _ in range(30):
        for agent in agents:
            rounds(agent, 1)  # type: ignore[arg-type]
    assert not find_unsettled(tree, read_basis(tree))


@pytest.fixture
def group() -> tuple[MemoryServer, GroupState]:
    return found_group(count=10)


def test_each_settled_change_is_an_epoch_with_its_moves_and_reasons(group: tuple[MemoryServer, GroupState]) -> None:
    server, tree = group
    w1 = start(server, "w1")
    assert not find_unsettled(tree, read_basis(tree)), "there is nothing to wait for"
    rounds(w1, 1)
    assert find_unsettled(tree, read_basis(tree)) == "w1 has not chosen yet"
    settle(tree, w1)
    assert rebalance(tree, "run").sentence == "Epoch 1: w1 joined. 10 of 10 placed. Imbalance 1.00."
    w2 = start(server, "w2")
    rounds(w2, 2)
    assert find_unsettled(tree, read_basis(tree)) == "asked for: 5 partitions"
    settle(tree, w1, w2)
    shown = preview(tree).plan
    done = rebalance(tree, "run")
    assert (done.published, done.doubles, len(done.plan.moves)) == (True, {}, 5)
    assert list(shown.moves) == list(done.plan.moves)
    assert {m.reason for m in done.plan.moves} == {"w2 claimed it from w1, which held 10 while the quota is 5"}
    assert done.sentence == "Epoch 2: w2 joined. 5 of 10 partitions moved (0 unavoidable). Imbalance 1.00."
    again = rebalance(tree, "run")
    assert not again.published
    assert not read_basis(tree).moved, "nothing is left to be noted"
    moved = done.plan.moves[0].partition
    why = explain(tree, moved)
    assert (why["owner"], why["target"], why["reason"]) == ("w2", "w2", done.plan.moves[0].reason)
    assert why["since_epoch"] == 2
    status = read_status(tree, GroupObserver(tree).observe())
    assert {p["owner"] for p in status["partitions"]} == {p["target"] for p in status["partitions"]} == {"w1", "w2"}
    w1.store.close()
    settle(tree, w2)
    last = rebalance(tree, "run")
    assert {m.reason for m in last.plan.moves} == {"w1 left"}
    assert tree.epochs()[-1].before == {"w1": 5, "w2": 5}
    assert tree.epochs()[-1].after == {"w2": 10}


def test_a_ribbon_changes_its_colour_when_the_partition_was_claimed_not_when_that_was_noted() -> None:
    """The epoch is noted a tick later: until then a worker consumed what the picture gave to another."""
    server, tree = found_group(count=4)
    clock = [100.0]
    server.clock = lambda: clock[0]
    w1 = start(server, "w1")
    settle(tree, w1)
    clock[0] = 103.0
    rebalance(tree, "run")
    clock[0] = 200.0
    w2 = start(server, "w2")
    settle(tree, w1, w2)
    clock[0] = 230.0
    taken = {move.partition for move in rebalance(tree, "run").plan.moves}
    story = read_story(tree, ())
    assert [epoch.at for epoch in story.epochs] == [103, 230]
    assert {spans[0].start for spans in find_spans(story).values()} == {100}
    assert {p: spans[1].start for p, spans in find_spans(story).items() if len(spans) > 1} == dict.fromkeys(taken, 200)
    assert [(moment.at, moment.text) for moment in story.moments] == [(100, "w1 joined"), (200, "w2 joined")]
    assert [move.at for epoch in story.epochs for move in epoch.moves] == [100] * 4 + [200] * 2
    assert explain(tree, min(taken))["since"] == 200
    overrides.drain(tree, "w1")
    rounds(w1)
    clock[0] = 300.0  # until then what w1 released had no owner
    settle(tree, w1, w2)
    done = rebalance(tree, "run")
    assert {move.at for move in tree.epochs()[-1].moves} == {300}
    assert len(done.plan.moves) == 2


def test_under_assigned_the_epoch_gives_a_partition_when_it_is_published() -> None:
    server, tree = found_group("assigned")
    clock = [100.0]
    server.clock = lambda: clock[0]
    w1 = start(server, "w1")
    rounds(w1, 1)
    rebalance(tree, "run")
    clock[0] = 105.0
    rounds(w1)
    assert {(spans[0].owner, spans[0].start) for spans in find_spans(read_story(tree, ())).values()} == {("w1", 100)}


def test_a_grab_that_outlives_the_claim_holds_up_no_epoch() -> None:
    """Where partitions are raced for there is always one, and the page showed no epoch at all."""
    server, tree = found_group("race", 4)
    w1 = start(server, "w1")
    rounds(w1)
    assert len(list_grabs(tree)) == 4
    assert not find_unsettled(tree, read_basis(tree))
    grab(tree, membership.join(GroupState(server.connect(), "g"), "w2", Live(protocol="race")), ["p:9"])
    assert find_unsettled(tree, read_basis(tree)) == "asked for: 1 partition"


def test_a_drained_worker_gives_its_partitions_one_owner_each(group: tuple[MemoryServer, GroupState]) -> None:
    server, tree = group
    w1, w2 = start(server, "w1"), start(server, "w2")
    settle(tree, w1, w2)
    rebalance(tree, "run")
    overrides.drain(tree, "w1")
    settle(tree, w1, w2)
    done = rebalance(tree, "run")
    assert {m.reason for m in done.plan.moves} == {"w1 is draining"}
    assert done.plan.measures.unavoidable_moves == len(done.plan.moves) == 5


def test_a_group_that_is_assigned_again_waits_until_no_worker_decides_alone(
    group: tuple[MemoryServer, GroupState],
) -> None:
    """Drain, change, go on: the same targets are published then, and nothing moves."""
    server, tree = group
    w1, w2 = start(server, "w1"), start(server, "w2")
    settle(tree, w1, w2)
    before = {p: (v.incarnation or "").partition("@")[0] for p, v in tree.owned().items()}
    tree.found(protocol="assigned")
    with pytest.raises(ConfigError, match="is assigned, and w1, w2 still run another"):
        rebalance(tree, "run")
    w1.store.close()
    w2.store.close()
    again = [start(server, "w1"), start(server, "w2")]
    for agent in again:
        rounds(agent, 1)
    done = rebalance(tree, "run")
    for agent in again:
        rounds(agent)
    assert done.published is False or not done.plan.moves
    assert {p: (v.incarnation or "").partition("@")[0] for p, v in tree.owned().items()} == before


def test_the_sensor_makes_own_records_of_new_partitions_and_asks_once_it_has_settled() -> None:
    store = MemoryServer().connect()
    catalog = Catalog({}, {"g": Group("g", protocol="claim")}, (), {})
    assert follow(store, catalog, "g").needed
    tree = GroupState(store, "g")
    tree.grow("p", ["0", "1"])
    assert follow(store, catalog, "g").needed
    assert set(tree.owned()) == {"p:0", "p:1"}
    rebalance(tree, "run")
    assert not follow(store, catalog, "g").needed, "no worker is there, and that is noted"
    w1 = start(store.server, "w1")
    rounds(w1, 1)
    seen = follow(store, catalog, "g")
    assert (seen.needed, seen.reason) == (False, "w1 has not chosen yet")
    settle(tree, w1)
    assert follow(store, catalog, "g").needed
    rebalance(tree, "run")
    assert not follow(store, catalog, "g").needed
    there = Catalog({}, {"g": Group("g")}, (), {})
    seen = follow(store, there, "g")
    assert "w1 still run another" in seen.problems["group g, its protocol"]
    assert not seen.needed


@pytest.mark.parametrize("more", [{"budget": 1}, {"assignor": "hash"}, {"options": {"steel": 1}}, {"protocol": "clam"}])
def test_a_group_reports_what_its_protocol_does_not_know(more: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"has no|unknown option 'steel'|Unknown protocol"):
        Group("g", **{"protocol": "claim"} | more)  # type: ignore[arg-type]
