"""The process of a run: the shipped `serve`, over a session of its own, stepped through virtual time."""

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rota.coordination.group_state import GroupState
from rota.dataplane.ports import Ports
from rota.errors import ForeignTable, RotaError
from rota.ids import worker_of
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline, delta, files
from rota.run.consume import CommittedBatch, DroppedPartition, IdlePartition, ParkedPartition
from rota.run.serve import Rest, RunEnd, serve
from simulator.job import TimedJob
from simulator.journal import SteppedStore
from simulator.timeline import Process, steps, wait

if TYPE_CHECKING:
    from simulator.stage import Stage

logging.getLogger("rota.run.consume").addHandler(
    logging.NullHandler()
)  # what it warns of is the world's, not the user's
PIPELINE = Pipeline(files("rows", format="json", schema="row long"), delta("table"), name="sim")
Event = CommittedBatch | IdlePartition | DroppedPartition | ParkedPartition


class RunProcess:
    """One run on behalf of an incarnation. It continues when its agent pauses: then it is a zombie, and the table
    refuses it."""

    def __init__(self, stage: "Stage", run_id: str, incarnation: str, partitions: Iterable[str]) -> None:
        self.stage, self.run_id, self.incarnation, self.partitions = stage, run_id, incarnation, tuple(partitions)
        self.worker = worker_of(incarnation)
        self.store = SteppedStore(stage.server, self.pause)
        stage.parts.connected(self.store)
        self.session = self.store.session
        self.working: set[str] = set()
        self.process = Process(steps(self._live))

    def pause(self, seconds: float | None = None) -> None:
        """The others go on, for as long as an answer takes."""
        wait(self.stage.late(self.worker) if seconds is None else seconds)

    def stop(self) -> None:
        """It no longer works on anything: done, or dead."""
        for partition in tuple(self.working):
            self._ends(partition)

    @property
    def known(self) -> bool:
        """Whether its session lives, and with it the node by which an agent sees the run."""
        return self.session in self.stage.server.sessions

    def tree(self) -> GroupState:
        """The group as the run sees it."""
        return GroupState(self.store, self.stage.group)

    def ports(self) -> Ports:
        """What the run works with."""
        return self.stage.ports(TimedJob(self._work, self.stage.poison))

    def events(self) -> Iterator[Event]:
        """What the run reports, one by one."""
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
            stage.broke(self, error)
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
        self.stage.heard(self, event)
        if event.partition in self.working:
            self._ends(event.partition)

    def _ends(self, partition: str) -> None:
        self.working.discard(partition)
        self.stage.truth.ends(partition, self.incarnation)
