"""A worker that joins beside others awaits its first run, and owns nothing until the run is ready."""

import math

import pytest

from rota.cli.observer import GroupObserver
from rota.cli.status import read_status
from rota.coordination import membership
from rota.coordination.alone import found_own_records
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live, Slot, Slots, encode
from rota.coordination.snapshot import read_snapshot
from rota.group import first_run
from rota.group.agent import Agent
from rota.group.chooser import Chooser
from rota.group.rebalance import rebalance
from tests.conformance.worlds import World

PARTITIONS = ("p:a", "p:b", "p:c", "p:d")


class Newcomer:
    """w1 owns all partitions of the group, and a run of it lives if it is `served`. w2 has joined."""

    def __init__(
        self, world: World, group: str, served: bool = True, wants: bool = True, protocol: str = "assigned"
    ) -> None:
        self.now, self.said = 0.0, list[str]()
        self.tree = GroupState(world.connect(), group)
        self.tree.found(protocol=protocol)
        self.tree.grow("p", ("a", "b", "c", "d"))
        self.w1 = self.start(GroupState(world.connect(), group), "w1")
        self.cycle(self.w1)
        rebalance(self.tree, "r1")
        self.cycle(self.w1)
        if served:
            membership.create_liveness_node(self.tree, "r1")
        self.other = GroupState(world.connect(), group)
        self.w2 = self.start(self.other, "w2", awaits_run=wants)
        self.cycle(self.w2)

    def start(self, tree: GroupState, worker: str, **more: bool) -> Agent:
        return Agent(
            tree, worker, Live(**more), lambda word, /, **facts: self.said.append(f"{worker} {word} {facts.get('reason')}"),
            max_shutdown=60, session_timeout=10, clock=lambda: self.now,
        )  # fmt: skip

    def cycle(self, *agents: Agent) -> None:
        for agent in agents:
            for _ in agent.cycle():
                pass

    def balance(self) -> tuple[int, int]:
        """Rebalance, let both agents follow, and return how many partitions each worker owns."""
        rebalance(self.tree, "r2")
        for _ in range(3):
            self.cycle(self.w1, self.w2)
        owners = [own.incarnation for own in self.tree.owned(PARTITIONS).values()]
        return owners.count(self.w1.state.incarnation or ""), owners.count(self.w2.state.incarnation or "")

    def has_room(self) -> bool:
        """Whether the planner has room for partitions on w2."""
        basis = read_snapshot(self.tree).basis
        here, starting = ("w2" in {one.id for one in of} for of in (basis.workers, basis.starting))
        assert here != starting
        return here


def test_the_former_owner_keeps_its_partitions_until_the_first_run_is_ready(world: World, group: str) -> None:
    here = Newcomer(world, group)
    assert here.balance() == (4, 0)
    assert not here.has_room()
    status = read_status(here.tree, GroupObserver(here.tree).observe())
    assert {one["id"]: one["state"] for one in status["workers"]} == {"w1": "active", "w2": "starting"}
    membership.register_run(here.tree, "r9", here.w1.state.incarnation or "", ())
    assert here.balance() == (4, 0), "a run of another worker"
    membership.register_run(here.other, "r2", here.w2.state.incarnation or "", ())
    here.cycle(here.w2)
    assert "w2 able its first run is ready" in here.said
    assert here.balance() == (2, 2)
    (last,) = here.tree.epochs(last=1)
    assert (last.joined, last.moved) == (("w2",), 2), "one epoch, not two"


@pytest.mark.parametrize(("longest", "owned"), [(first_run.LONGEST, (2, 2)), (math.inf, (4, 0))], ids=["", "ablation"])
def test_without_a_run_it_waits_no_longer_than_the_limit(
    world: World, group: str, monkeypatch: pytest.MonkeyPatch, longest: float, owned: tuple[int, int]
) -> None:
    """Ablation: without the limit, a worker whose pipelines are switched off never gets a partition."""
    monkeypatch.setattr(first_run, "LONGEST", longest)
    here = Newcomer(world, group)
    here.now += first_run.LONGEST - 1 if longest < math.inf else 1.0
    assert here.balance() == (4, 0)
    here.now += 1.0
    here.cycle(here.w2)
    assert here.balance() == owned


@pytest.mark.parametrize(("served", "wants"), [(False, True), (True, False)])
def test_it_waits_only_if_runs_consume_and_it_was_started_so(
    world: World, group: str, served: bool, wants: bool
) -> None:
    assert Newcomer(world, group, served, wants).balance() == (2, 2)


def test_a_worker_that_decides_alone_does_not_wait(world: World, group: str) -> None:
    here = Newcomer(world, group, protocol="claim")
    assert here.has_room()


@pytest.mark.parametrize("last", ["leaves", "is gone", "is unable"])
def test_partitions_without_another_owner_do_not_wait(world: World, group: str, last: str) -> None:
    here = Newcomer(world, group)
    assert here.w1.state.incarnation is not None
    if last == "leaves":
        here.w1.leave()
    elif last == "is gone":
        membership.leave(here.tree, here.w1.state.incarnation)
    else:
        here.w1.publish(unable="no executor")
    here.cycle(here.w2)
    assert "w2 able no other worker has room" in here.said
    assert here.has_room()


def test_a_lost_announcement_is_repeated(world: World, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Newcomer(world, group)
    membership.register_run(here.other, "r2", here.w2.state.incarnation or "", ())
    with monkeypatch.context() as patched:
        patched.setattr(here.w2, "publish", lambda **_: False)
        here.cycle(here.w2)
    assert not here.has_room()
    here.cycle(here.w2)
    assert here.has_room()


def test_an_incarnation_that_joins_again_awaits_a_run_of_its_own(world: World, group: str) -> None:
    here = Newcomer(world, group)
    membership.register_run(here.tree, "r2", here.w2.state.incarnation or "", ())
    here.cycle(here.w2)
    assert here.has_room()
    world.expire(here.other.store)
    here.cycle(here.w2, here.w2, here.w2)
    assert not here.has_room()


def test_a_worker_looks_again_soon_while_its_target_is_being_published(world: World, group: str) -> None:
    """The controller writes the targets before it moves the head. A dead controller does not keep the worker busy."""
    here = Newcomer(world, group, served=False)
    rebalance(here.tree, "r2")
    here.cycle(here.w1, here.w2)
    here.cycle(here.w1, here.w2)
    assert here.w2.find_pause(0.25, 1.0) == 1.0
    head = here.tree.head().record
    slots = here.tree.assigns()["w2"].record.slots
    ahead = (*slots, Slot(epoch=head.epoch + 1, partitions=frozenset(PARTITIONS)))
    here.tree.store.set(here.tree.paths.assign("w2"), encode(Slots(slots=ahead)), -1)
    here.cycle(here.w2)
    assert here.w2.find_pause(0.25, 1.0) < 0.1
    here.now += 2.0
    here.cycle(here.w2)
    assert here.w2.find_pause(0.25, 1.0) == 0.25


def share_alone(world: World, group: str) -> Newcomer:
    """Two workers without a controller that share the partitions, and have nothing to do."""
    here = Newcomer(world, group, protocol="claim")
    found_own_records(here.tree, PARTITIONS)
    for _ in range(9):
        here.now += 60.0
        here.cycle(here.w1, here.w2)
    assert here.w2.find_pause(0.25, 1.0) == 1.0
    return here


@pytest.mark.parametrize(("notices", "pause"), [(True, 0.02), (False, 1.0)], ids=["", "ablation"])
def test_a_worker_that_decides_alone_looks_again_at_once_after_another_died(
    world: World, group: str, monkeypatch: pytest.MonkeyPatch, notices: bool, pause: float
) -> None:
    """A round chooses the target before it reads the live workers. Ablation: the worker claims a second later."""
    if not notices:
        monkeypatch.setattr(Chooser, "has_missed", lambda *_: False)
    here = share_alone(world, group)
    world.expire(here.w1.store)
    here.cycle(here.w2)
    assert here.w2.find_pause(0.25, 1.0) == pause
    here.cycle(here.w2)
    owners = {own.incarnation for own in here.tree.owned(PARTITIONS).values()}
    assert owners == {here.w2.state.incarnation}


def test_an_outage_right_after_a_death_keeps_no_worker_busy(
    world: World, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = share_alone(world, group)
    world.expire(here.w1.store)
    here.cycle(here.w2)
    monkeypatch.setattr(here.w2.store, "active", lambda: False)
    here.cycle(here.w2)
    assert here.w2.find_pause(0.25, 1.0) >= 0.25
