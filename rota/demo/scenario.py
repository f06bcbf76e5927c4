"""The demo step by step: start, land files, cause faults, wait until each landed file is in the table.

Law: it only lands files, starts processes, sends signals and pins a partition. The group does all other work.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rota.coordination import overrides
from rota.demo.faults import (
    JoinFigures,
    KilledTooLate,
    KillFigures,
    ZombieFigures,
    freeze_run,
    kill_worker,
    wait_for_join,
    wake_run,
)
from rota.demo.observer import GIVEN_UP, Observer, RunSeen
from rota.local.flights import MONTHS, FlightsFolder
from rota.local.flights_topic import FlightsTopic
from rota.local.page import DagsterPage
from rota.local.stack import Stack

Say = Callable[[str], None]


@dataclass(slots=True)
class Scenario:
    """One run of the demo. The figures are made from its fields; `stages` are seconds."""

    stack: Stack
    landing: FlightsFolder | FlightsTopic
    observer: Observer
    page: DagsterPage
    say: Say
    killed: KillFigures | None = None
    joined: JoinFigures | None = None
    zombie: ZombieFigures | None = None
    stages: dict[str, float] = field(default_factory=dict)
    landed: int = 0
    month: int = 0
    _mark: float = field(default_factory=time.monotonic)

    def start(self, workers: int) -> None:
        """Land January, and wait until every worker is live, Dagster's page answers, and January is in the table."""
        self.land(1)
        names = {f"w{i + 1}" for i in range(workers)}
        seen: set[str] = set()

        def all_live() -> bool:
            for worker in sorted(self.observer.workers() - seen):
                seen.add(worker)
                self.say(f"{worker} is live, its Spark is up")
            return names <= seen

        self.observer.wait_until(all_live, GIVEN_UP, f"the workers {' '.join(sorted(names))}")
        self.observer.wait_until(self.page.answers, GIVEN_UP, f"Dagster's page at {self.page.address}")
        self.say(f"Dagster's page is at {self.page.address}")
        self.note_stage("up")
        self.wait_consumed("January", GIVEN_UP)
        self.note_stage("first batches")

    def cause_faults(self) -> None:
        """Kill a worker; start another; freeze a run, pin one of its partitions to another worker, and wake the run."""
        self.land(2, 3, 4)
        self.killed = k = self.kill_in_batch()
        self.say(f"{k.worker} killed in the middle of a batch; {k.taken_by} committed for it after {k.seconds:.1f} s")
        self.note_stage("kill")
        joiner = self.add_worker()
        self.land(5, 6, 7)
        self.joined = j = wait_for_join(self.observer, joiner)
        self.say(f"{joiner} committed {j.seconds:.1f} s after it was live")
        self.note_stage("join")
        frozen = freeze_run(self.observer, self.page, self.land_next_month)
        partition, taker = self.pin_elsewhere(frozen.run)
        self.say(f"a run of {frozen.run.worker} frozen in the middle of its batch; {partition} pinned to {taker}")
        self.zombie = z = wake_run(self.observer, frozen, partition)
        self.say(f"woken after {z.woken - z.at:.1f} s, overtaken by {z.overtaken_by}: its write is refused")
        self.note_stage("zombie")

    def kill_in_batch(self) -> KillFigures:
        """Kill a worker in the middle of a batch. If the batch was faster than the kill, start another worker, land another
        month, and try again. Raises KilledTooLate after the last month."""
        while True:
            try:
                return kill_worker(self.stack, self.observer, self.page)
            except KilledTooLate:
                if self.month == MONTHS[-1]:
                    raise
            self.say("a worker was killed too late for its batch: another joins for the next try")
            self.add_worker()
            self.land(self.month + 1)

    def add_worker(self) -> str:
        """Start one more worker, wait until it owns partitions, and return its name."""
        joiner = f"w{len(self.observer.live) + 1}"
        self.stack.start_worker(joiner)
        self.observer.wait_until(lambda: self.observer.holdings()[joiner], GIVEN_UP, f"{joiner} to get its share")
        self.say(f"{joiner} joins and gets {self.observer.holdings()[joiner]} partitions")
        return joiner

    def land_next_month(self) -> None:
        """Land one more month if all earlier months are in the table."""
        if self.observer.count_consumed() >= self.landed and (left := [m for m in MONTHS if m > self.month]):
            self.land(left[0])

    def pin_elsewhere(self, run: RunSeen) -> tuple[str, str]:
        """Pin a partition of the run to another worker, as `rota pin` does. Return the partition and that worker."""
        counts = self.observer.holdings()
        taker = min((w for w in self.observer.workers() if w != run.worker), key=lambda w: (counts.get(w, 0), w))
        overrides.pin(self.observer.tree, run.partitions[0], taker)
        return run.partitions[0], taker

    def finish(self) -> None:
        """Land the rest of the year, and wait until it is in the table and no run is left."""
        self.land(*MONTHS)
        self.wait_consumed("the year", GIVEN_UP)
        self.observer.wait_until(lambda: not self.observer.runs, GIVEN_UP, "the last runs to end")
        self.note_stage("rest of the year")

    def land(self, *months: int) -> None:
        """Make the files of the months visible."""
        fresh = self.landing.land(months)
        self.month = max(self.month, *months)
        self.landed += fresh.offsets
        if fresh.offsets:
            self.say(fresh.describe())

    def wait_consumed(self, what: str, timeout: float) -> None:
        """Wait until the table's log covers each landed offset. Raises EnvironmentFailed after `timeout` seconds."""
        self.observer.wait_until(
            lambda: self.observer.count_consumed() >= self.landed, timeout, f"{what} to be consumed"
        )
        self.say(f"{what} is in the table: {self.observer.count_consumed()} {self.landing.unit}")

    def note_stage(self, stage: str) -> None:
        """Store the seconds since the last stage ended."""
        now = time.monotonic()
        self.stages[stage], self._mark = now - self._mark, now
