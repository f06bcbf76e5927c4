"""A protocol in virtual time: the shipped agents over a ZooKeeper in memory, without runs.

An answer of ZooKeeper takes 10 ms on average, a session ends 10 s after its worker died, and an agent pauses as in its
process. The controller of `assigned` is the simulator's, which polls once a second. Dagster launches a run for each
decision, which takes some seconds more.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.tally import Change, Phase, Tally, judge
from rota.cli.worker import BUSY_PAUSE, IDLE_PAUSE
from simulator.actors import Parts, WorkerProcess
from simulator.simulation import Result, Simulation
from simulator.world import Happening, Timing, World
from simulator.worlds import make_partitions, make_team

WORKERS = 10
JOINS, DIES = f"w{WORKERS + 1:02}", "w03"
CALM = 90.0  # seconds in which the group settles
STILL = 300.0  # seconds in which nothing happens: idle, and once more with late workers
MINUTE = 60.0
LATE = 1.0  # seconds by which late workers poll later, on average
ROUND = 36.0  # seconds, the longest round of the published claims, which place one partition each


@dataclass(frozen=True, slots=True)
class Case:
    """A protocol and its options, by the name in the table."""

    name: str
    protocol: str
    options: Mapping[str, Any]

    @property
    def in_rounds(self) -> bool:
        """Whether a worker takes one partition a round."""
        return self.options.get("steal") == "published"


@dataclass(frozen=True, slots=True)
class Row:
    """One protocol at one size. `idle` and `late` are moves an hour while nothing changes; `asked` are reads and writes of a
    worker in an idle minute, and in the minute after the join. None: not measured."""

    name: str
    partitions: int
    fill: float
    join: Phase
    kill: Phase
    fewest: tuple[int, int]
    doubly: float
    idle: float | None
    late: float | None
    asked: tuple[float, ...]


class Stretch(Simulation):
    """A simulation whose workers may be late, whose polls may all be counted, and which calls `marks` at their times.

    `lateness`: the mean of the seconds by which a worker polls later."""

    def __init__(self, world: World, case: Case, seed: int = 1) -> None:
        self.tally = Tally(lambda: self.now, counting=False)
        self.lateness, self.doubly, self._passed = 0.0, 0.0, 0.0
        self._twice: set[tuple[str, WorkerProcess]] = set()
        self.tally.heard = self._hear
        parts = Parts(connected=self.tally.attach)
        super().__init__(world, seed=seed, options=case.options, parts=parts, protocol=case.protocol)
        self.checker.strict = True
        self.marks: dict[float, Callable[[], None]] = {}

    def is_quiet(self, worker: WorkerProcess) -> bool:
        """Return False if polls are counted, so that each poll happens."""
        return not self.tally.counting and super().is_quiet(worker)

    def rest(self, worker: WorkerProcess) -> float:
        """Return the pause of a worker's process plus its lateness."""
        pause = self.rng.uniform(0.9, 1.1) * worker.agent.find_pause(BUSY_PAUSE, IDLE_PAUSE)
        return pause + (self.rng.expovariate(1 / self.lateness) if self.lateness else 0.0)

    def run(self) -> Result:
        """See `Simulation.run`."""
        for when, call in self.marks.items():
            self.timeline.at(when, call)
        return super().run()

    def _hear(self, change: Change, before: str | None) -> None:
        """Count a partition as doubly owned if a live worker did not release it, until that worker's next poll."""
        if (
            change.owner
            and before
            and before != change.owner
            and (worker := self.worker_as(before))
            and worker.process.alive
        ):
            self._twice.add((change.partition, worker))

    def _after_event(self) -> None:
        super()._after_event()
        self.doubly += (self.now - self._passed) * len(self._twice)
        self._passed = self.now
        self._twice = {(p, w) for p, w in self._twice if w.process.alive and p in w.agent.state.held}


def make_world(name: str, partitions: int, happenings: tuple[Happening, ...], end: float, team: int = WORKERS) -> World:
    """A world without runs and reports."""
    later = frozenset(h.target for h in happenings if h.what == "join")
    return World(
        name, make_team(team + len(later)), make_partitions(partitions), happenings, end, 0.0,
        timing=Timing(backlog=1e9, report=1e9),
    )  # fmt: skip


def measure(case: Case, partitions: int) -> Row:
    """Play one protocol: ten workers claim, are idle, are idle and late, one joins, one is killed."""
    each = partitions / WORKERS
    filled = answer = CALM + (ROUND * (each + 3) if case.in_rounds else 0.0)
    late = filled + STILL
    join = late + STILL + MINUTE
    kill = join + answer
    end = kill + answer
    world = make_world(case.name, partitions, (Happening(join, "join", JOINS), Happening(kill, "crash", DIES)), end)
    sim, held = Stretch(world, case), 0
    tally, asked = sim.tally, list[tuple[int, int]]()

    def count(on: bool) -> None:
        tally.counting = on
        asked.append((tally.reads, tally.writes))

    def be_late(seconds: float) -> None:
        sim.lateness = seconds

    def weigh() -> None:
        nonlocal held
        held = sum(n for owner, n in sim.truth.held.items() if owner.startswith(f"{DIES}@"))

    sim.marks = {
        filled: lambda: count(True),
        filled + MINUTE: lambda: count(False),
        late: lambda: be_late(LATE),
        late + STILL: lambda: be_late(0.0),
        join - 0.001: lambda: count(True),
        join + MINUTE: lambda: count(False),
        kill - 0.001: weigh,
    }
    sim.run()
    ids = [p.id for p in world.partitions]
    spent = [[(b - a) for a, b in zip(*asked[i : i + 2], strict=True)] for i in (0, 2)]
    return Row(
        case.name,
        partitions,
        tally.find_last(0.0, filled),
        judge(tally.changes, ids, join, kill),
        judge(tally.changes, ids, kill, end, {DIES}),
        (partitions // (WORKERS + 1), held),
        sim.doubly,
        judge(tally.changes, ids, filled, late).moves * 3600 / STILL,
        judge(tally.changes, ids, late, late + STILL).moves * 3600 / STILL,
        (*(n / WORKERS for n in spent[0]), *(n / (WORKERS + 1) for n in spent[1])),
    )
