"""`sticky` if workers differ in which partitions they may hold.

Up to `MOST_ARCS` arcs the result is exact, by three flows over classes: balance, fewest moves, spread of sources. With
more arcs a greedy method finds a valid and nearly even result, and the plan's note states this.
"""

import numpy as np

from rota.core.assignors.hashing import hash_ids
from rota.core.assignors.partition_classes import PartitionClasses
from rota.core.assignors.selection import select_partitions
from rota.core.assignors.sticky.balance import balance_classes, compute_prices
from rota.core.assignors.sticky.fewest_moves import FewestMoves, minimise_moves
from rota.core.assignors.sticky.open_choices import MOST_CELLS, OpenChoices
from rota.core.assignors.sticky.source_spread import spread_by_flow
from rota.core.columns import count_per_worker
from rota.core.values import Bools, Codes, Floats, Ints, Snapshot

MOST_ARCS = 200_000  # pairs of a class and a worker that may hold it


def assign_constrained(snapshot: Snapshot, match: Bools, keeps: Codes) -> tuple[Codes, Ints, str]:
    """Return the target, the quota of each worker, and a note on what is not exact."""
    classes = PartitionClasses.of_snapshot(snapshot, match, keeps)
    capacity, workers = snapshot.team.capacity, len(snapshot.workers)
    if not len(classes.size):
        return np.full(len(keeps), -1, np.int32), np.zeros(workers, np.int64), ""
    arcs = int(classes.may.sum() + (classes.have > 0).sum())
    if arcs > MOST_ARCS:
        units = fill_greedily(classes, capacity)
        released, taken = np.maximum(classes.have - units, 0), np.maximum(units - classes.have, 0)
        note = f"greedy, not proven: {arcs:,} arcs are more than {MOST_ARCS:,}"
        return (
            select_partitions(_drop_unplaceable(classes, keeps), classes.of, released, taken),
            units.sum(axis=0),
            note,
        )
    units = balance_classes(classes, capacity)
    best = minimise_moves(classes, units, compute_prices(classes, units, capacity))
    quota = (best.kept + best.moved).sum(axis=0)
    if (best.kept == classes.have).all() and not best.moved.any():
        target = select_partitions(_drop_unplaceable(classes, keeps), classes.of, classes.have - best.kept, best.moved)
        return target, quota, ""
    group, choices = _find_open_choices(snapshot, classes, best, keeps)
    if choices is None:
        target = select_partitions(_drop_unplaceable(classes, keeps), classes.of, classes.have - best.kept, best.moved)
        return target, quota, f"sources are not spread: more than {MOST_CELLS:,} group-worker cells"
    released, taken = spread_by_flow(choices)
    stay = _drop_unplaceable(classes, keeps)
    left = _find_leaving(classes, best, stay)
    target = select_partitions(np.where(left, np.int32(-1), stay), group, released, taken)
    return target, count_per_worker(target, workers), ""


def _drop_unplaceable(classes: PartitionClasses, keeps: Codes) -> Codes:
    return np.where(classes.of < 0, np.int32(-1), keeps)


def _find_leaving(classes: PartitionClasses, best: FewestMoves, keeps: Codes) -> Bools:
    held = keeps >= 0
    return np.asarray(held & best.must_leave[np.maximum(classes.of, 0), np.maximum(keeps, 0)])


def _find_open_choices(
    snapshot: Snapshot, classes: PartitionClasses, best: FewestMoves, keeps: Codes
) -> tuple[Codes, OpenChoices | None]:
    """Split classes by source into groups. Return the group of each partition, -1 if no worker may hold it, and the open
    choices, None if there are too many cells."""
    workers, sources = len(snapshot.workers), len(snapshot.sources)
    fits = classes.of >= 0
    pair = classes.of.astype(np.int64) * sources + snapshot.source
    pairs, code = np.unique(pair[fits], return_inverse=True)
    group = np.full(len(keeps), -1, np.int32)
    group[fits] = code
    if len(pairs) * workers > MOST_CELLS:
        return group, None
    of, source = pairs // sources, pairs % sources
    stays = (keeps >= 0) & fits & ~_find_leaving(classes, best, _drop_unplaceable(classes, keeps))
    have = np.bincount(group[stays].astype(np.int64) * workers + keeps[stays], minlength=len(pairs) * workers)
    rows = classes.may[of]
    salt = hash_ids(snapshot.sources)[source] + (rows @ (hash_ids(w.id for w in snapshot.workers) % 999983)) % 999983
    choices = OpenChoices(
        have=have.reshape(len(pairs), workers),
        source=source,
        free=np.bincount(group[fits & ~stays], minlength=len(pairs)),
        release=best.may_leave[of],
        take=best.may_come[of],
        low=best.low,
        optional=best.optional,
        extra=best.extra,
        waiting=best.waiting,
        may_wait=best.may_wait[of],
        salt=(salt, hash_ids(w.id for w in snapshot.workers)),
    )
    return group, choices


def fill_greedily(classes: PartitionClasses, capacity: Floats) -> Ints:
    """Fill workers class by class, the class with the fewest workers first, each up to a common level. A worker keeps its
    own partitions before others move."""
    units = np.zeros(classes.may.shape, np.int64)
    base = np.zeros(len(capacity), np.int64)
    for row in np.argsort(classes.may.sum(axis=1), kind="stable"):
        able = np.flatnonzero(classes.may[row])
        room = np.maximum(classes.bound[able] - base[able], 0)
        total = min(int(classes.size[row]), int(room.sum()))
        fill = _fill_class(total, base[able], room, capacity[able], classes.have[row, able])
        units[row, able] = fill
        base[able] += fill
    return units


def _fill_class(total: int, base: Ints, room: Ints, capacity: Floats, own: Ints) -> Ints:
    """Distribute `total` units over workers that hold `base`, at most `room` to each, up to a common price. The rest goes
    first to workers that own more than they got."""
    if len(base) == 1:
        return np.array([total])
    low, high = 0.0, float(((2 * (base + room) + 1) / capacity).max())

    def at(price: float) -> Ints:
        return np.asarray(np.clip(np.floor((price * capacity + 1) / 2).astype(np.int64) - base, 0, room))

    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if int(at(middle).sum()) <= total else (low, middle)
    fill = at(low).copy()
    likes = np.flatnonzero(fill < room)
    likes = likes[np.lexsort((likes, own[likes] <= fill[likes], (2 * (base + fill)[likes] + 1) / capacity[likes]))]
    rest = total - int(fill.sum())
    fill[likes[:rest]] += 1
    rest -= len(likes[:rest])
    for worker in np.flatnonzero(fill < room) if rest else ():
        extra = min(rest, int(room[worker] - fill[worker]))
        fill[worker] += extra
        rest -= extra
    return fill
