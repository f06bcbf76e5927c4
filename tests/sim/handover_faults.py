"""Faults before the steps of agents and runs of the hand-over: which kind, how long, and which process it strikes."""

import contextlib
from typing import TYPE_CHECKING

from rota.errors import Conflict
from simulator.actors import RunProcess, WorkerProcess
from simulator.memory_store import MemoryStore
from simulator.timeline import Process

if TYPE_CHECKING:
    from tests.sim.handover import HandOver

OF_AGENTS = ("twin", "unlive", "hurry")
KINDS = (
    *("kill", "kill", "pause", "pause", "long pause", "long pause", "hang", "expire", "lose", "disconnect", "table"),
    *OF_AGENTS,
)


class Faults:
    """Strikes the actors of a world, at `rate` of their steps, until its churn is over."""

    def __init__(self, world: "HandOver", rate: float) -> None:
        self.world, self.rng, self.rate = world, world.rng, rate
        self.session = world.timing.session
        self.of_table: str | None = None  # what becomes of the next commit's call

    def take_table_fault(self) -> str | None:
        """What was struck."""
        fault, self.of_table = self.of_table, None
        return fault

    def strike(self, process: Process) -> None:
        """Now and then a fault before a step of an agent or a run, of a kind that suits it."""
        world = self.world
        if process not in world.struck or world.now >= world.churn or self.rng.random() >= self.rate:
            return
        name, store, victim = world.struck[process]
        kind = self.rng.choice(KINDS)
        if kind in OF_AGENTS and not isinstance(victim, WorkerProcess):
            kind = "pause"
        world.count("faults")
        world.tell(f"{kind} {name}")
        if kind == "kill":
            self._kill(process)
        elif kind in ("pause", "long pause"):
            seconds = self.rng.uniform(0.1, 2.0) if kind == "pause" else self.rng.uniform(0.7, 4) * self.session
            process.frozen_until = world.now + seconds
            if seconds > 0.7 * self.session:
                self._expire_soon(store)
        elif kind == "hang":  # it does nothing, but something keeps its session
            process.frozen_until = world.now + self.rng.uniform(0.5, 2) * world.timing.max_shutdown
        elif kind == "table":
            self.of_table = self.rng.choice(("before", "after"))
        elif isinstance(victim, WorkerProcess) and kind in OF_AGENTS:
            self._harass(victim, kind)
        else:
            self._hurt(store, kind)

    def _harass(self, worker: WorkerProcess, kind: str) -> None:
        """A second process of its id; or its live node is removed, or it is asked twice to leave."""
        world = self.world
        if kind == "twin":
            world.join(worker.spec.id)
        elif kind == "hurry":
            worker.agent.leave(hurry=True)
            world.timeline.after(self.rng.uniform(2, 8), lambda: world.join(worker.spec.id, only=True))
        elif worker.incarnation is not None:
            with contextlib.suppress(Conflict):
                world.reader.store.delete(world.reader.paths.live(worker.incarnation))

    def _hurt(self, store: MemoryStore, kind: str) -> None:
        """Its session, a reply or its connection is lost."""
        if kind == "expire":
            self.world.server.expire(store.session)
        elif kind == "lose":
            self.rng.choice((store.lose_reply, store.lose_request))()
        else:
            seconds = self.rng.uniform(0.1, 1.5) * self.session
            self.rng.choice((store.disconnect, store.cut))()
            self.world.timeline.after(seconds, store.reconnect)
            if seconds > 0.8 * self.session:
                self._expire_soon(store)

    def _kill(self, process: Process) -> None:
        """kill -9; it is started again, or not."""
        world = self.world
        _, store, victim = world.struck[process]
        world.kill(process, store, self.rng.uniform(0.7, 1.0) * self.session)
        if isinstance(victim, WorkerProcess):
            world.timeline.after(self.rng.uniform(0.2, 3 * self.session), lambda: world.join(victim.spec.id, only=True))
        elif isinstance(victim, RunProcess) and self.rng.random() < 0.5:
            world.timeline.after(self.rng.uniform(0.5, 2 * self.session), lambda: world.launch_again(victim))

    def _expire_soon(self, store: MemoryStore) -> None:
        self.world.expire_later(store.session, self.rng.uniform(0.7, 1.0) * self.session)
