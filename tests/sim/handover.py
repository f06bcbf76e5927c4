"""The hand-over in virtual time: the shipped agents and runs, launched by the shipped `find_work`; a restless mind, whose
targets the shipped `publish` makes current; and faults between steps.

One seed, one history. `HandOver(seed, faults=True).play()` returns the world; `checker.found` must be empty.
`python -m tests.sim.handover SEED [--no-faults]` plays one again and prints what happened; with FIRST LAST many.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from rota.coordination.group_state import GroupState
from rota.coordination.membership import create_liveness_node
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.records import Own, encode
from rota.coordination.store import Create
from rota.core import Worker
from rota.errors import Conflict, RotaError
from rota.ids import key_of, pipeline_of
from rota.ledger.values import Ranges
from rota.run.consume import DroppedPartition
from rota.run.serve import RunLimits
from rota.run.work import find_work
from simulator.actors import PIPELINE, SHIPPED, Event, Parts, RunProcess, WorkerProcess
from simulator.controller import Died, MortalStore
from simulator.memory_store import MemoryStore
from simulator.stage import Stage
from simulator.timeline import Life, Process, steps, wait
from simulator.world import Timing
from tests.sim.handover_faults import Faults
from tests.sim.replaying import ReplayProcess
from tests.sim.rest import list_unsettled

TIMING = Timing(session=4.0, max_shutdown=12.0)
LASTING = RunLimits(linger=2.0, max_run=15.0)
CAP = 3  # any two of the workers can hold everything
TEAM = tuple(Worker(f"w{n}", max_partitions=CAP) for n in (1, 2, 3))
PARTITIONS = tuple(f"s:{n}" for n in range(5))
RUDE = ("fenced", "forced", "broken", "outrun", "refused")  # what never happens without a fault


@dataclass(frozen=True, slots=True)
class Launch:
    """The config of a run; a retry has the same."""

    run_id: str
    incarnation: str
    partitions: tuple[str, ...]


class HandOver(Stage):
    """Three workers and five partitions; `churn` seconds of joins, leaves and reshuffles (with or without faults), then
    everything heals, and within `patience` seconds it must come to rest.

    `awaits`: whether each worker awaits its first run.
    `restless`: how often the controller moves a partition for no reason. `poisoned`: how many batches have a partition that
    fails on its data."""

    partitions = PARTITIONS
    pipeline = replace(PIPELINE, name="s")

    def __init__(
        self,
        seed: int,
        *,
        faults: bool = True,
        parts: Parts = SHIPPED,
        restless: float = 0.02,
        poisoned: float = 0.1,
        longest_batch: float = 3.0,
        churn: float = 30.0,
        patience: float = 75.0,  # the slowest of 150 seeds takes 62
        limits: RunLimits = LASTING,
        awaits: bool = False,
    ) -> None:
        self.limits, self.awaits = limits, awaits
        self.seed, self.churn, self.patience = seed, churn, patience
        self.rate = 0.03 if faults else 0.0  # of a fault, at each step of an agent or a run
        self.restless, self.poisoned, self.longest_batch = restless, poisoned, longest_batch
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []
        how = "" if faults else " --no-faults"
        again = f"PYTHONPATH=. python -m tests.sim.handover {seed}{how}"
        super().__init__(PARTITIONS, TEAM, TIMING, Random(seed), parts, again)
        self.faults = Faults(self, self.rate)
        self.timeline.strike = self.faults.strike
        self.checker.log.parked_by = lambda reason: self.launched.get(reason.split()[1], "") if faults else ""
        self.launched: dict[str, str] = {}  # run -> its incarnation
        self.struck: dict[Process, tuple[str, MemoryStore, WorkerProcess | RunProcess | ReplayProcess]] = {}
        self.reader.found()
        self.reader.grow(pipeline_of(PARTITIONS[0]), [key_of(p) for p in PARTITIONS])
        self.reader.store.multi([Create(self.reader.paths.own(p), encode(Own())) for p in PARTITIONS])
        if awaits:
            create_liveness_node(self.reader, "another")  # so that some run always consumes in the group
        self.rates = {p: self.rng.uniform(0.3, 2.0) for p in PARTITIONS}
        self.numbers = self._refused = 0

    # --- what the actors ask of their world

    def late(self, worker: str) -> float:
        """How long one call takes; now and then something is in its way."""
        return self.rng.uniform(0.001, 0.02) if self.rng.random() < 0.9 else self.rng.uniform(0.02, 1.0)

    def rest(self, worker: WorkerProcess) -> float:
        """Sooner while something is on its way."""
        return 0.3 if worker.agent.unsettled else 0.8

    def read_end(self, partition: str) -> int:
        """The end of a partition's source now."""
        return int(min(self.now, self.churn) * self.rates[partition])

    def batch_limit(self, partition: str) -> int:
        """A few rows."""
        return 7

    def batch_seconds(self, worker: str, rows: float) -> float:
        """Spark takes its time."""
        return self.rng.uniform(0.1, self.longest_batch)

    def poison(self, ranges: Ranges) -> str | None:
        """The partition of a batch that fails on its data, if one does."""
        bad = self.now < self.churn and self.rng.random() < self.poisoned
        return self.rng.choice(sorted(ranges)) if bad else None

    def table_fault(self) -> str | None:
        """See `Faults`."""
        return self.faults.take_table_fault()

    def note_decision(self, worker: WorkerProcess, word: str, facts: Mapping[str, object]) -> None:
        """A line of the story."""
        self.count("forced" if facts.get("reason") == "forced" else word)
        self.tell(f"{worker.spec.id} {word} {' '.join(f'{k}={v}' for k, v in facts.items())}")

    def note_event(self, run: RunProcess, event: Event) -> None:
        """A line of the story; without faults no run is outrun."""
        if isinstance(event, DroppedPartition):
            moved = "moved meanwhile" in event.reason or "has consumed it meanwhile" in event.reason
            self.count("outrun" if moved else "dropped")
        what = {name: getattr(event, name) for name in ("start", "end", "offset", "reason") if hasattr(event, name)}
        self.tell(f"{run.run_id} of {run.incarnation}: {type(event).__name__} {event.partition} {what}")

    def note_error(self, process: object, error: RotaError) -> None:
        """A run ended early."""
        self.count("broken")
        self.tell(f"{getattr(process, 'run_id', '')} ended: {type(error).__name__} {error}")

    def count(self, what: str, times: int = 1) -> None:
        """Counts something that is no damage by itself, but for what never happens without a fault."""
        self.counts[what] += times
        if not self.rate and times and what in RUDE:
            self.checker.note("rude", f"{what} at {self.now:.3f}")

    def tell(self, line: str) -> None:
        """Adds a line to the story."""
        self.story.append(f"{self.now:8.3f} {line}")

    # --- playing

    def play(self) -> "HandOver":
        """From the first join to rest, or to the end of patience."""
        for worker in self.team:
            self.timeline.after(self.rng.uniform(0, 2), lambda w=worker: self.join(w))  # type: ignore[misc]
        for life in (self._controller(), self._launcher(), self._fate()):
            self.timeline.spawn(life)
        self.timeline.after(self.churn, self._heal)
        end = self.churn + self.patience
        self.timeline.run(self.churn + 1)
        while self.now < end and not self._rested():
            self.timeline.run(min(end, self.now + 0.5))
        if not self._rested():
            self.checker.breach("stuck", "; ".join(list_unsettled(self)))
        return self

    def _rested(self) -> bool:
        idle = not any(isinstance(one, RunProcess | ReplayProcess) for _, _, one in self._alive())
        return idle and all(len(self.alive(w)) == 1 for w in self.team) and not list_unsettled(self)

    def _alive(self) -> list[tuple[str, MemoryStore, WorkerProcess | RunProcess | ReplayProcess]]:
        self.struck = {process: one for process, one in self.struck.items() if process.alive}
        return list(self.struck.values())

    def after_event(self) -> None:
        if self.server.journal or self.checker.pending:
            self.checker.after_event(self.truth.take_in(self.server))
        if self.table.refused > self._refused:
            self.count("fenced", self.table.refused - self._refused)
            self._refused = self.table.refused

    def join(self, worker: str, *, only: bool = False) -> None:
        """An agent process; with `only`, unless one of that id is there."""
        if not (only and self.alive(worker)):
            born = self.start_worker(worker)
            born.agent.wants_run = self.awaits
            self.numbers += 1
            self.struck[born.process] = (f"{worker}#{self.numbers}", born.store, born)

    def launch(self, given: Launch) -> None:
        """Start a run process with this config, also beside another one that has it."""
        self.launched[given.run_id] = given.incarnation
        run = self.start_run(given.run_id, given.incarnation, given.partitions)
        self._count_refusals(run.store)
        self.struck[run.process] = (given.run_id, run.store, run)

    def launch_again(self, run: RunProcess) -> None:
        """The retry of a run that died: it has the same config."""
        self.launch(Launch(run.run_id, run.incarnation, run.partitions))

    def _count_refusals(self, store: MemoryStore) -> None:
        """Counts the checkpoints and parks that were refused."""
        send = store.multi

        def multi(ops):  # type: ignore[no-untyped-def]
            try:
                return send(ops)
            except Conflict:
                self.count("refused", any("/checkpoints/" in op.path for op in ops))
                raise

        store.multi = multi  # type: ignore[method-assign]

    def _heal(self) -> None:
        """No more faults: each process continues, and each worker has an agent."""
        self.tell("heal")
        self.faults.of_table = None
        for _, store, one in self._alive():
            one.process.frozen_until = min(one.process.frozen_until, self.now)
            store.reconnect()
        self.timeline.spawn(self._supervisor(), 2 * TIMING.session)

    # --- actors

    def _supervisor(self) -> Life:
        """Each process that ended is started again."""
        while True:
            for worker in self.team:
                self.join(worker, only=True)
            yield TIMING.session

    def _launcher(self) -> Life:
        """As Dagster's sensor: the shipped `find_work`, one run at a time for an incarnation."""
        while True:
            yield 0.5
            busy = {one.incarnation for _, _, one in self._alive() if isinstance(one, RunProcess)}
            due = {one.incarnation: () for one in self.reader.live() if one.record and one.record.awaits_run}
            due |= {one.incarnation: tuple(one.lags) for one in find_work(self.reader, self.pipeline, self.source)}
            for incarnation, partitions in due.items():
                if incarnation not in busy:
                    self._launch(Launch(f"r{self._number()}", incarnation, partitions))

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _launch(self, given: Launch) -> None:
        delay = self.rng.uniform(0, 1.5)
        if self.now < self.churn:
            if self.rate and self.rng.random() < 0.1:
                delay = self.rng.uniform(1, 2 * TIMING.session)  # its config is stale by then
            if self.rng.random() < 0.1:
                again = given  # the same run resumed while its process is still there; without faults a click
                if not self.rate or self.rng.random() < 0.5:
                    again = Launch(f"r{self._number()}", given.incarnation, given.partitions)
                self.timeline.after(self.rng.uniform(0, TIMING.session), lambda: self.launch(again))
        self.timeline.after(delay, lambda: self.launch(given))

    def _fate(self) -> Life:
        """Leaves, returns and replays."""
        while self.now < self.churn:
            yield self.rng.uniform(0.5, 4)
            awake = [one for _, _, one in self._alive() if one.process.frozen_until <= self.now]
            workers = [one for one in awake if isinstance(one, WorkerProcess)]
            choice = self.rng.random()
            if choice < 0.4 and len(workers) > 1:
                leaver = self.rng.choice(workers)
                leaver.agent.leave()
                again: Callable[[], None] = lambda w=leaver.spec.id: self.join(w, only=True)  # type: ignore[misc]  # noqa: E731
                self.timeline.after(self.rng.uniform(2, 8), again)
            elif choice < 0.7:
                self._replay(self.rng.choice(PARTITIONS))

    def _replay(self, partition: str) -> None:
        """A past range again, if there is one."""
        offset = self.checker.log.seen[partition].offset
        if offset < 2:
            return
        start = self.rng.randrange(offset)
        ranges = {partition: (start, self.rng.randrange(start, offset) + 1)}
        one = ReplayProcess(self, f"replay{self._number()}", ranges)
        self.struck[one.process] = (one.run_id, one.store, one)
        self.timeline.begin(one.process)

    def _controller(self) -> Life:
        """Places every partition on a live worker that stays, and now and then changes its mind. The shipped `publish` makes
        that current; now and then its process dies between two of its writes, and another takes over."""
        return steps(self._control)

    def _control(self) -> None:
        placed: dict[str, str] = {}
        store = self._connect_controller()
        while True:
            wait(0.4)
            tree = GroupState(store, self.group)
            wanted = self._choose(placed)
            if wanted == placed:
                continue
            if self.now < self.churn and self.rng.random() < 5 * self.rate:
                store.left = self.rng.randrange(1, 4)
            targets = {w: frozenset(p for p, other in wanted.items() if other == w) for w in set(wanted.values())}
            publication = Publication(targets, members=tuple(one.incarnation for one in self.reader.live()))
            try:
                epoch = publish(tree, take_control(tree), publication).epoch
            except Died:
                self.tell("the controller dies in the middle")
                placed, store = {}, self._connect_controller()
            else:
                store.left, placed = None, wanted
                self.tell(f"epoch {epoch}: {' '.join(f'{p}:{w}' for p, w in sorted(wanted.items()))}")

    def _connect_controller(self) -> MortalStore:
        """It asks so often that its answers come sooner: else it would change its mind too seldom."""
        return MortalStore(self.server, lambda: wait(self.late("") / 5))

    def _choose(self, placed: Mapping[str, str]) -> dict[str, str]:
        """The worker that is to have each partition, given the current owners."""
        live = self.reader.newest(self.reader.live())
        there = [w for w, v in live.items() if v.record and v.record.has_room and not v.record.leaving]
        wanted = {p: w for p, w in placed.items() if w in there}
        for p in PARTITIONS:
            restless = self.now < self.churn and self.rng.random() < self.restless
            counts = Counter(w for other, w in wanted.items() if other != p)
            room = [w for w in there if counts[w] < CAP]
            if room and restless:
                wanted[p] = self.rng.choice(room)
            elif room and p not in wanted:
                wanted[p] = min(room, key=lambda w: (counts[w], self.rng.random()))
        return wanted

    def repro(self) -> str:
        """What went wrong, and the one line that plays it again."""
        return f"seed {self.seed}: {'; '.join(self.checker.said[:3])}. Again: {self.again}"


def main(words: list[str]) -> None:
    """`SEED` plays one seed and prints its story; `FIRST LAST` plays many and prints which did damage."""
    faults = "--no-faults" not in words
    seeds = [int(word) for word in words if word.isdigit()]
    if len(seeds) == 1:
        world = HandOver(seeds[0], faults=faults).play()
        print("\n".join(world.story))  # noqa: T201
        print(dict(world.counts), dict(world.checker.found), *world.checker.said, sep="\n")  # noqa: T201
        return
    counts: Counter[str] = Counter()
    for seed in range(*seeds):
        world = HandOver(seed, faults=faults).play()
        counts += world.counts + world.checker.found
        if world.checker.found:
            print(world.repro())  # noqa: T201
    print(dict(counts))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
