"""Agent and run as they are in life: two actors, each with a session of its own, that only meet in ZooKeeper."""

import math
from typing import TYPE_CHECKING

from rota.coordination import membership, ownership, wishes
from rota.coordination.ownership import Ownership
from rota.coordination.records import Checkpoint, Live, encode
from rota.coordination.store import Check, Create, Op, Set
from rota.coordination.tree import Tree
from rota.core import Worker
from rota.core.reconcile import (
    Announce,
    Batch,
    Event,
    Exit,
    Instruction,
    Join,
    Joined,
    Looked,
    Lost,
    Owner,
    Release,
    State,
    Suspended,
    Told,
    batches,
)
from rota.errors import Conflict, CoordinationError, Unavailable, Unknown
from rota.ids import is_incarnation, worker_of
from rota.sim.timeline import Life, Process

if TYPE_CHECKING:
    from rota.sim.simulation import Simulation


class Agent:
    """One life of one worker: joins, looks, does what its machine says. It drives the machine as the product's agent."""

    def __init__(self, sim: "Simulation", spec: Worker) -> None:
        self.sim, self.spec = sim, spec
        self.store = sim.server.connect()
        self.tree = Tree(self.store, sim.group)
        self.live = Live(
            protocol=sim.protocol_name,  # type: ignore[arg-type]
            capacity=spec.capacity,
            zone=spec.zone,
            labels=dict(spec.labels),
            max_partitions=spec.max_partitions,
        )
        self.state = State(spec.id, sim.world.timing.max_shutdown, sim.ablation.reconcile)
        self.session = 0
        self.seen = -1  # what had happened at the last look
        self.process = Process(self.life())

    @property
    def incarnation(self) -> str | None:
        """The incarnation that it acts as; None before it joined."""
        return self.state.incarnation

    def clock(self) -> float:
        """Its own monotonic clock, which agrees with nobody's."""
        offset, rate = self.sim.world.skew.get(self.spec.id, (0.0, 1.0))
        return offset + rate * self.sim.now

    def life(self) -> Life:
        """Until it exits or is killed."""
        yield self.sim.late(self.spec.id)
        while not self.state.done:
            try:
                yield from self._cycle()
            except (Unavailable, Unknown):
                self._feed_only(Suspended(self.clock()))
            yield self.sim.rng.uniform(0.7, 1.3) * self.sim.world.timing.poll
        self.store.close()

    def leave(self) -> None:
        """SIGTERM."""
        for instruction in self._feed_only(Told(self.clock())):
            self._do(instruction)

    def _feed_only(self, event: Event) -> tuple[Instruction, ...]:
        self.state, instructions = self.sim.protocol.machine(self.state, event)
        return instructions

    def _cycle(self) -> Life:
        if self.incarnation is not None and self.store.session != self.session:
            yield from self._feed(Lost(), None)
        elif not self.store.active():
            yield from self._feed(Suspended(self.clock()), None)
        elif self.incarnation is None:
            self.session = self.store.session
            yield from self._feed(Joined(membership.join(self.tree, self.spec.id, self.live)), None)
            self.seen = -1
        elif self.seen != self.sim.server.stirred or self._unsettled():
            self.seen = self.sim.server.stirred
            yield from self._look()
        else:
            self.store.get(self.tree.paths.head)  # a heartbeat: an expired session is noticed here

    def _late(self) -> float:
        return self.sim.late(self.spec.id)

    def _unsettled(self) -> bool:
        state = self.state
        return bool(state.waiting or state.draining) or state.leaving is not None or state.suspended is not None

    def _look(self) -> Life:
        """Target, own records, live incarnations, runs; the world goes on between them."""
        began, late = self.clock(), self._late
        cap = wishes.cap(self.tree, self.spec.id, self.spec.max_partitions)
        target = self.tree.target(self.spec.id)
        names = target.partitions if target is not None else None
        yield late()
        views = self.tree.owned(sorted(self.state.interest(names)))
        yield late()
        live = [n for n in self.store.children(self.tree.paths.lives) if is_incarnation(n)]
        yield late()
        mine = [n for n in live if worker_of(n) == self.spec.id]
        nodes = zip(self.store.get_many([self.tree.paths.live(n) for n in mine]), mine, strict=True)
        newest = max(((n.czxid, name) for n, name in nodes if n is not None), default=(0, None))[1]
        owners = {p: Owner(v.incarnation, v.version) for p, v in views.items()}
        runs = self.tree.runs({self.incarnation or ""}) if self.state.let_go(names, owners) else ()
        busy = frozenset(p for r in runs for p in r.partitions)
        look = Looked(
            began,
            self.clock(),
            target.epoch if target is not None else None,
            target.previous if target is not None else None,
            names,
            owners,
            frozenset(live),
            newest,
            busy,
            cap,
        )
        if self.store.session != self.session:
            yield from self._feed(Lost(), None)
        elif self._stale(look):
            self._feed_only(Suspended(self.clock()))
        else:
            yield from self._feed(look, target.version if target is not None else None)

    def _stale(self, look: Looked) -> bool:
        return self.sim.ablation.reconcile.prove and self.clock() - look.began > 0.6 * self.sim.world.timing.session

    def _feed(self, event: Event, assign_version: int | None) -> Life:
        for effect in batches(self._feed_only(event), ownership.AT_ONCE):
            if isinstance(effect, tuple):
                yield self.sim.late(self.spec.id)
                if isinstance(event, Looked) and (self._stale(event) or self.store.session != self.session):
                    self._feed_only(Suspended(self.clock()))
                    return
                self._write(effect, assign_version)
            else:
                self._do(effect)

    def _write(self, batch: Batch, assign_version: int | None) -> None:
        me, guards = self.incarnation or "", self.sim.ablation.ownership
        versions = {one.partition: one.version for one in batch}
        if isinstance(batch[0], Release):
            seen = assign_version if batch[0].reason == "revoked" else None
            refused = ownership.release_all(self.tree, me, versions, guards, seen)
        else:
            for one in batch:
                self.sim.checker.intends(me, one.partition, one.reason)
            refused = ownership.claim_all(self.tree, me, versions, assign_version, guards).refused
        if refused:
            self.seen = -1  # somebody else was first: look again

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Announce():
                self.live = self.live.model_copy(update={"leaving": True})
                try:
                    membership.announce(self.tree, self.incarnation or "", self.live)
                except Conflict:
                    self.seen = -1
            case Exit() | Join():
                self.seen = -1

    def report(self, usage: dict[str, float]) -> None:
        """Says how busy it is."""
        self.live = self.live.model_copy(update={"usage": usage})
        if (
            self.incarnation is not None
            and self.store.session == self.session
            and self.process.frozen_until <= self.sim.now
        ):
            try:
                membership.announce(self.tree, self.incarnation, self.live)
            except CoordinationError:
                return


class Run:
    """One run on behalf of an incarnation: registers, proves ownership, claims in the table, works, commits, checkpoints.

    It goes on when its agent stands still: then it is a zombie, and the table refuses it."""

    def __init__(self, sim: "Simulation", number: int, incarnation: str, partitions: tuple[str, ...]) -> None:
        self.sim, self.incarnation, self.partitions = sim, incarnation, partitions
        self.worker = worker_of(incarnation)
        self.name = f"r{number}"
        self.store = sim.server.connect()
        self.tree = Tree(self.store, sim.group)
        self.working: list[str] = []

    def life(self) -> Life:
        """One batch; on a dead machine, none."""
        if self.incarnation in self.sim.truth.dead:
            self.store.close()
            return
        try:
            yield from self._batch()
        except CoordinationError:
            pass
        finally:
            self.stop()
            self.store.close()

    def stop(self) -> None:
        """It no longer works on anything: done, or dead."""
        for partition in self.working:
            self.sim.truth.ends(partition, self.incarnation)
        self.working = []

    def _batch(self) -> Life:
        path = membership.register_run(self.tree, self.name, self.incarnation, self.partitions)
        yield self.sim.late(self.worker)
        kept = self._kept()
        if not kept:
            return
        table = self.sim.table
        starts = {p: s for p, o in kept.items() if (s := table.claim(p, o.token)) is not None}
        self.working = sorted(starts)
        for partition in self.working:
            self.sim.truth.begins(partition, self.incarnation)
        ends = {p: self.sim.end_of_batch(p, starts[p]) for p in starts}
        yield self.sim.batch_seconds(self.worker, sum(ends[p] - starts[p] for p in starts))
        done = []
        for partition in self.working:
            if table.commit(partition, kept[partition].token, starts[partition], ends[partition]):
                done.append(partition)
        self.stop()
        yield self.sim.late(self.worker)
        self._checkpoint(path, {p: kept[p] for p in done}, ends)

    def _kept(self) -> dict[str, Ownership]:
        """What the own records and the target give to this incarnation."""
        target = self.tree.target(self.worker)
        wanted = [p for p in self.partitions if target is not None and p in target.partitions]
        views = self.tree.owned(wanted)
        live = self.incarnation in self.store.children(self.tree.paths.lives)
        return {
            p: Ownership(p, self.incarnation, v.version, v.token)
            for p, v in views.items()
            if v.incarnation == self.incarnation and live
        }

    def _checkpoint(self, run: str, kept: dict[str, Ownership], ends: dict[str, int]) -> None:
        """All in one multi; a partition that was lost meanwhile is left out, and the rest sent again."""
        while kept:
            ops: list[Op] = [Check(run)]
            for partition, own in kept.items():
                path = self.tree.paths.checkpoint(partition)
                record = encode(Checkpoint(offset=ends[partition], token=own.token, run_id=self.name))
                node = self.store.get(path)
                write: Op = Set(path, record, node.version) if node is not None else Create(path, record)
                ops += [Check(self.tree.paths.own(partition), own.version), write]
            try:
                self.store.multi(ops)
            except Conflict as conflict:
                lost = conflict.path.rpartition("/")[2]
                if lost not in kept:
                    return
                kept = {p: o for p, o in kept.items() if p != lost}
            else:
                return


def seconds(rows: float, speed: float, overhead: float, slowness: float) -> float:
    """How long a batch takes."""
    return (overhead + rows / max(speed, 1e-9)) * math.sqrt(max(1.0, slowness))
