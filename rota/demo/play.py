"""The play: up, landing, faults, until everything that landed is in the table.

Law: it lands files, starts processes and sends signals; what happens then is the group's own doing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rota.coordination import wishes
from rota.demo.faults import Joined, Killed, Zombie, freeze, join, kill, wake
from rota.demo.landing import MONTHS, Landing
from rota.demo.page import Page
from rota.demo.stage import Stage
from rota.demo.watch import PATIENCE, RunSeen, Watch
from rota.errors import EnvironmentFailed
from rota.machine import free_port

Say = Callable[[str], None]
OPTIONS = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")  # of each worker's Spark


@dataclass(slots=True)
class Play:
    """One performance; its fields are what the figures are made of."""

    stage: Stage
    landing: Landing
    watch: Watch
    page: Page
    say: Say
    killed: Killed | None = None
    joined: Joined | None = None
    zombie: Zombie | None = None
    stages: dict[str, float] = field(default_factory=dict)
    landed: int = 0
    month: int = 0
    _mark: float = field(default_factory=time.monotonic)

    def up(self, workers: int) -> None:
        """Waits until every worker is live and Dagster's page answers; January waits for them already."""
        self.land(1)
        names = {f"w{i + 1}" for i in range(workers)}
        seen: set[str] = set()

        def all_live() -> bool:
            for worker in sorted(self.watch.workers() - seen):
                seen.add(worker)
                self.say(f"{worker} is live, its Spark is up")
            return names <= seen

        self.watch.until(all_live, PATIENCE, f"the workers {' '.join(sorted(names))}")
        self.watch.until(self.page.ready, PATIENCE, f"Dagster's page at {self.page.address}")
        self.say(f"Dagster's page is at {self.page.address}")
        self.passed("up")
        self.consumed("January", PATIENCE)
        self.passed("first batches")

    def strike(self) -> None:
        """Kills a worker; lets another join; freezes a run, pins one of its partitions elsewhere, wakes it."""
        self.land(2, 3, 4)
        self.killed = k = kill(self.stage, self.watch, self.page)
        self.say(f"{k.worker} killed in the middle of a batch; {k.taken_by} committed for it after {k.seconds:.1f} s")
        self.passed("kill")
        joiner = f"w{len(self.watch.live) + 1}"
        self.stage.worker(joiner, *OPTIONS)
        self.watch.until(lambda: self.watch.holdings()[joiner], PATIENCE, f"{joiner} to get its share")
        self.say(f"{joiner} joins and gets {self.watch.holdings()[joiner]} partitions")
        self.land(5, 6, 7)
        self.joined = j = join(self.watch, joiner)
        self.say(f"{joiner} committed {j.seconds:.1f} s after it was live")
        self.passed("join")
        frozen = freeze(self.watch, self.page, self.feed)
        partition, taker = self.overtake(frozen.run)
        self.say(f"a run of {frozen.run.worker} frozen in the middle of its batch; {partition} pinned to {taker}")
        self.zombie = z = wake(self.watch, frozen, partition)
        self.say(f"woken after {z.woken - z.at:.1f} s, overtaken by {z.overtaken_by}: its write is refused")
        self.passed("zombie")

    def feed(self) -> None:
        """Lands the next month, once all that landed before is in the table."""
        if self.watch.consumed() >= self.landed and (left := [m for m in MONTHS if m > self.month]):
            self.land(left[0])

    def overtake(self, run: RunSeen) -> tuple[str, str]:
        """Asks for a partition of the frozen run to move, as a person would: `rota pin`. The partition, its taker."""
        counts = self.watch.holdings()
        taker = min((w for w in self.watch.workers() if w != run.worker), key=lambda w: (counts.get(w, 0), w))
        wishes.pin(self.watch.tree, run.partitions[0], taker)
        return run.partitions[0], taker

    def rest(self) -> None:
        """Lands what is left of the year and waits until all of it is in the table."""
        self.land(*MONTHS)
        self.consumed("the year", PATIENCE)
        self.watch.until(lambda: not self.watch.runs, PATIENCE, "the last runs to end")
        self.passed("rest of the year")

    def land(self, *months: int) -> None:
        """Makes months visible."""
        fresh = self.landing.land(months)
        self.month = max(self.month, *months)
        self.landed += len(fresh.files)
        if fresh.files:
            self.say(f"{len(fresh.files)} files landed with {fresh.rows:,} flights")

    def consumed(self, what: str, timeout: float) -> None:
        """Waits until the table's log covers every landed file."""
        self.watch.until(lambda: self.watch.consumed() >= self.landed, timeout, f"{what} to be consumed")
        self.say(f"{what} is in the table: {self.watch.consumed()} files")

    def passed(self, stage: str) -> None:
        """Notes how long this part took."""
        now = time.monotonic()
        self.stages[stage], self._mark = now - self._mark, now


def alive(stage: Stage) -> Callable[[], None]:
    """What a watch calls at each look: a process of ours that died by itself ends the play with its last words."""

    def keep() -> None:
        if child := stage.lost():
            raise EnvironmentFailed(f"{child.name} {child.how()}: {child.last_words()}. See {child.log}")

    return keep


def page(stage: Stage) -> Page:
    """Starts Dagster; its page."""
    port = free_port(3000)
    stage.dagster(port)
    return Page(f"http://127.0.0.1:{port}")
