"""A run as it is in life: an actor with a session of its own, that meets its agent in ZooKeeper only."""

import math
from typing import TYPE_CHECKING

from rota.coordination import membership
from rota.coordination.layout import worker_of
from rota.coordination.ownership import Ownership
from rota.coordination.records import Checkpoint, encode
from rota.coordination.store import Check, Create, Op, Set
from rota.coordination.tree import Tree
from rota.errors import Conflict, CoordinationError
from rota.sim.timeline import Life

if TYPE_CHECKING:
    from rota.sim.simulation import Simulation


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
