"""One world under one assignor with one seed, event by event."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from rota.coordination import wishes
from rota.coordination.ownership import Guards as Owning
from rota.coordination.publication import Guards as Publishing
from rota.coordination.records import Loads, WorkerWishes
from rota.coordination.tree import Tree
from rota.core import Worker
from rota.core.reconcile import Guards as Reconciling
from rota.ids import key_of, pipeline_of, worker_of
from rota.sim.actors import Agent, Run, seconds
from rota.sim.checker import Checker
from rota.sim.controller import Controller
from rota.sim.journal import JournalServer
from rota.sim.meter import Meter
from rota.sim.protocols import protocol
from rota.sim.table import Table
from rota.sim.timeline import Life, Process, Timeline
from rota.sim.truth import Truth
from rota.sim.world import Happening, World

ROWS = 1_000.0  # rows a second for each unit of load
MAX_BATCH = 30.0  # seconds of a partition's rows that one batch may take


@dataclass(frozen=True, slots=True)
class Ablation:
    """Which guards stand. One that is taken out makes the checker count what breaks instead of stopping there."""

    reconcile: Reconciling = field(default_factory=Reconciling)
    ownership: Owning = field(default_factory=Owning)
    table: bool = True
    publication: Publishing = field(default_factory=Publishing)
    policy: bool = True  # the controller keeps to budget, cooldown and grace

    @property
    def removed(self) -> bool:
        """Whether any guard is missing."""
        return self != Ablation()


@dataclass(frozen=True, slots=True)
class Result:
    """What one run of a world shows. Seconds are partition-seconds for `unowned` and `doubly`."""

    world: str
    assignor: str
    seed: int
    duration: float
    imbalance_p50: float
    imbalance_p99: float
    moves: int
    unavoidable: int
    converge: float
    unowned: float
    doubly: float
    commits: int
    refused: int
    epochs: int
    events: int
    violations: Mapping[str, int]
    series: tuple[tuple[float, float], ...]
    jumps: tuple[tuple[float, int], ...]


class Simulation:
    """The actors, their store, and the clock that they share without knowing."""

    def __init__(
        self,
        world: World,
        assignor: str = "sticky",
        seed: int = 1,
        options: Mapping[str, Any] | None = None,
        ablation: Ablation | None = None,
        protocol_name: str = "assigned",
    ) -> None:
        self.world, self.assignor, self.seed = world, assignor, seed
        self.ablation = ablation or Ablation()
        self.rng = Random(f"{world.name}/{seed}")
        self.group, self.protocol_name = "sim", protocol_name
        self.protocol = protocol(protocol_name)
        self.again = f"rota simulate --world {world.name} --assignor {assignor} --seed {seed}"
        self.timeline = Timeline(self._after_event)
        self.server = JournalServer(lambda: self.timeline.now, world.timing.session)
        self.reader = Tree(self.server.connect(), self.group)
        self._found(options or {})
        base = {p.id: p.load for p in world.partitions}
        self.base = dict(base)
        self.truth = Truth(dict(base))
        self.reported = {p: load * ROWS for p, load in base.items()}
        self.capacity = {w.id: w.capacity for w in world.team}
        start = sum(w.capacity for w in world.team if w.id not in world.later)
        self.strength = sum(base.values()) / start / world.utilization  # load that keeps capacity 1.0 fully busy
        self.checker, self.meter = Checker(self), Meter(self)
        self.table = Table(fence=self.ablation.table)
        self.table.on_commit = self.checker.committed
        self.agents: dict[str, list[Agent]] = {w.id: [] for w in world.team}
        self.runs: dict[str, tuple[Run, Process]] = {}
        self.slowness: dict[str, float] = {}
        self.stock = dict.fromkeys(base, 0.0)  # rows produced up to `stocked`
        self.stocked = 0.0
        self.controller = Controller(self) if self.protocol.controller else None
        self.dirty = False
        self._loads_by: dict[str, float] | None = None  # of each worker; None: to be counted again
        self.number = 0

    def _found(self, options: Mapping[str, Any]) -> None:
        """The group, its policy and its partitions are there."""
        policy = self.world.policy
        keys: dict[str, list[str]] = {p.source: [] for p in self.world.partitions}
        for partition in self.world.partitions:
            keys[partition.source].append(key_of(partition.id))
        self.reader.found(
            assignor=self.assignor if self.protocol.controller else None,
            options=options,
            protocol=self.protocol_name,
            budget=policy.budget,
            cooldown=float(policy.cooldown),
            grace=float(policy.grace),
        )
        for source, mine in keys.items():
            self.reader.grow(source, mine)

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.timeline.now

    def run(self) -> Result:
        """Lets the world happen. Raises Violation."""
        world = self.world
        if world.initial:
            self._settle(world.initial)
        for worker in world.team:
            if worker.id not in world.later:
                self._join(worker.id)
        if self.controller is not None:
            self.timeline.spawn(self.controller.life())
        self.timeline.spawn(self._backlog(), 3.0)
        self.timeline.spawn(self._loads(), 2.0)
        for happening in world.happenings:
            self.timeline.at(happening.at, lambda h=happening: self._strike(h))  # type: ignore[misc]
        self.timeline.run(world.duration)
        self.meter.passes()
        self.meter.closes()
        self.checker.at_the_end()
        return self._result()

    def _result(self) -> Result:
        meter = self.meter
        return Result(
            world=self.world.name,
            assignor=self.assignor,
            seed=self.seed,
            duration=self.world.duration,
            imbalance_p50=meter.percentile(0.5),
            imbalance_p99=meter.percentile(0.99),
            moves=meter.moves,
            unavoidable=meter.unavoidable,
            converge=max(meter.waits, default=0.0),
            unowned=meter.unowned_seconds,
            doubly=meter.doubly_seconds,
            commits=self.table.commits,
            refused=self.table.refused,
            epochs=self.reader.head().record.epoch,
            events=self.timeline.events,
            violations=dict(self.checker.found),
            series=tuple(meter.series),
            jumps=tuple((t, n) for t, n, _ in meter.jumps),
        )

    # --- after every event

    def _after_event(self) -> None:
        self.meter.passes()
        if self.server.journal or self.dirty:
            lives = len(self.truth.live)
            changes = self.truth.take_in(self.server)
            self.checker.after_event(changes)
            if changes or self.dirty:
                self._loads_by = None
            if changes or self.dirty or lives != len(self.truth.live):
                self.meter.changed(changes)
            self.dirty = False
        self.meter.doubly = len(self.truth.doubly)

    # --- what the actors ask of their world

    def late(self, worker: str) -> float:
        """How late the next answer is for this worker."""
        timing = self.world.timing
        mean = timing.latency + timing.under_load * self.usage_of(worker) if worker else timing.latency
        return self.rng.expovariate(1.0 / mean) * self.slowness.get(worker, 1.0) if mean > 0 else 0.0

    def usage_of(self, worker: str) -> float:
        """The true utilization of a worker."""
        if self._loads_by is None:
            self._loads_by = dict.fromkeys(self.capacity, 0.0)
            for partition, owner in self.truth.owner.items():
                if owner is not None:
                    self._loads_by[worker_of(owner)] += self.truth.load[partition]
        return self._loads_by[worker] / (self.strength * self.capacity[worker])

    def batch_seconds(self, worker: str, rows: float) -> float:
        """How long a batch of that many rows takes there."""
        speed = self.strength * self.capacity[worker] * ROWS
        jitter = self.rng.uniform(0.8, 1.25)
        return jitter * seconds(rows, speed, self.world.timing.batch, self.slowness.get(worker, 1.0))

    def end_of_batch(self, partition: str, start: int) -> int:
        """The offset behind the last row that the source has, or that one batch may take."""
        load = self.truth.load[partition] * ROWS
        there = math.floor(self.stock[partition] + load * (self.now - self.stocked))
        return min(there, start + math.ceil(load * MAX_BATCH))

    def cap_of(self, worker: str) -> int | None:
        """The cap that people or the worker itself set."""
        announced = next(w.max_partitions for w in self.world.team if w.id == worker)
        return wishes.cap(self.reader, worker, announced)

    def must_give(self, incarnation: str) -> bool:
        """Whether this owner could not keep what it gives: gone, leaving, drained, or over its cap."""
        worker = worker_of(incarnation)
        agent = next((a for a in self.agents[worker] if a.incarnation == incarnation), None)
        if incarnation not in self.truth.live or agent is None or agent.live.leaving:
            return True
        wish = self.reader.worker_wishes().get(worker)
        cap = self.cap_of(worker)
        return (wish is not None and wish.record.draining) or (cap is not None and self.truth.held[incarnation] >= cap)

    # --- what happens

    def _join(self, worker: str) -> None:
        spec = next(w for w in self.world.team if w.id == worker)
        agent = Agent(self, spec)
        self.agents[worker].append(agent)
        agent.process = self.timeline.spawn(agent.life(), self.rng.uniform(0, 0.5))

    def _settle(self, owners: Mapping[str, str]) -> None:
        """The target at the start is given, not chosen."""
        if self.controller is not None:
            self.controller.settle(owners)

    def _strike(self, happening: Happening) -> None:
        if happening.what not in ("lag", "die"):
            self.meter.strikes()
        getattr(self, f"_{happening.what}_now")(happening)
        self.dirty = True

    def _alive(self, worker: str) -> list[Agent]:
        return [a for a in self.agents[worker] if a.process.alive]

    def _join_now(self, h: Happening) -> None:
        self._join(h.who)

    def _restart_now(self, h: Happening) -> None:
        self._join(h.who)

    def _leave_now(self, h: Happening) -> None:
        for agent in self._alive(h.who):
            agent.leave()

    def _crash_now(self, h: Happening) -> None:
        """The machine dies: agent, Spark and runs at once; their sessions expire later."""
        for agent in self._alive(h.who):
            agent.process.kill()
            self.truth.dead |= {agent.incarnation} if agent.incarnation else set()
            self._expire_later(agent.store.session)
        for run, process in list(self.runs.values()):
            if run.worker == h.who and process.alive:
                process.kill()
                run.stop()
                self._expire_later(run.store.session)

    def _expire_later(self, session: int, delay: float | None = None) -> None:
        self.timeline.after(delay or self.world.timing.session, lambda: self.server.expire(session))

    def _freeze_now(self, h: Happening) -> None:
        """The agent stands still; a run is another process and goes on."""
        for agent in self._alive(h.who):
            agent.process.frozen_until = self.now + h.value
            if h.value > self.world.timing.session:
                self._expire_later(agent.store.session)

    def _cut_now(self, h: Happening) -> None:
        """No network for a while."""
        for agent in self._alive(h.who):
            agent.store.disconnect()
            self.timeline.after(h.value, agent.store.reconnect)
            if h.value > self.world.timing.session:
                self._expire_later(agent.store.session)

    def _wish(self, worker: str, **changes: Any) -> None:
        path = self.reader.paths.worker(worker)
        self.reader.update(path, WorkerWishes, lambda now: (now or WorkerWishes()).model_copy(update=changes))

    def _drain_now(self, h: Happening) -> None:
        self._wish(h.who, draining=True)

    def _undrain_now(self, h: Happening) -> None:
        self._wish(h.who, draining=False)

    def _cordon_now(self, h: Happening) -> None:
        self._wish(h.who, cordoned=h.value > 0)

    def _cap_now(self, h: Happening) -> None:
        self._wish(h.who, max_partitions=None if h.value < 0 else int(h.value))

    def _die_now(self, h: Happening) -> None:
        """The controller dies when so many more of its writes have reached the server; another takes its place."""
        if self.controller is not None:
            self.controller.store.left = int(h.value)

    def _lag_now(self, h: Happening) -> None:
        self.slowness[h.who] = h.value

    def _load_now(self, h: Happening) -> None:
        self._produce()
        self.base[h.who] *= h.value
        self.truth.load[h.who] *= h.value

    # --- the rest of the world

    def _produce(self) -> None:
        for partition, load in self.truth.load.items():
            self.stock[partition] += load * ROWS * (self.now - self.stocked)
        self.stocked = self.now

    def _backlog(self) -> Life:
        """One run for each live incarnation that owns something and has no run, as the sensor does it."""
        while True:
            owned: dict[str, list[str]] = {}
            for partition, owner in self.truth.owner.items():
                if owner in self.truth.live and owner is not None:
                    owned.setdefault(owner, []).append(partition)
            for incarnation in sorted(owned):
                busy = self.runs.get(incarnation)
                if busy is None or not busy[1].alive:
                    self.number += 1
                    run = Run(self, self.number, incarnation, tuple(sorted(owned[incarnation])))
                    self.runs[incarnation] = (run, self.timeline.spawn(run.life()))
            yield self.world.timing.backlog

    def _loads(self) -> Life:
        """Loads wander; reports follow them, smoothed and noisy."""
        world, rng = self.world, self.rng
        step = world.timing.report
        while True:
            if world.drift > 0:
                self._produce()
                for partition in self.truth.load:
                    self.truth.load[partition] *= math.exp(rng.gauss(0, world.drift * math.sqrt(step / 60)))
                self.dirty = True
            for partition, load in self.truth.load.items():
                seen = load * ROWS * rng.uniform(1 - world.noise, 1 + world.noise)
                self.reported[partition] += 0.6 * (seen - self.reported[partition])
            self._record_loads()
            for agents in self.agents.values():
                for agent in agents:
                    if agent.process.alive:
                        agent.report(self._usage(agent.spec))
            yield step

    def _record_loads(self) -> None:
        by_source: dict[str, dict[str, float]] = {}
        for partition, rate in self.reported.items():
            by_source.setdefault(pipeline_of(partition), {})[key_of(partition)] = rate
        for source, rates in by_source.items():
            self.reader.update(self.reader.paths.load(source), Loads, lambda _, r=rates: Loads(rates=r))  # type: ignore[misc]

    def _usage(self, spec: Worker) -> dict[str, float]:
        busy = min(1.0, self.usage_of(spec.id))
        load = busy * self.strength * spec.capacity
        return {
            "cpu": busy,
            "memory": 0.4,
            "bandwidth_in": 0.5 * busy,
            "bandwidth_out": 0.4 * busy,
            "rate": load * ROWS,
            "throughput": load * ROWS * 100,
        }
