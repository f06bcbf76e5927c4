"""Workers that decide alone, as processes at a real ZooKeeper: the Event Processor's scenarios, the StatefulSet's slices.

Nobody publishes anything, and no Dagster runs."""

import signal
from collections import Counter
from collections.abc import Sequence

import pytest

from rota.coordination.alone import found_own_records
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.snapshot import read_basis
from rota.observed import find_unsettled
from rota.rebalance import rebalance
from tests.conformance.processes import Start
from tests.conformance.targets import owners
from tests.waiting import wait_until

FAST_CLOCK = (
    "-c",
    "import sys, time; shown = time.time; time.time = lambda: shown() + 600; time.time_ns = lambda: int(time.time() * 1e9); "
    "sys.argv = ['rota', 'worker', *sys.argv[1:]]; from rota.cli import main; main()",
)


class Group:
    """A group under a protocol, and how its partitions are spread."""

    def __init__(self, tree: GroupState, protocol: str, partitions: int, **options: str) -> None:
        self.tree = tree
        tree.found(protocol=protocol, options=options)
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        """So many partitions there are from now on."""
        self.tree.grow("s", [str(n) for n in range(partitions)])
        found_own_records(self.tree, self.tree.ids())

    def ends(self, *counts: int) -> None:
        """Waits until the live workers own so many each, and nothing is on its way."""

        def spread() -> bool:
            held = Counter({view.worker: 0 for view in self.tree.live()})
            held.update(owners(self.tree).values())
            settled = not find_unsettled(self.tree, read_basis(self.tree))
            return sorted(held.values(), reverse=True) == sorted(counts, reverse=True) and settled

        wait_until(spread, 30)

    def moved(self) -> Sequence[object]:
        """What moved since this was asked last."""
        moves = rebalance(self.tree, "test").plan.moves
        return [move for move in moves if move.from_worker is not None]


@pytest.fixture
def tree(zookeeper: EmbeddedZooKeeper, group: str) -> object:
    with connect(zookeeper.hosts) as store:
        yield GroupState(store, group)


def test_the_five_scenarios_of_the_event_processor(start: Start, tree: GroupState) -> None:
    """One of the workers has a clock that is ten minutes fast: that changes nothing."""
    group = Group(tree, "claim", 5)
    # 1: one processor alone takes all
    workers = {"w1": start("w1")}
    group.ends(5)
    # 2: five partitions, six processors: one stays idle
    workers["w2"] = start("w2", program=FAST_CLOCK)
    workers |= {name: start(name) for name in ("w3", "w4", "w5", "w6")}
    group.ends(1, 1, 1, 1, 1, 0)
    # 3: eighteen over three, then four
    for name in ("w4", "w5", "w6"):
        workers[name].signal(signal.SIGTERM)
    assert [workers[name].ends() for name in ("w4", "w5", "w6")] == [0, 0, 0]
    group.grow(18)
    group.ends(6, 6, 6)
    group.moved()
    workers["w7"] = start("w7")
    group.ends(5, 5, 4, 4)
    assert len(group.moved()) == 4, "the fewest"
    # 4: twenty over four, one dies
    group.grow(20)
    group.ends(5, 5, 5, 5)
    group.moved()
    workers["w1"].kill()
    group.ends(7, 7, 6)
    assert len(group.moved()) == 5, "what the dead one had"
    # 5: twenty over four, five partitions more
    workers["w8"] = start("w8")
    group.ends(5, 5, 5, 5)
    group.moved()
    group.grow(25)
    group.ends(7, 6, 6, 6)
    assert not group.moved(), "new ones are placed, nothing moves"
    assert not [line for worker in workers.values() for line in worker.said("reason=forced")]


def test_a_worker_that_is_started_before_dagster_waits_for_the_groups_protocol(start: Start, tree: GroupState) -> None:
    """It founded the group as `assigned`; then Dagster declared another protocol, and everything stood still."""
    worker = start("w1")
    assert "it waits until the group is founded" in worker.hears("event=no-group")
    group = Group(tree, "claim", 3)
    group.ends(3)
    wait_until(lambda: [one.record.protocol for one in tree.live() if one.record] == ["claim"], 20)


def test_a_groups_protocol_is_changed_step_by_step(start: Start, tree: GroupState) -> None:
    """Stop, change, start: from each protocol to another. Who is started too early is refused with one line, and joins when
    the others are gone; what they had is its, under greater tokens."""
    group = Group(tree, "claim", 4)
    workers = [start("w1"), start("w2")]
    group.ends(2, 2)
    for number, (protocol, was) in enumerate((("race", "claim"), ("ordinal", "race"), ("claim", "ordinal"))):
        tokens = {p: own.token for p, own in tree.owned().items()}
        there = ", ".join(sorted(view.worker for view in tree.live()))
        tree.found(protocol=protocol)
        early = start(f"early{number}")
        assert f"the group's protocol is {protocol}, and {there} still run {was}" in early.hears("event=refused")
        for worker in workers:
            worker.signal(signal.SIGTERM)
        assert not any(worker.ends() for worker in workers)
        group.ends(4)
        assert len(early.said("event=refused")) == 1
        assert f"protocol={protocol}" in early.hears("event=chose")
        assert all(own.token > tokens[p] for p, own in tree.owned().items())
        workers = [early]


def test_the_slices_of_a_stateful_set(start: Start, tree: GroupState) -> None:
    group = Group(tree, "ordinal", 10)
    pods = {name: start(name) for name in ("rota-0", "rota-1", "rota-2")}
    group.ends(3, 3, 4)
    assert {p for p, w in owners(tree).items() if w == "rota-2"} == {f"s:{n}" for n in range(6, 10)}
    pods["rota-2"].signal(signal.SIGTERM)
    assert pods["rota-2"].ends() == 0
    group.ends(5, 5)
    assert "takes" in pods["rota-0"].hears("event=chose protocol=ordinal holds=5")


def test_workers_that_count_differently_never_own_a_partition_together(start: Start, tree: GroupState) -> None:
    """rota-0 believes in two replicas and rota-1 in three: rota-0 keeps what it has, and nothing hops."""
    group = Group(tree, "ordinal", 6)
    first = start("rota-0", "--replicas", "2")
    wait_until(lambda: len(owners(tree)) == 3, 20)
    second = start("rota-1", "--replicas", "3")
    wait_until(lambda: len(owners(tree)) == 4, 20)
    assert Counter(owners(tree).values()) == {"rota-0": 3, "rota-1": 1}
    assert not first.said("event=released") + second.said("event=released")
    assert group.tree.meta().protocol == "ordinal"
