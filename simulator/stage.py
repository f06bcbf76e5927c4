"""What every simulated world has: a clock, a server, a table, workers, runs, faults, and a judge.

A world states when things happen, how late answers are, and what the source holds; see `Simulation`.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from rota.coordination.group_state import GroupState
from rota.core import Policy, Worker
from rota.dataplane.ports import Job, Ports
from rota.errors import RotaError
from rota.ids import key_of, worker_of
from rota.ledger.values import Ranges
from rota.run.serve import RunLimits
from simulator.checker import Checker
from simulator.journal import JournalServer
from simulator.memory_store import MemoryStore
from simulator.parts import Parts
from simulator.run import PIPELINE, Event, RunProcess
from simulator.source import MemorySource
from simulator.table import MemoryTable
from simulator.timeline import Process, Timeline, wait
from simulator.truth import Truth
from simulator.worker import WorkerProcess
from simulator.world import Timing


class Stage:
    """The actors, their store and their table, and the clock that they share without knowing."""

    group = "sim"
    pipeline = PIPELINE
    limits: RunLimits = RunLimits(linger=0.0)  # a run is one batch, unless a world states otherwise

    def __init__(
        self, partitions: Iterable[str], team: Iterable[Worker], timing: Timing, rng: Random, parts: Parts, again: str
    ) -> None:
        self.timing, self.rng, self.parts, self.again = timing, rng, parts, again
        self.team = {worker.id: worker for worker in team}
        self.timeline = Timeline(self.after_event)
        self.server = JournalServer(lambda: self.timeline.now, timing.session)
        self.reader = GroupState(self.server.connect(), self.group)
        self.truth = Truth(dict.fromkeys(partitions, 1.0))
        self.log = parts.log(lambda: wait(self.late("")), self.table_fault)
        self.table = parts.table.on(self.log, self.group, self.pipeline.name)
        self.checker = Checker(self, strict=False)
        self.policy = Policy()
        self.source = MemorySource(self.read_end, self.batch_limit, keys=lambda: map(key_of, self.truth.load))
        self.workers: dict[str, list[WorkerProcess]] = {worker: [] for worker in self.team}
        self.runs: list[RunProcess] = []

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.timeline.now

    # --- what a world decides

    def late(self, worker: str) -> float:
        """How late the next answer is for this worker."""
        raise NotImplementedError

    def rest(self, worker: WorkerProcess) -> float:
        """How long an agent rests between two rounds."""
        raise NotImplementedError

    def is_quiet(self, worker: WorkerProcess) -> bool:  # noqa: ARG002
        """Whether the agent's next look would only find what its last one found: then it only sends a heartbeat."""
        return False

    def batch_seconds(self, worker: str, rows: float) -> float:
        """How long a batch of that many rows takes there."""
        raise NotImplementedError

    def batch_limit(self, partition: str) -> int:
        """How many rows of the partition one batch may take."""
        raise NotImplementedError

    def read_end(self, partition: str) -> int:
        """The end offset of the partition's source now."""
        raise NotImplementedError

    def poison(self, ranges: Ranges) -> str | None:  # noqa: ARG002
        """The partition of a batch that fails on its data, if one does."""
        return None

    def table_fault(self) -> str | None:
        """Whether the next commit's call fails "before" or "after" the commit landed."""
        return None

    def clock(self, worker: str) -> float:  # noqa: ARG002
        """The worker's own monotonic clock."""
        return self.now

    def heard(self, run: RunProcess, event: Event) -> None:
        """A run reported a partition."""

    def said(self, worker: WorkerProcess, word: str, facts: dict[str, object]) -> None:
        """An agent reported a decision."""

    def broke(self, process: object, error: RotaError) -> None:
        """A run ended early."""

    # --- actors

    def ports(self, job: Job) -> Ports:
        """What a run works with."""
        source = replace(self.source, pause=lambda: wait(self.late("")))
        aside = MemoryTable.on(None, self.group, self.pipeline.name)
        ports = Ports(source, self.table, aside, job, lambda _: ports, lambda: self.now)
        return ports

    def start_worker(self, worker: str, delay: float = 0.0) -> WorkerProcess:
        """An agent process of this id, which other processes may have, too."""
        born = WorkerProcess(self, self.team[worker])
        self.workers[worker].append(born)
        self.timeline.begin(born.process, delay)
        return born

    def start_run(self, run_id: str, incarnation: str, partitions: Iterable[str]) -> RunProcess:
        """A run process, whatever else works on the same partitions."""
        run = self.parts.run(self, run_id, incarnation, partitions)
        self.runs = [one for one in self.runs if one.process.alive]
        self.runs.append(run)
        self.timeline.begin(run.process)
        return run

    def alive(self, worker: str) -> list[WorkerProcess]:
        """The processes of this id that run."""
        return [w for w in self.workers[worker] if w.process.alive]

    def worker_as(self, incarnation: str) -> WorkerProcess | None:
        """The process whose agent acts as this incarnation."""
        return next((w for w in self.workers[worker_of(incarnation)] if w.incarnation == incarnation), None)

    # --- faults

    def kill(self, process: Process, store: MemoryStore, delay: float | None = None) -> None:
        """kill -9: no further step; the session ends when the server notices."""
        process.kill()
        self.expire_later(store.session, delay)

    def expire_later(self, session: int, delay: float | None = None) -> None:
        """The server ends the session then."""
        self.timeline.after(self.timing.session if delay is None else delay, lambda: self.server.expire(session))

    # --- after every event

    def after_event(self) -> None:
        """Judges what happened; called after every event."""
        raise NotImplementedError
