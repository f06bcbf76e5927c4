"""The process around an agent, as `rota worker` is it: a session, a clock of its own, rounds, a report now and then."""

from typing import TYPE_CHECKING

from rota.agent import Agent
from rota.coordination.records import Live
from rota.coordination.tree import Tree
from rota.core import Worker
from rota.errors import CoordinationError
from rota.sim.timeline import Life, Process

if TYPE_CHECKING:
    from rota.sim.simulation import Simulation


class WorkerProcess:
    """One life of one worker: the shipped agent, and between its steps whatever else happens in the world."""

    def __init__(self, sim: "Simulation", spec: Worker) -> None:
        self.sim, self.spec = sim, spec
        self.store = sim.parts.connect(sim.server)
        self.seen = -1  # what had happened at the last look; -1: it has to look
        self.agent = Agent(
            Tree(self.store, sim.group),
            spec.id,
            Live(
                capacity=spec.capacity,
                zone=spec.zone,
                labels=dict(spec.labels),
                max_partitions=spec.max_partitions,
            ),
            self._say,
            max_shutdown=sim.world.timing.max_shutdown,
            session_timeout=sim.world.timing.session,
            clock=self._clock,
            machine=sim.parts.machine,
        )
        self.process = Process(self.life())

    @property
    def incarnation(self) -> str | None:
        """The incarnation that it acts as; None before it joined."""
        return self.agent.state.incarnation

    @property
    def overdue(self) -> bool:
        """Whether it was told to leave `max_shutdown` ago."""
        leaving = self.agent.state.leaving
        return leaving is not None and self._clock() - leaving >= self.sim.world.timing.max_shutdown

    def life(self) -> Life:
        """Until the agent ends, or the process is killed."""
        yield self.sim.late(self.spec.id)
        while self.agent.done is None:
            if self._quiet():
                self._beat()
            else:
                self.seen = self.sim.server.stirred
                for _ in self.agent.cycle():
                    yield self.sim.late(self.spec.id)
            yield self.sim.rng.uniform(0.7, 1.3) * self.sim.world.timing.poll
        self.store.close()

    def report(self, usage: dict[str, float]) -> None:
        """Says how busy it is, unless it stands still."""
        if self.process.frozen_until <= self.sim.now:
            self.agent.publish(usage=usage)

    def _quiet(self) -> bool:
        """Whether a look would only find what the last one found, and so do nothing: it is left out, to save time."""
        state = self.agent.state
        nothing_new = self.seen == self.sim.server.stirred and state.suspended is None
        return nothing_new and state.incarnation is not None and not self.agent.unsettled

    def _beat(self) -> None:
        """A heartbeat: an expired session is noticed here."""
        try:
            self.store.get(self.agent.paths.head)
        except CoordinationError:
            self.seen = -1

    def _clock(self) -> float:
        """Its own monotonic clock, which agrees with nobody's."""
        offset, rate = self.sim.world.skew.get(self.spec.id, (0.0, 1.0))
        return offset + rate * self.sim.now

    def _say(self, word: str, /, **facts: object) -> None:
        """One decision, in the same step as the write that it tells of."""
        if word == "claimed":
            self.sim.checker.claimed(self.incarnation or "", str(facts["partition"]), str(facts["reason"]))
        elif word.endswith("-refused"):
            self.seen = -1  # somebody else was first
