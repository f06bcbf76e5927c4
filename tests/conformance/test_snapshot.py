"""A snapshot of a group: what a decision reads changes its basis, and nothing else does."""

from collections.abc import Callable

import pytest

from rota.coordination import membership, overrides
from rota.coordination.group_state import GroupState
from rota.coordination.parking import park
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Live
from rota.coordination.snapshot import read_basis, read_snapshot
from rota.coordination.token_base import adopt
from rota.errors import Undecodable
from rota.group.rebalance import rebalance
from simulator.memory_store import MemoryServer
from tests.claiming import claim_one
from tests.conformance.balanced_group import KEYS, Group
from tests.measured import make_measured

CHANGES: dict[str, Callable[[Group], object]] = {
    "cordon": lambda g: overrides.cordon(g.tree, "w1"),
    "drain": lambda g: overrides.drain(g.tree, "w1"),
    "capacity": lambda g: overrides.override(g.tree, "w1", capacity=3.0),
    "labels": lambda g: overrides.override(g.tree, "w1", labels={"disk": "ssd"}),
    "max_partitions": lambda g: overrides.override(g.tree, "w1", max_partitions=1),
    "pin": lambda g: overrides.pin(g.tree, "flights:AA", "w2"),
    "pause": lambda g: overrides.pause(g.tree),
    "assignor": lambda g: g.tree.found(assignor="hash"),
    "options": lambda g: g.tree.found(options={"x": 1}),
    "budget": lambda g: g.tree.found(budget=1),
    "cooldown": lambda g: g.tree.found(cooldown=1.0),
    "grace": lambda g: g.tree.found(grace=1.0),
    "keys": lambda g: g.tree.grow("flights", ["VX"]),
    "pipeline": lambda g: g.tree.grow("hotels", ["1"]),
    "requires": lambda g: g.tree.grow("flights", [], {"disk": "ssd"}),
    "join": lambda g: g.join("w3"),
    "leave": lambda g: g.agents["w2"].store.close(),
    "leaving": lambda g: membership.announce(g.agents["w2"], g.names["w2"], Live(leaving=True)),
    "unable": lambda g: membership.announce(g.agents["w2"], g.names["w2"], Live(unable="no executor")),
    "zone": lambda g: membership.announce(g.agents["w2"], g.names["w2"], Live(zone="a")),
    "restart": lambda g: (g.agents["w2"].store.close(), g.join("w2")),
    "unreadable live": lambda g: g.tree.store.set(g.tree.paths.live(g.names["w2"]), b"?", -1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_decision_reads_changes_the_basis(balanced: Group, change: str) -> None:
    assert not read_basis(balanced.tree).moved
    CHANGES[change](balanced)
    assert read_basis(balanced.tree).moved
    assert read_basis(GroupState(balanced.server.connect(), "default")).moved, "every reader sees the same"
    balanced.rebalance()
    assert not read_basis(balanced.tree).moved


NOTHING: dict[str, Callable[[Group], object]] = {
    "usage": lambda g: membership.announce(g.agents["w2"], g.names["w2"], Live(usage={"cpu": 0.9})),
    "checkpoint": lambda g: g.tree.put(g.tree.paths.checkpoint("flights:AA"), make_measured(5.0, 1000.0)),
    "claim": lambda g: claim_one(g.agents["w1"], g.names["w1"], "flights:AA", 0),
    "parked": lambda g: park(g.tree, "flights:AA", "bad"),
    "the same override": lambda g: overrides.uncordon(g.tree, "w1"),
    "the same settings": lambda g: g.tree.found(assignor="sticky", budget=None),
    "the same keys": lambda g: g.tree.grow("flights", KEYS),
    "token base": lambda g: adopt(g.tree, 1000),
}


@pytest.mark.parametrize("change", NOTHING)
def test_what_it_does_not_read_leaves_the_basis_alone(balanced: Group, change: str) -> None:
    NOTHING[change](balanced)
    assert not read_basis(balanced.tree).moved


def test_pins_requires_and_loads_reach_the_planner(balanced: Group) -> None:
    overrides.pin(balanced.tree, "flights:AA", "w2")
    balanced.tree.grow("flights", [], {"disk": "ssd"})
    for key, load in (("AA", 30.0), ("DL", 10.0)):
        said = make_measured(load, balanced.tree.store.now())
        balanced.tree.put(balanced.tree.paths.checkpoint(f"flights:{key}"), said)
    snapshot = read_snapshot(balanced.tree).snapshot
    parts = {p.id: p for p in (snapshot.partition(i) for i in range(4))}
    assert {p: v.pin for p, v in parts.items() if v.pin} == {"flights:AA": "w2"}
    assert {p: v.load for p, v in parts.items()} == {
        "flights:AA": 30.0,
        "flights:B6": 20.0,  # not measured: the mean of those measured
        "flights:DL": 10.0,
        "flights:UA": 20.0,
    }
    assert parts["flights:AA"].rate == 30.0
    assert parts["flights:B6"].rate is None
    assert all(p.requires == {"disk": "ssd"} for p in parts.values())
    overrides.pin(balanced.tree, "flights:AA", None)
    assert balanced.tree.overrides().pins == {}


def test_an_owner_is_the_target_or_where_that_is_gone_the_own_record(balanced: Group) -> None:
    """w2 was to take over from w1, and died before it could: w1, which still owns it, holds it."""
    mine = sorted(balanced.tree.target("w2").partitions)  # type: ignore[union-attr]
    claim_one(balanced.agents["w1"], balanced.names["w1"], mine[0], 0)
    claim_one(balanced.agents["w2"], balanced.names["w2"], mine[1], 0)
    balanced.agents["w2"].store.close()
    look = read_snapshot(balanced.tree)
    owners = {p: look.snapshot.name(int(look.snapshot.owner[i])) for i, p in enumerate(look.snapshot.partition_ids)}
    assert owners[mine[0]] == "w1"
    assert owners[mine[1]] == "w2"
    assert look.basis.left == ("w2",)
    assert dict(look.absences) == {"w2": 1000.0}


def test_an_absence_is_remembered_from_look_to_look() -> None:
    time = [100.0]
    group = Group(MemoryServer(clock=lambda: time[0]))
    group.agents["w2"].store.close()
    look = read_snapshot(group.tree)
    publish(
        group.tree,
        take_control(group.tree),
        Publication({w: t.partitions for w, t in look.targets.items()}, absences=look.absences, due=110.0),
    )
    time[0] = 105.0
    again = read_snapshot(group.tree)
    assert (again.now, dict(again.absences), again.snapshot.absences) == (105.0, {"w2": 100.0}, {"w2": 100.0})
    assert group.tree.head().record.due == 110.0
    group.join("w2")
    assert dict(read_snapshot(group.tree).absences) == {}


def test_an_unreadable_live_or_override_record_makes_a_worker_keep_what_it_holds(balanced: Group) -> None:
    balanced.tree.store.set(balanced.tree.paths.live(balanced.names["w2"]), b"?", -1)
    balanced.tree.store.create(balanced.tree.paths.worker("w1"), b"?")
    look = read_snapshot(balanced.tree)
    assert {w.id: w.state for w in look.snapshot.workers} == {"w1": "cordoned", "w2": "cordoned"}
    assert set(balanced.tree.unreadable) == {
        balanced.tree.paths.live(balanced.names["w2"]),
        balanced.tree.paths.worker("w1"),
    }
    balanced.tree.store.set(balanced.tree.paths.worker("w1"), b'{"v":1}', -1)
    read_snapshot(balanced.tree)
    assert set(balanced.tree.unreadable) == {balanced.tree.paths.live(balanced.names["w2"])}


@pytest.mark.parametrize("which", ["meta", "overrides", "controller", "head"])
def test_an_unreadable_record_of_the_group_stops_the_look(balanced: Group, which: str) -> None:
    path = getattr(balanced.tree.paths, which)
    balanced.tree.store.set(path, b"\xff", -1)
    for look in (read_basis, read_snapshot):
        with pytest.raises(Undecodable) as refused:
            look(balanced.tree)
        assert refused.value.path == path


def test_an_unreadable_pipeline_is_not_one_without_partitions(balanced: Group) -> None:
    path = balanced.tree.paths.pipeline("flights")
    balanced.tree.store.set(path, b"", -1)
    with pytest.raises(Undecodable):
        read_snapshot(balanced.tree)
    with pytest.raises(Undecodable):
        balanced.tree.grow("flights", ["AA"])


def test_an_unreadable_target_loses_no_partition(balanced: Group) -> None:
    mine = balanced.tree.target("w2").partitions  # type: ignore[union-attr]
    for partition in mine:
        claim_one(balanced.agents["w2"], balanced.names["w2"], partition, 0)
    balanced.tree.store.set(balanced.tree.paths.assign("w2"), b"?", -1)
    with pytest.raises(Undecodable):
        balanced.agents["w2"].target("w2")
    balanced.rebalance()
    assert balanced.agents["w2"].target("w2").partitions == mine  # type: ignore[union-attr]


def test_a_load_that_cannot_be_read_counts_as_not_measured(balanced: Group) -> None:
    tree = balanced.tree
    tree.put(tree.paths.checkpoint("flights:AA"), make_measured(60.0, tree.store.now()))
    tree.store.create(tree.paths.checkpoint("flights:B6"), b"?")
    done = rebalance(tree, "r")
    assert tree.paths.checkpoint("flights:B6") in done.unreadable
    assert done.plan.assignment.snapshot.load.tolist() == [60.0] * 4


def test_an_unreadable_own_record_or_checkpoint_is_left_out_and_named(balanced: Group) -> None:
    tree = balanced.tree
    tree.store.set(tree.paths.own("flights:AA"), b"?", -1)
    tree.store.create(tree.paths.checkpoint("flights:AA"), b"?")
    tree.store.create(f"{tree.paths.checkpoints}/foreign=node", b"?")
    assert "flights:AA" not in tree.owned()
    assert len(tree.owned()) == 3
    assert tree.checkpoints() == {}
    assert set(tree.unreadable) == {tree.paths.own("flights:AA"), tree.paths.checkpoint("flights:AA")}


def test_under_grace_a_worker_that_returns_finds_its_partitions_waiting() -> None:
    """w2 dies, others come and go meanwhile, it returns in time: no other worker took its partitions; later another does."""
    for late in (False, True):
        time = [100.0]
        group = Group(MemoryServer(clock=lambda time=time: time[0]))
        group.tree.found(grace=30.0)
        group.rebalance()
        mine = group.tree.target("w2").partitions  # type: ignore[union-attr]
        for partition in mine:
            claim_one(group.agents["w2"], group.names["w2"], partition, 0)
        group.agents["w2"].store.close()
        group.rebalance()
        assert group.held() == {"w1": 2, "w2": 0}
        assert group.tree.head().record.due == 130.0
        time[0] = 110.0
        group.join("w3")
        group.rebalance()
        taken = group.tree.targets()[1]["w1"].partitions | group.tree.targets()[1]["w3"].partitions
        assert not taken & mine
        time[0] = 131.0 if late else 120.0
        if not late:
            group.join("w2")
        group.rebalance()
        now = {w for w, t in group.tree.targets()[1].items() if t.partitions & mine}
        assert "w2" not in now if late else now == {"w2"}
        assert now
