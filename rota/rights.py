"""What a run may work on: step 1 of a batch.

Law: own records are read before live nodes, and both after the run's own node was made: whoever takes a partition over by
force sees that a run is there, and whoever finds no run knows that none will come.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota.coordination.ownership import Ownership
from rota.coordination.parking import unreadable, waiting
from rota.coordination.records import Checkpoint, Parked
from rota.coordination.tree import OwnView, Read, RunView, Tree
from rota.ids import worker_of


@dataclass(frozen=True, slots=True)
class Rights:
    """The partitions that a run holds, those it does not with the reason, and what goes with both."""

    held: Mapping[str, Ownership]
    dropped: Mapping[str, str]
    parked: Mapping[str, Parked]  # those held although they were parked: their time has come
    checkpoints: Mapping[str, Read[Checkpoint]]  # read before the table is opened
    epoch: int
    endpoint: str | None


def rights(tree: Tree, incarnation: str, node: str, partitions: Iterable[str]) -> Rights:
    """What `incarnation` holds of `partitions` for the run whose node is at `node`."""
    wanted = tuple(dict.fromkeys(partitions))
    tree.store.sync()
    own = tree.owned(wanted)
    epoch, target = target_of(tree, worker_of(incarnation))
    live = {one.incarnation: one for one in tree.live()}
    elder = _elder(tree.runs({incarnation}), node)
    parked = {p: one.record for p, one in tree.parked().items() if p in own}
    now = tree.store.now() if parked else 0.0
    checkpoints = tree.checkpoints(own)
    dropped: dict[str, str] = {}
    for p in wanted:
        if incarnation not in live:
            dropped[p] = f"{incarnation} is gone"
        elif live[incarnation].record is None:
            dropped[p] = f"what {incarnation} announces cannot be read"
        elif reason := _not_owned(own.get(p), incarnation):
            dropped[p] = unreadable(tree, p) or reason
        elif target is not None and p not in target:
            dropped[p] = f"epoch {epoch} gives it to another worker"
        elif p in elder:
            dropped[p] = f"run {elder[p]} works on it"
        elif p in parked and waiting(parked[p], now):
            dropped[p] = f"it is parked: {parked[p].reason}"
        elif reason := unreadable(tree, p):
            dropped[p] = reason
    held = {p: Ownership(p, incarnation, own[p].version, own[p].token) for p in wanted if p not in dropped}
    record = live[incarnation].record if held else None
    known = {p: read for p, read in checkpoints.items() if p in held}
    return Rights(held, dropped, parked, known, epoch, record.endpoint if record else None)


def target_of(tree: Tree, worker: str) -> tuple[int, frozenset[str] | None]:
    """The epoch in force and what it gives the worker; None under a protocol without a controller."""
    if tree.meta().protocol != "assigned":
        return 0, None
    target = tree.target(worker)
    return (tree.head().record.epoch, target.partitions) if target else (0, frozenset())


def still(tree: Tree, ownership: Ownership) -> bool:
    """Whether the own record is this moment what it was when the right was read."""
    tree.store.sync()
    now = tree.owned((ownership.partition,)).get(ownership.partition)
    return now is not None and (now.incarnation, now.version) == (ownership.incarnation, ownership.version)


def _not_owned(own: OwnView | None, incarnation: str) -> str:
    if own is None or own.incarnation is None:
        return "nobody owns it"
    return "" if own.incarnation == incarnation else f"{own.incarnation} owns it"


def _elder(runs: Iterable[RunView], node: str) -> dict[str, str]:
    """Partition -> the run of the same incarnation that was there first. Two runs never wait for each other."""
    runs = tuple(runs)
    name = node.rpartition("/")[2]
    mine = next((r.czxid for r in runs if r.name == name), None)
    elder = [r for r in runs if r.name != name and mine and r.czxid < mine]
    return {p: r.run_id for r in elder for p in r.partitions}
