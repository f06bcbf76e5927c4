"""The protocols on a real ZooKeeper and by the wall clock: the shipped agents, a thread and a session each, in one process.

Law: while a join or a death is measured, no other group runs. For the idle figures all groups run side by side, each on its
own znodes, for a minute, and for another minute with late workers.

A worker dies by a cut of its connection while its thread ends: no client closes its session, and ZooKeeper ends the session
`SESSION` seconds later. Not measured: separate processes and machines, runs, and Dagster, which launches a run for each
decision of `assigned`; here a thread decides once a second.
"""

import random
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from types import TracebackType
from typing import Self

from benchmarks.hopping import DELAY, LEASE, RACES, Hops, count_hops, make_options
from benchmarks.port import Port
from benchmarks.tally import Tally, count_taken, judge
from benchmarks.virtual import DIES, JOINS, LATE, WORKERS, Case, Row
from rota.cli.worker import BUSY_PAUSE, IDLE_PAUSE
from rota.coordination.alone import found_own_records
from rota.coordination.change_signal import ChangeSignal
from rota.coordination.client import ZooKeeperStore, connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.coordination.snapshot import read_basis
from rota.core.protocols.known_protocols import ASSIGNED
from rota.errors import CoordinationError
from rota.group.agent import Agent
from rota.group.rebalance import rebalance
from rota.ids import key_of
from simulator.worlds import make_partitions, make_team

SESSION = 6.0  # seconds
LONG_SESSION = 30.0  # if no worker dies
CALM = 2.0  # seconds without a change, after which the group has settled
LONG_CALM = {"claim, published": 3.0, "race, announced": 6.0}  # longer than a round, or a grab, lasts
PATIENCE = 60.0  # seconds
HOPS = {"race, fastest": 25.0}  # seconds of observation of a protocol that never settles: longer than its lease time
STILL = 60.0  # seconds in which nothing happens: idle, and once more with late workers
SCALE = 5.0  # the lease times of the race are divided by this; its delay is not
HURRIED: dict[str, dict[str, object]] = {
    "claim, published": {"steal": "published", "interval": 1.0},
    "race, fastest": {"decide": "fastest", "lease": 20.0},
}


class Hand(threading.Thread):
    """A worker: an agent with its own session. `lateness`: the mean of the seconds added to its pauses."""

    def __init__(self, group: "RealGroup", worker: str, hosts: str) -> None:
        super().__init__(name=worker, daemon=True)
        self.port = Port(int(hosts.rpartition(":")[2]))
        self.store: ZooKeeperStore = connect(self.port.hosts, group.session)
        group.tally.attach(self.store)
        self.agent = Agent(
            GroupState(self.store, group.name), worker, Live(), lambda *_, **__: None,
            max_shutdown=120.0, session_timeout=self.store.negotiated,
        )  # fmt: skip
        self.lateness, self.rng = 0.0, random.Random(worker)
        self.ended, self.changed = threading.Event(), ChangeSignal()

    def run(self) -> None:
        """Run cycles until it is ended, as the process of a worker does."""
        while not self.ended.is_set():
            if not self.lateness:
                with suppress(CoordinationError):
                    self.changed.listen(self.store, self.agent.paths.assign(self.name))
            for _ in self.agent.cycle():
                if self.ended.is_set():
                    return
            late = self.rng.expovariate(1 / self.lateness) if self.lateness else 0.0
            self.changed.wait(self.agent.find_pause(BUSY_PAUSE, IDLE_PAUSE) + late)

    def die(self) -> None:
        """End without another step and without closing the session."""
        self.ended.set()
        self.changed.set()
        self.port.cut()

    def close(self) -> None:
        """Ends it in order."""
        self.ended.set()
        self.changed.set()
        self.join(5)
        self.store.close()
        self.port.cut()


class RealGroup:
    """A group of workers on a server, and what is measured of them."""

    def __init__(self, hosts: str, case: Case, partitions: int, session: float) -> None:
        case = Case(case.name, case.protocol, HURRIED.get(case.name, case.options))
        self.hosts, self.case, self.session = hosts, case, session
        self.name = f"{case.name.replace(', ', '-')}-{partitions}-{time.monotonic_ns()}"
        self.tally = Tally(time.monotonic, counting=False)
        self.hands: dict[str, Hand] = {}
        self.dead: set[str] = set()
        self.store = connect(hosts, 30.0)
        self.tree = GroupState(self.store, self.name)
        made = make_partitions(partitions)
        self.tree.found(protocol=case.protocol, options=case.options)
        self.tree.grow(made[0].source, [key_of(p.id) for p in made])
        self.ids = self.tree.ids()
        self._over = threading.Event()
        if case.protocol != ASSIGNED:
            found_own_records(self.tree, self.ids)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        closers = [threading.Thread(target=hand.close) for hand in self.hands.values()]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
        self.store.close()

    def start(self, *workers: str) -> float:
        """Start these workers at once, after all are connected. Return the time."""
        fresh = {worker: Hand(self, worker, self.hosts) for worker in workers}
        self.hands |= fresh
        began = time.monotonic()
        for hand in fresh.values():
            hand.start()
        return began

    def control(self) -> None:
        """Decides once a second, where a controller does."""
        if self.case.protocol == ASSIGNED:
            self.wait_until(lambda: len(self.tree.live()) == len(self.hands))
            threading.Thread(target=self._control, daemon=True).start()

    def _control(self) -> None:
        with connect(self.hosts, 30.0) as store:
            tree = GroupState(store, self.name)
            while not self._over.is_set():
                if read_basis(tree).moved:
                    rebalance(tree, "benchmark")
                self._over.wait(1.0)

    def find_owners(self) -> dict[str, str]:
        """Partition -> the living worker that was the last to claim it."""
        owners = {p: change.worker for p, change in tuple(self.tally.newest.items())}
        return {p: worker for p, worker in owners.items() if worker and worker not in self.dead}

    def be_late(self, seconds: float) -> None:
        """Make every worker poll later by this mean."""
        for hand in self.hands.values():
            hand.lateness = seconds

    def settle(self, since: float) -> float:
        """Wait until every partition has a live owner and no owner changed for a while. Return the time of the last change.
        A protocol that never settles is observed for its time in `HOPS`."""
        calm = LONG_CALM.get(self.case.name, CALM)
        self.wait_until(
            lambda: (
                time.monotonic() - max(since, self.tally.find_last(since, time.monotonic())) > calm
                and len(self.find_owners()) == len(self.ids)
            )
        )
        return time.monotonic()

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Poll until `done()` is true, for at most `PATIENCE` seconds."""
        until = time.monotonic() + HOPS.get(self.case.name, PATIENCE)
        while not done() and time.monotonic() < until:
            time.sleep(0.05)


@contextmanager
def serve() -> Iterator[str]:
    """A ZooKeeper of its own; its address."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedZooKeeper(folder, heap="512m") as zookeeper:
        yield zookeeper.hosts


def measure(hosts: str, case: Case, partitions: int) -> Row:
    """Ten workers fill, one joins, one dies."""
    with RealGroup(hosts, case, partitions, SESSION) as group:
        began = group.start(*(one.id for one in make_team(WORKERS)))
        group.control()
        filled = group.settle(began)
        fill = group.tally.find_last(began, filled) - began
        group.tally.counting = True
        join = group.start(JOINS)
        joined = group.settle(join + 1.0)
        group.tally.counting = False
        held = sum(worker == DIES for worker in group.find_owners().values())
        group.dead.add(DIES)
        kill = time.monotonic()
        group.hands[DIES].die()
        end = group.settle(kill)
        minutes = (joined - join) / 60 * (WORKERS + 1)
        return Row(
            case.name,
            partitions,
            fill,
            judge(group.tally.changes, group.ids, join, joined),
            judge(group.tally.changes, group.ids, kill, end, {DIES}),
            (partitions // (WORKERS + 1), held),
            float(count_taken(group.tally.changes, {DIES})),
            None,
            None,
            (group.tally.reads / minutes, group.tally.writes / minutes),
        )


@dataclass(frozen=True, slots=True)
class Quiet:
    """The idle figures of one group: moves an hour, idle and with late workers, and the reads and writes of one worker in an
    idle minute."""

    idle: float
    late: float
    reads: float
    writes: float


def watch_quiet(hosts: str, cases: Collection[tuple[Case, int]]) -> dict[tuple[str, int], Quiet]:
    """Run all of them side by side for twice `STILL` seconds. Return their figures by name and number of partitions."""
    with ExitStack() as stack:
        groups: list[RealGroup] = []
        for case, partitions in cases:
            groups.append(stack.enter_context(RealGroup(hosts, case, partitions, LONG_SESSION)))
            groups[-1].start(*(one.id for one in make_team(WORKERS)))
            groups[-1].control()
        for group in groups:
            group.settle(time.monotonic())
        return {(group.case.name, len(group.ids)): found for group, found in _watch_each(groups)}


def _watch_each(groups: Sequence[RealGroup]) -> Iterator[tuple[RealGroup, Quiet]]:
    minutes = STILL / 60 * WORKERS
    began = time.monotonic()
    for group in groups:
        group.tally.counting = True
    time.sleep(STILL)
    for group in groups:
        group.tally.counting = False
        group.be_late(LATE)
    between = time.monotonic()
    time.sleep(STILL)
    ended = time.monotonic()
    for group in groups:
        tally = group.tally
        idle, late = (
            judge(tally.changes, group.ids, start, stop).moves * 3600 / (stop - start)
            for start, stop in ((began, between), (between, ended))
        )
        yield group, Quiet(idle, late, tally.reads / minutes, tally.writes / minutes)


def race(hosts: str, lateness: Sequence[float] = (0.0, 5.0), partitions: int = 100, periods: int = 2) -> list[Hops]:
    """Run the race by both rules and at each lateness, side by side, with lease times divided by `SCALE`."""
    lease = LEASE / SCALE
    with ExitStack() as stack:
        groups: dict[tuple[str, float], RealGroup] = {}
        for decide, late in product(RACES, lateness):
            case = Case(f"race, {decide}, {late:g}", "race", make_options("announced", lease))
            group = groups[decide, late] = stack.enter_context(RealGroup(hosts, case, partitions, LONG_SESSION))
            group.start(*(one.id for one in make_team(WORKERS)))
        for group in groups.values():
            group.settle(time.monotonic())
        for (decide, late), group in groups.items():
            group.tree.found(options=make_options(decide, lease))
            group.be_late(late * DELAY / 2)
        start = time.monotonic() + lease / 2
        time.sleep(max(0.0, start + periods * lease - time.monotonic()))
        return [
            Hops(decide, late, *count_hops(group.tally.changes, group.ids, start, periods, lease))
            for (decide, late), group in groups.items()
        ]
