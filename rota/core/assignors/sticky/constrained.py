"""`sticky` where workers differ in what they may hold: three exact passes over classes, or a greedy one beyond them."""

import numpy as np

from rota.core.assignors.hashing import hashed
from rota.core.assignors.partition_classes import Classes
from rota.core.assignors.selection import realise
from rota.core.assignors.sticky.balance import balanced, prices
from rota.core.assignors.sticky.fewest_moves import Kept, kept
from rota.core.assignors.sticky.open_choices import MOST_CELLS, Freedom
from rota.core.assignors.sticky.source_spread import spread
from rota.core.values import Bools, Codes, Floats, Ints, Snapshot

MOST_ARCS = 200_000  # class x worker; beyond it the answer is valid and near even, not proven, and the plan says so


def labelled(snapshot: Snapshot, match: Bools, keeps: Codes) -> tuple[Codes, Ints, str]:
    """The target, the seats of each worker, and a note on what was not exact."""
    classes = Classes.of_snapshot(snapshot, match, keeps)
    capacity, workers = snapshot.team.capacity, len(snapshot.workers)
    if not len(classes.size):
        return np.full(len(keeps), -1, np.int32), np.zeros(workers, np.int64), ""
    arcs = int(classes.may.sum() + (classes.have > 0).sum())
    if arcs > MOST_ARCS:
        units = greedy(classes, capacity)
        released, taken = np.maximum(classes.have - units, 0), np.maximum(units - classes.have, 0)
        note = f"greedy, not proven: {arcs:,} arcs are more than {MOST_ARCS:,}"
        return realise(_placeable(classes, keeps), classes.of, released, taken), units.sum(axis=0), note
    units = balanced(classes, capacity)
    best = kept(classes, units, prices(classes, units, capacity))
    seats = (best.kept + best.moved).sum(axis=0)
    if (best.kept == classes.have).all() and not best.moved.any():
        target = realise(_placeable(classes, keeps), classes.of, classes.have - best.kept, best.moved)
        return target, seats, ""
    group, freedom = _freedom(snapshot, classes, best, keeps)
    if freedom is None:
        target = realise(_placeable(classes, keeps), classes.of, classes.have - best.kept, best.moved)
        return target, seats, f"sources are not spread: more than {MOST_CELLS:,} group-worker cells"
    released, taken = spread(freedom)
    stay = _placeable(classes, keeps)
    left = _must_leave(classes, best, stay)
    target = realise(np.where(left, np.int32(-1), stay), group, released, taken)
    return target, counted_seats(target, workers), ""


def counted_seats(target: Codes, workers: int) -> Ints:
    """How many partitions the target gives to each worker."""
    return np.bincount(target[target >= 0], minlength=workers)


def _placeable(classes: Classes, keeps: Codes) -> Codes:
    return np.where(classes.of < 0, np.int32(-1), keeps)


def _must_leave(classes: Classes, best: Kept, keeps: Codes) -> Bools:
    held = keeps >= 0
    return np.asarray(held & best.must_leave[np.maximum(classes.of, 0), np.maximum(keeps, 0)])


def _freedom(snapshot: Snapshot, classes: Classes, best: Kept, keeps: Codes) -> tuple[Codes, Freedom | None]:
    """Groups are classes split by source; the code of each partition's group is -1 where nobody may hold it."""
    workers, sources = len(snapshot.workers), len(snapshot.sources)
    fits = classes.of >= 0
    pair = classes.of.astype(np.int64) * sources + snapshot.source
    pairs, code = np.unique(pair[fits], return_inverse=True)
    group = np.full(len(keeps), -1, np.int32)
    group[fits] = code
    if len(pairs) * workers > MOST_CELLS:
        return group, None
    of, source = pairs // sources, pairs % sources
    stays = (keeps >= 0) & fits & ~_must_leave(classes, best, _placeable(classes, keeps))
    have = np.bincount(group[stays].astype(np.int64) * workers + keeps[stays], minlength=len(pairs) * workers)
    rows = classes.may[of]
    salt = hashed(snapshot.sources)[source] + (rows @ (hashed(w.id for w in snapshot.workers) % 999983)) % 999983
    freedom = Freedom(
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
        salt=(salt, hashed(w.id for w in snapshot.workers)),
    )
    return group, freedom


def greedy(classes: Classes, capacity: Floats) -> Ints:
    """Class after class, the choosiest first, each filled up to a level over what is there; keeps before it moves."""
    units = np.zeros(classes.may.shape, np.int64)
    base = np.zeros(len(capacity), np.int64)
    for row in np.argsort(classes.may.sum(axis=1), kind="stable"):
        able = np.flatnonzero(classes.may[row])
        room = np.maximum(classes.bound[able] - base[able], 0)
        total = min(int(classes.size[row]), int(room.sum()))
        fill = _filled(total, base[able], room, capacity[able], classes.have[row, able])
        units[row, able] = fill
        base[able] += fill
    return units


def _filled(total: int, base: Ints, room: Ints, capacity: Floats, own: Ints) -> Ints:
    """`total` units over `base`, at most `room` each, up to a common price; the rest first to who owns more."""
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
