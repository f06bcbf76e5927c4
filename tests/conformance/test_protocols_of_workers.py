"""Workers that decide alone, as processes at a real ZooKeeper: the Event Processor's scenarios, and a change of protocol.

No controller publishes, and no Dagster runs. tests/core/test_protocols.py has the laws of each protocol.
"""

import signal
from collections import Counter
from collections.abc import Sequence

import pytest

from rota.coordination.alone import found_own_records
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.snapshot import read_basis
from rota.group.observed import find_unsettled
from rota.group.rebalance import rebalance
from tests.conformance.processes import Start, Worker
from tests.conformance.targets import owners
from tests.waiting import wait_until

FAST_CLOCK = (
    "-c",
    "import sys, time; shown = time.time; time.time = lambda: shown() + 600; time.time_ns = lambda: int(time.time() * 1e9); "
    "sys.argv = ['rota', 'worker', *sys.argv[1:]]; from rota.cli import main; main()",
)


class Group:
    """A group under a protocol, and how its partitions are spread."""

    def __init__(self, tree: GroupState, protocol: str, partitions: int, **options: float) -> None:
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

        wait_until(spread)

    def moved(self) -> Sequence[object]:
        """What moved since this was asked last."""
        moves = rebalance(self.tree, "test").plan.moves
        return [move for move in moves if move.from_worker is not None]


@pytest.fixture
def tree(zookeeper: EmbeddedZooKeeper, group: str) -> object:
    with connect(zookeeper.hosts) as store:
        yield GroupState(store, group)


Workers = dict[str, Worker]


def see_one_processor_take_all(group: Group, workers: Workers, start: Start) -> None:
    """Five partitions."""
    workers["w1"] = start("w1")
    group.ends(5)


def see_one_of_six_processors_stay_idle(group: Group, workers: Workers, start: Start) -> None:
    """Five partitions, six processors; the clock of one is ten minutes fast."""
    workers["w2"] = start("w2", program=FAST_CLOCK)
    workers |= {name: start(name) for name in ("w3", "w4", "w5", "w6")}
    group.ends(1, 1, 1, 1, 1, 0)


def see_a_fourth_processor_join_three(group: Group, workers: Workers, start: Start) -> None:
    """Eighteen partitions over three, then four."""
    for name in ("w4", "w5", "w6"):
        workers[name].signal(signal.SIGTERM)
    assert [workers[name].ends() for name in ("w4", "w5", "w6")] == [0, 0, 0]
    group.grow(18)
    group.ends(6, 6, 6)
    group.moved()
    workers["w7"] = start("w7")
    group.ends(5, 5, 4, 4)
    assert len(group.moved()) == 4, "the fewest"


def see_one_of_four_processors_die(group: Group, workers: Workers) -> None:
    """Twenty partitions over four."""
    group.grow(20)
    group.ends(5, 5, 5, 5)
    group.moved()
    workers["w1"].kill()
    group.ends(7, 7, 6)
    assert len(group.moved()) == 5, "what the dead one had"


def see_five_partitions_come(group: Group, workers: Workers, start: Start) -> None:
    """Twenty partitions over four, then twenty-five."""
    workers["w8"] = start("w8")
    group.ends(5, 5, 5, 5)
    group.moved()
    group.grow(25)
    group.ends(7, 6, 6, 6)
    assert not group.moved(), "new ones are placed, nothing moves"


def test_the_five_scenarios_of_the_event_processor(start: Start, tree: GroupState) -> None:
    """The clock of one worker is ten minutes fast all the time: that changes nothing."""
    group, workers = Group(tree, "claim", 5), Workers()
    see_one_processor_take_all(group, workers, start)
    see_one_of_six_processors_stay_idle(group, workers, start)
    see_a_fourth_processor_join_three(group, workers, start)
    see_one_of_four_processors_die(group, workers)
    see_five_partitions_come(group, workers, start)
    assert not [line for worker in workers.values() for line in worker.said("reason=forced")]


def test_a_worker_that_is_started_before_dagster_waits_for_the_groups_protocol(start: Start, tree: GroupState) -> None:
    """It founded the group as `assigned`; then Dagster declared another protocol, and no partition had an owner."""
    worker = start("w1")
    assert "it waits until the group is founded" in worker.hears("event=no-group")
    group = Group(tree, "claim", 3)
    group.ends(3)
    wait_until(lambda: [one.record.protocol for one in tree.live() if one.record] == ["claim"])


def test_a_groups_protocol_is_changed_step_by_step(start: Start, tree: GroupState) -> None:
    """Stop, change, start: from each protocol to another. A worker that starts too early is refused with one line, and joins
    when the others are gone. It gets their partitions, under greater tokens."""
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
