"""A worker that decides alone repairs its own target, and one that cannot be read stops no other worker."""

import pytest

from rota.coordination import repair
from rota.coordination.alone import read_grabs
from rota.coordination.group_state import GroupState
from rota.coordination.records import Meta
from rota.coordination.snapshot import read_basis
from rota.group.agent import Agent
from rota.group.observed import find_unsettled
from simulator.memory_store import MemoryServer
from tests.sim.alone_group import Said, found_group, rounds, start

PROTOCOLS = ("claim", "race", "ordinal")


def settle(protocol: str) -> tuple[MemoryServer, GroupState, dict[str, Agent]]:
    """Three workers own three of nine partitions each."""
    server, tree = found_group(protocol, 9)
    agents = {name: start(server, name) for name in ("w-1", "w-2", "w-3")}
    for _ in range(12):
        for agent in agents.values():
            rounds(agent, 10)
    assert count(tree) == {"w-1": 3, "w-2": 3, "w-3": 3}
    return server, tree, agents


def count(tree: GroupState) -> dict[str, int]:
    """Live worker -> how many it owns."""
    held = [view.incarnation for view in tree.owned().values()]
    return {live.worker: held.count(live.incarnation) for live in tree.live()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_writes_its_own_unreadable_target_anew_and_keeps_what_it_owns(protocol: str) -> None:
    _, tree, agents = settle(protocol)
    before = {p: view.version for p, view in tree.owned().items()}
    tree.store.set(tree.paths.assign("w-1"), b"\xff", -1)
    rounds(agents["w-1"], 60)
    mended = tree.target("w-1")
    assert mended is not None
    assert len(mended.partitions) == 3
    for agent in agents.values():
        rounds(agent, 20)
    assert {p: view.version for p, view in tree.owned().items()} == before, "nothing changed hands"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_target_that_cannot_be_read_stops_no_other_worker(protocol: str) -> None:
    """The group stalled while that worker lived: what others lost had no owner, and its next life stopped it again."""
    _, tree, agents = settle(protocol)
    tree.store.set(tree.paths.assign("w-1"), b"\xff", -1)  # say, by a newer rota, which this one cannot read
    agents["w-2"].store.close()
    for _ in range(12):
        rounds(agents["w-3"], 60)
    assert count(tree) == {"w-1": 3, "w-3": 6}, "no worker takes what w-1 owns"
    assert not find_unsettled(tree, read_basis(tree))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_own_record_that_cannot_be_read_leaves_the_others_settled(protocol: str) -> None:
    """One partition changed hands for ever, so that no further epoch was noted."""
    _, tree, _ = settle(protocol)
    tree.store.set(tree.paths.own("p:0"), b"\xff", -1)
    assert not find_unsettled(tree, read_basis(tree))


def test_a_grab_that_cannot_be_read_is_its_makers_by_the_session() -> None:
    """Its partition had no owner for as long as that worker lived, and its maker could not take it back."""
    _, tree, agents = settle("claim")
    maker = agents["w-1"].state.incarnation
    path = tree.paths.grab("p:0")
    agents["w-1"].store.create(path, b"\xff", ephemeral=True)
    assert read_grabs(tree) == {"p:0": maker}
    for agent in agents.values():
        rounds(agent, 60)
    assert tree.store.get(path) is None, "it asks for it no more"
    assert count(tree) == {"w-1": 3, "w-2": 3, "w-3": 3}


@pytest.mark.parametrize("protocol", ["assigned", *PROTOCOLS])
def test_what_removing_a_target_does_is_reported_by_protocol(protocol: str) -> None:
    _, tree = found_group(protocol)
    path = tree.paths.assign("w-1")
    tree.store.create(path, b"\xff")
    (found,) = repair.find_unreadable(tree)
    assert ("next rebalance" in found.instead) == (protocol == "assigned")
    if not found.instead:
        assert repair.repair(tree, [path]) == (path,)
        assert tree.store.get(path) is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_options_that_a_worker_does_not_know_end_no_worker(protocol: str) -> None:
    """A newer Dagster wrote an option, and all workers of the group ended at once."""
    server, tree, agents = settle(protocol)
    tree.update(tree.paths.meta, Meta, lambda now: (now or Meta(id="a")).model_copy(update={"options": {"new": 1}}))
    said: Said = []
    agents["w-4"] = start(server, "w-4", said)
    agents["w-2"].store.close()
    for _ in range(12):
        for agent in agents.values():
            rounds(agent, 20)
    assert count(tree) == {"w-1": 3, "w-3": 3, "w-4": 3}
    notices = [str(facts["reason"]) for word, facts in said if word == "notice"]
    assert len(notices) == 1, "reported once"
    assert "unknown option 'new'" in notices[0]
