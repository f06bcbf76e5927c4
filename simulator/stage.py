"""The parts of every simulated world: a clock, a server, a table, workers, runs, faults and a judge."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from rota.coordination.group_state import GroupState
from rota.core import Policy, Worker
from rota.dataplane.ports import Job, Ports
from rota.ids import key_of
from simulator.actors import Parts, RunProcess, Scene, WorkerProcess
from simulator.checker import Checker
from simulator.journal import JournalServer
from simulator.memory_store import MemoryStore
from simulator.source import MemorySource
from simulator.table import MemoryTable
from simulator.timeline import Process, Timeline, wait
from simulator.truth import Truth
from simulator.world import Timing


class Stage(Scene):
    """The actors, their store, their table and their virtual clock."""

    checker: Checker

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

    # --- actors

    def ports(self, job: Job) -> Ports:
        """Return the ports of a run."""
        source = replace(self.source, pause=lambda: wait(self.late("")))
        quarantine = MemoryTable.on(None, self.group, self.pipeline.name)
        ports = Ports(source, self.table, quarantine, job, lambda _: ports, lambda: self.now)
        return ports

    def start_worker(self, worker: str, delay: float = 0.0) -> WorkerProcess:
        """Start an agent process of this id. Other processes may have the same id."""
        born = WorkerProcess(self, self.team[worker])
        self.workers[worker].append(born)
        self.timeline.begin(born.process, delay)
        return born

    def start_run(self, run_id: str, incarnation: str, partitions: Iterable[str]) -> RunProcess:
        """Start a run. Other runs may work on the same partitions."""
        run = self.parts.run(self, run_id, incarnation, partitions)
        self.runs = [one for one in self.runs if one.process.alive]
        self.runs.append(run)
        self.timeline.begin(run.process)
        return run

    def alive(self, worker: str) -> list[WorkerProcess]:
        """Return the running processes of this id."""
        return [w for w in self.workers[worker] if w.process.alive]

    # --- faults

    def kill(self, process: Process, store: MemoryStore, delay: float | None = None) -> None:
        """Kill a process as SIGKILL does: it takes no further step, and its session expires later."""
        process.kill()
        self.expire_later(store.session, delay)

    def expire_later(self, session: int, delay: float | None = None) -> None:
        """Let the server expire the session after the delay."""
        self.timeline.after(self.timing.session if delay is None else delay, lambda: self.server.expire(session))

    # --- after every event

    def after_event(self) -> None:
        """Judge the last event. Called after every event."""
        raise NotImplementedError
