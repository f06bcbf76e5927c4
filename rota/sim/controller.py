"""The controller: snapshot -> plan -> publish, level-triggered, as the rebalance job does it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rota.coordination.records import Head, Own, Slot, Slots, encode
from rota.coordination.store import Check, Create, Op, Set
from rota.coordination.tree import Tree
from rota.core import Partition, Plan, Snapshot, Worker, plan
from rota.errors import CoordinationError
from rota.sim.timeline import Life

if TYPE_CHECKING:
    from rota.sim.simulation import Simulation

LOOK = 60.0  # seconds after which a load-driven group is looked at again, if its assignor does not say


class Controller:
    """Looks whenever something stirred, or a decision is due; publishes what it planned, and nothing else."""

    def __init__(self, sim: "Simulation", assignor: str, options: Mapping[str, Any]) -> None:
        self.sim, self.assignor, self.options = sim, assignor, options
        self.store = sim.server.connect()
        self.tree = Tree(self.store, sim.group)
        self.memory: Mapping[str, Any] = {}
        self.absences: dict[str, float] = {}
        self.seen: object = None
        self.stirred = -1
        self.due: float | None = None
        self.plans = 0

    def life(self) -> Life:
        """One look a second; where the start is given, from `begin` on."""
        yield self.sim.world.begin if self.sim.world.initial else 1.0
        while True:
            try:
                basis = self._basis() if self.stirred != self.sim.server.stirred else self.seen
                self.stirred = self.sim.server.stirred
                if basis != self.seen or (self.due is not None and self.due <= self.sim.now):
                    yield self.sim.late("")
                    self.rebalance()
                    self.seen = basis
            except CoordinationError:
                pass
            yield 1.0

    def _basis(self) -> object:
        """What a plan depends on but loads: incarnations and states, wishes, partitions."""
        lives = tuple((v.incarnation, v.record.leaving if v.record else None) for v in self.tree.live())
        return lives, tuple(sorted((w, r.version) for w, r in self.tree.worker_wishes().items()))

    def rebalance(self) -> Plan:
        """One round."""
        snapshot = self.snapshot()
        result = plan(snapshot, self.assignor, self.options, self.memory, self.sim.world.policy)
        self.memory, self.due = result.memory, result.due
        self.plans += 1
        self.sim.checker.planned(result)
        if len(result.moves) or len(result.unassigned) or snapshot.epoch == 0:
            self.publish(result.assignment.as_dict())
        return result

    def snapshot(self) -> Snapshot:
        """What the planner reads, from the tree."""
        head, targets = self.tree.targets()
        owned = self.tree.owned()
        live = self.tree.newest(self.tree.live())
        wishes = self.tree.worker_wishes()
        workers = [self._worker(w, live[w].record, wishes) for w in live]
        owners = {p: w for w, t in targets.items() for p in t.partitions}
        for partition, view in owned.items():
            if owners.get(partition) not in live and view.incarnation is not None:
                owners[partition] = view.incarnation.rpartition("@")[0]
        gone = {w for w in owners.values() if w not in live}
        self.absences = {w: self.absences.get(w, self.sim.now) for w in gone}
        reported = self.sim.reported
        partitions = [
            Partition(p.id, p.source, reported[p.id], p.requires, p.pin, reported[p.id] * 1_000, reported[p.id] * 1e6)
            for p in self.sim.world.partitions
        ]
        return Snapshot.of(workers, partitions, owners, head.record.epoch, self.sim.now, self.absences)

    def _worker(self, name: str, record: Any, wishes: Mapping[str, Any]) -> Worker:
        wish = wishes[name].record if name in wishes else None
        state = "active"
        if (record is not None and record.leaving) or (wish is not None and wish.draining):
            state = "draining"
        elif wish is not None and wish.cordoned:
            state = "cordoned"
        cap = wish.max_partitions if wish is not None and wish.max_partitions is not None else None
        return Worker(
            name,
            capacity=record.capacity,
            zone=record.zone,
            labels=record.labels,
            state=state,
            usage=record.usage,
            max_partitions=cap if cap is not None else record.max_partitions,
        )

    def publish(self, target: Mapping[str, tuple[str, ...]]) -> None:
        """Slots of each changed worker, then the one compare-and-set that makes them current."""
        head, paths = self.tree.head(), self.tree.paths
        slots = self.tree.assigns()
        epoch = 1 + max([head.record.epoch, *(s.record.newest for s in slots.values())])
        control = Check(paths.controller, self.tree.controller().version) if self.sim.ablation.controller else None
        ops: list[Op] = [control] if control else []
        for worker in sorted({*slots, *target}):
            wanted = frozenset(target.get(worker, ()))
            seen = slots.get(worker)
            now = seen.record.effective(head.record.epoch) if seen is not None else None
            if now is not None and now.partitions == wanted and seen is not None and seen.record.newest == now.epoch:
                continue
            kept = (now,) if now is not None else ()
            record = encode(Slots(slots=(*kept, Slot(epoch=epoch, partitions=wanted))))
            path = paths.assign(worker)
            ops.append(Create(path, record) if seen is None else Set(path, record, seen.version))
        self._make_own_records(target)
        self.store.multi(ops)
        flip: list[Op] = [control] if control else []
        self.store.multi([*flip, Set(paths.head, encode(Head(epoch=epoch)), head.version)])

    def _make_own_records(self, target: Mapping[str, tuple[str, ...]]) -> None:
        there = set(self.store.children(self.tree.paths.owns))
        fresh = [p for parts in target.values() for p in parts if p not in there]
        for partition in fresh:
            self.store.create(self.tree.paths.own(partition), encode(Own()))
