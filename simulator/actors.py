"""The actors of a simulated world: agents and runs. `Scene` is the interface of the world for actors and judges."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.core import Policy, Worker
from rota.core.protocols.known_protocols import ASSIGNED
from rota.core.reconcile import Machine, assigned
from rota.dataplane.ports import Job, Ports
from rota.errors import CoordinationError, ForeignTable, RotaError
from rota.group.agent import Agent
from rota.ids import worker_of
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline, delta, files
from rota.run.consume import CommittedBatch, DroppedPartition, IdlePartition, ParkedPartition
from rota.run.serve import Rest, RunEnd, RunLimits, serve
from simulator.job import TimedJob
from simulator.journal import JournalServer, SteppedStore
from simulator.memory_log import MemoryLog
from simulator.memory_store import MemoryStore
from simulator.table import MemoryTable
from simulator.timeline import Life, Process, Timeline, steps, wait
from simulator.truth import Truth
from simulator.world import Happening, Timing

# Warnings of runs belong to the simulated world, not to the user of the simulator.
logging.getLogger("rota.run.consume").addHandler(logging.NullHandler())
PIPELINE = Pipeline(files("rows", format="json", schema="row long"), delta("table"), name="sim")
Event = CommittedBatch | IdlePartition | DroppedPartition | ParkedPartition


class Judge(Protocol):
    """The judge of a world, to which actors report."""

    def note(self, rule: str, what: str) -> None:
        """Note a breach that an actor observed. It is judged after the actor's step."""
        ...

    def note_claim(self, incarnation: str, partition: str, reason: str) -> None:
        """Note why an agent claims a partition."""
        ...

    def note_report(self, partition: str, start: int, end: int) -> None:
        """Note a batch that a run reported."""
        ...


class Scene:
    """The interface of a world for actors and judges. `Stage` sets it up; a subclass decides when things happen, how long
    answers take, and what the source holds: see `Simulation`.
    """

    group = "sim"
    pipeline = PIPELINE
    protocol = ASSIGNED
    options: Mapping[str, Any] = {}  # of the protocol
    happenings: Sequence[Happening] = ()
    limits: RunLimits = RunLimits(linger=0.0)  # a run is one batch, unless a world sets others

    timing: Timing
    rng: Random
    parts: "Parts"
    again: str  # the command that repeats the world
    team: Mapping[str, Worker]
    timeline: Timeline
    server: JournalServer
    truth: Truth
    log: MemoryLog
    policy: Policy
    checker: Judge
    workers: "dict[str, list[WorkerProcess]]"
    runs: "list[RunProcess]"

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.timeline.now

    # --- decisions of a world

    def late(self, worker: str) -> float:
        """Return the seconds until the next answer for this worker."""
        raise NotImplementedError

    def rest(self, worker: "WorkerProcess") -> float:
        """Return the seconds that an agent rests between two rounds."""
        raise NotImplementedError

    def is_quiet(self, worker: "WorkerProcess") -> bool:  # noqa: ARG002
        """Return whether the agent's next observation would equal its last one. Then it only sends a heartbeat."""
        return False

    def batch_seconds(self, worker: str, rows: float) -> float:
        """Return the seconds that a batch of this many rows takes on this worker."""
        raise NotImplementedError

    def batch_limit(self, partition: str) -> int:
        """Return the maximum of rows of the partition in one batch."""
        raise NotImplementedError

    def read_end(self, partition: str) -> int:
        """Return the end offset of the partition's source now."""
        raise NotImplementedError

    def poison(self, ranges: Ranges) -> str | None:  # noqa: ARG002
        """Return the partition of a batch that fails on its data, if one does."""
        return None

    def table_fault(self) -> str | None:
        """Return whether the next commit's call fails "before" or "after" the commit landed; None: neither."""
        return None

    def clock(self, worker: str) -> float:  # noqa: ARG002
        """Return the time of the worker's own monotonic clock."""
        return self.now

    def note_event(self, run: "RunProcess", event: "Event") -> None:
        """Called when a run reported a partition."""

    def note_decision(self, worker: "WorkerProcess", word: str, facts: dict[str, object]) -> None:
        """Called when an agent logged a decision."""

    def note_error(self, process: object, error: RotaError) -> None:
        """Called when a run ended early."""

    def ports(self, job: Job) -> Ports:
        """Return the ports of a run."""
        raise NotImplementedError

    def worker_as(self, incarnation: str) -> "WorkerProcess | None":
        """Return the process with this incarnation."""
        return next((w for w in self.workers[worker_of(incarnation)] if w.incarnation == incarnation), None)


class WorkerProcess:
    """One process of a worker, as `rota worker` runs it: the shipped agent, a session, a clock, rounds and reports.

    Other events of the world happen between its steps.
    """

    def __init__(self, stage: Scene, spec: Worker) -> None:
        self.stage, self.spec = stage, spec
        self.store = stage.server.connect()
        stage.parts.connected(self.store)
        self.seen = -1  # the server's count of events at the last observation; -1: an observation is due
        self.agent = Agent(
            GroupState(self.store, stage.group),
            spec.id,
            Live(
                capacity=spec.capacity,
                zone=spec.zone,
                labels=dict(spec.labels),
                max_partitions=spec.max_partitions,
            ),
            self._say,
            max_shutdown=stage.timing.max_shutdown,
            session_timeout=stage.timing.session,
            clock=lambda: stage.clock(spec.id),
            machine=stage.parts.machine,
            draw=stage.rng.random,
        )
        self.process = Process(self.life())

    @property
    def incarnation(self) -> str | None:
        """Return its incarnation; None before the join."""
        return self.agent.state.incarnation

    @property
    def overdue(self) -> bool:
        """Return whether it was asked to leave `max_shutdown` ago or earlier."""
        leaving = self.agent.state.leaving
        return leaving is not None and self.agent.clock() - leaving >= self.stage.timing.max_shutdown

    def life(self) -> Life:
        """Run until the agent ends or the process is killed."""
        yield self.stage.late(self.spec.id)
        while self.agent.done is None:
            if self.stage.is_quiet(self):
                self._beat()
            else:
                self.seen, began = self.stage.server.stirred, self.agent.clock()
                for _ in self.agent.cycle():
                    yield self.stage.late(self.spec.id)
                if not self.agent.chooser.has_read(began):
                    self.seen = -1  # the protocol still has to read the other workers, also without an event
            yield self.stage.rest(self)
        self.store.close()

    def report(self, usage: dict[str, float]) -> None:
        """Publish the usage, unless the process is frozen."""
        if self.process.frozen_until <= self.stage.now:
            self.agent.publish(usage=usage)

    def _beat(self) -> None:
        """Send a heartbeat, which detects an expired session."""
        try:
            self.store.stamp()
        except CoordinationError:
            self.seen = -1

    def _say(self, word: str, /, **facts: object) -> None:
        """Report a decision, in the same step as its write."""
        if word == "claimed" and "partition" in facts:  # a line for many partitions contains no forced claim
            self.stage.checker.note_claim(self.incarnation or "", str(facts["partition"]), str(facts["reason"]))
        if word.endswith("-refused"):
            self.seen = -1  # another process wrote first
        self.stage.note_decision(self, word, facts)


class RunProcess:
    """One run for an incarnation: the shipped `serve` with its own session.

    It continues while its agent is frozen; after another worker took its partitions, the table refuses its commits.
    """

    def __init__(self, stage: Scene, run_id: str, incarnation: str, partitions: Iterable[str]) -> None:
        self.stage, self.run_id, self.incarnation, self.partitions = stage, run_id, incarnation, tuple(partitions)
        self.worker = worker_of(incarnation)
        self.store = SteppedStore(stage.server, self.pause)
        stage.parts.connected(self.store)
        self.session = self.store.session
        self.working: set[str] = set()
        self.process = Process(steps(self._live))

    def pause(self, seconds: float | None = None) -> None:
        """Let other events happen for the time that an answer takes."""
        wait(self.stage.late(self.worker) if seconds is None else seconds)

    def stop(self) -> None:
        """End all work: the run is done or dead."""
        for partition in tuple(self.working):
            self._ends(partition)

    @property
    def known(self) -> bool:
        """Return whether its session is alive, and with it the node by which agents detect the run."""
        return self.session in self.stage.server.sessions

    def tree(self) -> GroupState:
        """Return the group, read through the run's session."""
        return GroupState(self.store, self.stage.group)

    def ports(self) -> Ports:
        """Return the ports of the run."""
        return self.stage.ports(TimedJob(self._work, self.stage.poison))

    def events(self) -> Iterator[Event]:
        """Yield the events that the run reports."""
        stage = self.stage
        served = serve(
            self.tree(), stage.pipeline, self.incarnation, self.partitions, self.run_id, self.ports(), stage.limits,
            wait=self.pause,
        )  # fmt: skip
        return (event for event in served if not isinstance(event, Rest | RunEnd))

    def _live(self) -> None:
        stage = self.stage
        try:
            for event in self.events():
                self._hear(event)
        except ForeignTable as error:
            stage.checker.note("foreign", str(error))
        except RotaError as error:
            stage.note_error(self, error)
        finally:
            self.stop()
        self.store.close()

    def _work(self, ranges: Ranges) -> None:
        self.working = set(ranges)
        for partition in sorted(ranges):
            self.stage.truth.begins(partition, self.incarnation)
        self.pause(self.stage.batch_seconds(self.worker, sum(end - start for start, end in ranges.values())))

    def _hear(self, event: Event) -> None:
        if isinstance(event, CommittedBatch):
            self.stage.checker.note_report(event.partition, event.start, event.end)
        elif isinstance(event, ParkedPartition) and event.restored:
            self.stage.checker.note("restored", event.reason)
        self.stage.note_event(self, event)
        if event.partition in self.working:
            self._ends(event.partition)

    def _ends(self, partition: str) -> None:
        self.working.discard(partition)
        self.stage.truth.ends(partition, self.incarnation)


def leave_as_is(store: MemoryStore) -> None:
    """Do not change the store of an actor."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the actors. The defaults are the shipped ones. With other parts, the checker counts breaches instead of
    raising."""

    machine: Machine = assigned
    connected: Callable[[MemoryStore], object] = leave_as_is  # called with the store of each agent and run
    run: type[RunProcess] = RunProcess
    log: type[MemoryLog] = MemoryLog
    table: type[MemoryTable] = MemoryTable


SHIPPED = Parts()
