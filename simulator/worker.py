"""The process around an agent, as `rota worker` is it: a session, a clock of its own, rounds, a report now and then."""

from typing import TYPE_CHECKING

from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.core import Worker
from rota.errors import CoordinationError
from rota.group.agent import Agent
from simulator.timeline import Life, Process

if TYPE_CHECKING:
    from simulator.stage import Stage


class WorkerProcess:
    """One life of one worker: the shipped agent, and between its steps whatever else happens in the world."""

    def __init__(self, stage: "Stage", spec: Worker) -> None:
        self.stage, self.spec = stage, spec
        self.store = stage.server.connect()
        stage.parts.connected(self.store)
        self.seen = -1  # what had happened at the last look; -1: it has to look
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
        """The incarnation that it acts as; None before it joined."""
        return self.agent.state.incarnation

    @property
    def overdue(self) -> bool:
        """Whether it was asked to leave `max_shutdown` ago."""
        leaving = self.agent.state.leaving
        return leaving is not None and self.agent.clock() - leaving >= self.stage.timing.max_shutdown

    def life(self) -> Life:
        """Until the agent ends, or the process is killed."""
        yield self.stage.late(self.spec.id)
        while self.agent.done is None:
            if self.stage.is_quiet(self):
                self._beat()
            else:
                self.seen, began = self.stage.server.stirred, self.agent.clock()
                for _ in self.agent.cycle():
                    yield self.stage.late(self.spec.id)
                if not self.agent.chooser.has_read(began):
                    self.seen = -1  # it reads the others in a while, whether anything happens or not
            yield self.stage.rest(self)
        self.store.close()

    def report(self, usage: dict[str, float]) -> None:
        """Reports how busy it is, unless it is paused."""
        if self.process.frozen_until <= self.stage.now:
            self.agent.publish(usage=usage)

    def _beat(self) -> None:
        """A heartbeat: an expired session is noticed here."""
        try:
            self.store.stamp()
        except CoordinationError:
            self.seen = -1

    def _say(self, word: str, /, **facts: object) -> None:
        """One decision, in the same step as the write that it reports."""
        if word == "claimed" and "partition" in facts:  # of many at a time none is forced
            self.stage.checker.note_claim(self.incarnation or "", str(facts["partition"]), str(facts["reason"]))
        if word.endswith("-refused"):
            self.seen = -1  # another worker was first
        self.stage.said(self, word, facts)
