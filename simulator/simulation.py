"""One world under one assignor with one seed, event by event."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from rota.coordination.alone import found_own_records
from rota.coordination.records import WorkerOverrides
from rota.core import Worker
from rota.core.protocols.known_protocols import ASSIGNED
from rota.errors import RotaError
from rota.ids import key_of, worker_of
from rota.run.work import find_work
from simulator.actors import SHIPPED, Parts, WorkerProcess
from simulator.alone_checker import AloneChecker
from simulator.controller import Controller
from simulator.log_checker import LoggedCommit
from simulator.meter import Meter
from simulator.stage import Stage
from simulator.timeline import Life
from simulator.world import Happening, World

ROWS = 1_000.0  # rows a second for each unit of load
SUPERVISED = 0.03  # seconds from the death of an agent to the end of its session, by its supervisor
MAX_BATCH = 30.0  # seconds of a partition's rows that one batch may take


@dataclass(frozen=True, slots=True)
class Result:
    """The measures of one run of a world. `unowned` and `doubly` are in partition-seconds."""

    world: str
    assignor: str
    seed: int
    duration: float
    imbalance_p50: float
    imbalance_p99: float
    moves: int
    unavoidable_moves: int
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


class Simulation(Stage):
    """One world under one assignor or protocol."""

    def __init__(
        self,
        world: World,
        assignor: str = "sticky",
        seed: int = 1,
        options: Mapping[str, Any] | None = None,
        parts: Parts = SHIPPED,
        protocol: str = ASSIGNED,
    ) -> None:
        self.world, self.assignor, self.seed, self.protocol = world, assignor, seed, protocol
        base = {p.id: p.load for p in world.partitions}
        how = f"--assignor {assignor}" if protocol == ASSIGNED else f"--protocol {protocol}"
        again = f"python -m simulator --world {world.name} {how} --seed {seed}"
        super().__init__(base, world.team, world.timing, Random(f"{world.name}/{seed}"), parts, again)
        if protocol != ASSIGNED:
            self.checker = AloneChecker(self, strict=False)
        self.checker.strict = parts == SHIPPED
        self.policy, self.options, self.happenings = world.policy, options or {}, world.happenings
        self._found_group(self.options)
        self.base = dict(base)
        self.truth.load = dict(base)
        self.capacity = {w.id: w.capacity for w in world.team}
        start = sum(w.capacity for w in world.team if w.id not in world.later)
        self.strength = sum(base.values()) / start / world.utilization  # load that keeps capacity 1.0 fully busy
        self.meter = Meter(self, world.begin, self.capacity, self.must_give)
        self.slowness: dict[str, float] = {}
        self.stock = dict.fromkeys(base, 0.0)  # rows produced up to `stocked`
        self.stocked = 0.0
        self.controller = Controller(self, world.begin if world.initial else 1.0)
        self.dirty = False
        self._loads_by: dict[str, float] | None = None  # of each worker; None: to be counted again
        self.number = 0

    def _found_group(self, options: Mapping[str, Any]) -> None:
        """Found the group, its policy and its partitions."""
        policy = self.world.policy
        keys: dict[str, list[str]] = {p.source: [] for p in self.world.partitions}
        for partition in self.world.partitions:
            keys[partition.source].append(key_of(partition.id))
        self.reader.found(
            assignor=self.assignor,
            protocol=self.protocol,
            options=options,
            budget=policy.budget,
            cooldown=float(policy.cooldown),
            grace=float(policy.grace),
        )
        for source, mine in keys.items():
            self.reader.grow(source, mine)
        if self.protocol != ASSIGNED:
            found_own_records(self.reader, [p.id for p in self.world.partitions])

    def run(self) -> Result:
        """Play the world and return its measures. Raises Violation."""
        world = self.world
        if world.initial:
            self.controller.settle(world.initial)
        for worker in world.team:
            if worker.id not in world.later:
                self._join(worker.id)
        if self.protocol == ASSIGNED:
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
            assignor=self.assignor if self.protocol == ASSIGNED else self.protocol,
            seed=self.seed,
            duration=self.world.duration,
            imbalance_p50=meter.percentile(0.5),
            imbalance_p99=meter.percentile(0.99),
            moves=meter.moves,
            unavoidable_moves=meter.unavoidable_moves,
            converge=max(meter.waits, default=0.0),
            unowned=meter.unowned_seconds,
            doubly=meter.doubly_seconds,
            commits=sum(len(one.ranges) for one in map(LoggedCommit.of, self.log.commits) if one.op == "commit"),
            refused=self.table.refused,
            epochs=self.reader.head().record.epoch,
            events=self.timeline.events,
            violations=dict(self.checker.found),
            series=tuple(meter.series),
            jumps=tuple((t, n) for t, n, _ in meter.jumps),
        )

    # --- after every event

    def after_event(self) -> None:
        """Judge and measure an event. Most events only read, or pass time, and need neither."""
        truth = self.truth
        if len(truth.doubly) != self.meter.doubly:
            self.meter.passes()
            self.meter.doubly = len(truth.doubly)
        if not (self.dirty or self.server.journal or self.checker.pending):
            return
        lives, changes = len(truth.live), truth.take_in(self.server)
        self.checker.after_event(changes)
        if changes.owners or self.dirty:
            self._loads_by = None
        if changes.owners or self.dirty or lives != len(truth.live):
            self.meter.passes()
            self.meter.changed(changes.owners)
        self.dirty = False

    # --- decisions of the world

    def late(self, worker: str) -> float:
        """Return the seconds until the next answer for this worker."""
        timing = self.world.timing
        mean = timing.latency + timing.under_load * self.usage_of(worker) if worker else timing.latency
        return self.rng.expovariate(1.0 / mean) * self.slowness.get(worker, 1.0) if mean > 0 else 0.0

    def usage_of(self, worker: str) -> float:
        """Return the true utilization of a worker."""
        if self._loads_by is None:
            self._loads_by = dict.fromkeys(self.capacity, 0.0)
            for partition, owner in self.truth.owner.items():
                if owner is not None:
                    self._loads_by[worker_of(owner)] += self.truth.load[partition]
        return self._loads_by[worker] / (self.strength * self.capacity[worker])

    def batch_seconds(self, worker: str, rows: float) -> float:
        """Return the seconds that a batch of this many rows takes on this worker."""
        speed = self.strength * self.capacity[worker] * ROWS
        jitter = self.rng.uniform(0.8, 1.25)
        return (
            jitter * (self.timing.batch + rows / max(speed, 1e-9)) * math.sqrt(max(1.0, self.slowness.get(worker, 1.0)))
        )

    def batch_limit(self, partition: str) -> int:
        """Return the rows that the source produces in `MAX_BATCH` seconds."""
        return math.ceil(self.truth.load[partition] * ROWS * MAX_BATCH)

    def read_end(self, partition: str) -> int:
        """Return the offset behind the last row of the source."""
        load = self.truth.load[partition] * ROWS
        return math.floor(self.stock[partition] + load * (self.now - self.stocked))

    def rest(self, worker: WorkerProcess) -> float:  # noqa: ARG002
        """Return about `poll` seconds."""
        return self.rng.uniform(0.7, 1.3) * self.timing.poll

    def is_quiet(self, worker: WorkerProcess) -> bool:
        """Whether no record changed and the agent waits for nothing, so that an observation can be skipped."""
        state = worker.agent.state
        chooser = worker.agent.chooser
        nothing_new = worker.seen == self.server.stirred and state.suspended is None and not chooser.pending
        nothing_new = nothing_new and (chooser.due is None or chooser.due > worker.agent.clock())
        return nothing_new and state.incarnation is not None and not worker.agent.unsettled

    def clock(self, worker: str) -> float:
        """Return the time of the worker's own clock, which differs from all others."""
        offset, rate = self.world.skew.get(worker, (0.0, 1.0))
        return offset + rate * self.now

    def note_error(self, process: object, error: RotaError) -> None:
        """Ignore the failure: the next run does the work."""

    def must_give(self, incarnation: str) -> bool:
        """Return whether this owner cannot keep a partition: it is gone, leaving, drained, or at its cap."""
        worker, cap = worker_of(incarnation), self.truth.cap(worker_of(incarnation))
        gone = incarnation not in self.truth.live or self.truth.announced[incarnation]["leaving"]
        return gone or not self.truth.may_keep(worker) or (cap is not None and self.truth.held[incarnation] >= cap)

    # --- happenings

    def _join(self, worker: str) -> None:
        self.start_worker(worker, self.rng.uniform(0, 0.5))

    def _strike(self, happening: Happening) -> None:
        if happening.what not in ("lag", "die"):
            self.meter.strikes()
        getattr(self, f"_{happening.what}_now")(happening)
        self.dirty = True

    def _join_now(self, h: Happening) -> None:
        self._join(h.target)

    def _restart_now(self, h: Happening) -> None:
        self._join(h.target)

    def _leave_now(self, h: Happening) -> None:
        for worker in self.alive(h.target):
            worker.agent.leave()

    def _crash_now(self, h: Happening) -> None:
        """Kill agent, Spark and runs of a machine at once; their sessions expire later."""
        for worker in self.alive(h.target):
            self.truth.dead |= {worker.incarnation} if worker.incarnation else set()
            self.kill(worker.process, worker.store)
        for run in self.runs:
            if run.worker == h.target and run.process.alive:
                self.kill(run.process, run.store)

    def _kill_now(self, h: Happening) -> None:
        """Kill the agent; its supervisor ends the session at once. A run is another process and continues as a zombie."""
        for worker in self.alive(h.target):
            self.truth.dead |= {worker.incarnation} if worker.incarnation else set()
            self.kill(worker.process, worker.store, SUPERVISED)

    def _freeze_now(self, h: Happening) -> None:
        """Freeze the agent. A run is another process and continues."""
        for worker in self.alive(h.target):
            worker.process.frozen_until = self.now + h.value
            if h.value > self.world.timing.session:
                self.expire_later(worker.store.session)

    def _cut_now(self, h: Happening) -> None:
        """Cut the network for a while."""
        for worker in self.alive(h.target):
            worker.store.disconnect()
            self.timeline.after(h.value, worker.store.reconnect)
            if h.value > self.world.timing.session:
                self.expire_later(worker.store.session)

    def _override(self, worker: str, **changes: Any) -> None:
        path = self.reader.paths.worker(worker)
        self.reader.update(path, WorkerOverrides, lambda now: (now or WorkerOverrides()).model_copy(update=changes))

    def _drain_now(self, h: Happening) -> None:
        self._override(h.target, draining=True)

    def _undrain_now(self, h: Happening) -> None:
        self._override(h.target, draining=False)

    def _cordon_now(self, h: Happening) -> None:
        self._override(h.target, cordoned=h.value > 0)

    def _cap_now(self, h: Happening) -> None:
        self._override(h.target, max_partitions=None if h.value < 0 else int(h.value))

    def _die_now(self, h: Happening) -> None:
        """Let the controller die after this many more writes. Another process replaces it."""
        self.controller.store.left = int(h.value)

    def _lag_now(self, h: Happening) -> None:
        self.slowness[h.target] = h.value

    def _load_now(self, h: Happening) -> None:
        self._produce()
        self.base[h.target] *= h.value
        self.truth.load[h.target] *= h.value

    # --- the rest of the world

    def _produce(self) -> None:
        for partition, load in self.truth.load.items():
            self.stock[partition] += load * ROWS * (self.now - self.stocked)
        self.stocked = self.now

    def _backlog(self) -> Life:
        """Start runs as Dagster's sensor does: `find_work` for each pipeline, one run at a time for an incarnation."""
        sources = sorted({p.source for p in self.world.partitions})
        while True:
            busy = {run.incarnation for run in self.runs if run.process.alive}
            found: dict[str, list[str]] = {}
            for name in sources:
                for work in find_work(self.reader, replace(self.pipeline, name=name), self.source):
                    found.setdefault(work.incarnation, []).extend(work.lags)
            for incarnation in sorted(found.keys() - busy - self.truth.dead):
                self.number += 1
                self.start_run(f"r{self.number}", incarnation, found[incarnation])
            yield self.world.timing.backlog

    def _loads(self) -> Life:
        """Let loads drift and workers report their usage. Runs measure the load of a partition."""
        world, rng = self.world, self.rng
        step = world.timing.report
        while True:
            if world.drift > 0:
                self._produce()
                for partition in self.truth.load:
                    self.truth.load[partition] *= math.exp(rng.gauss(0, world.drift * math.sqrt(step / 60)))
                self.dirty = True
            for name in self.workers:
                for worker in self.alive(name):
                    worker.report(self._usage(worker.spec))
            yield step

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
