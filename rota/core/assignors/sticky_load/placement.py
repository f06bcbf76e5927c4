"""Placing weighted partitions that have no place: longest first, each to the worker it burdens least.

Law: valid, as many placed as possible; ties go to fewer partitions, then by id. LPT: at most 4/3 - 1/(3m) of the optimum
for alike workers (Graham 1969).
"""

from heapq import heapify, heapreplace

import numpy as np

from rota.core.assignors.nearest_valid import fitted
from rota.core.columns import counted
from rota.core.values import NOBODY, UNLIMITED, Bools, Codes, Floats, Ints, Snapshot


def within_caps(snapshot: Snapshot, keeps: Codes) -> Codes:
    """What may stay: workers over their cap let their lightest partitions go, last ids first."""
    counts = counted(keeps, len(snapshot.workers))
    stays = keeps
    for worker in np.flatnonzero(counts > snapshot.team.cap).tolist():
        held = np.flatnonzero(keeps == worker)
        order = held[np.lexsort((-held, snapshot.load[held]))]
        stays = stays.copy() if stays is keeps else stays
        stays[order[: int(counts[worker] - snapshot.team.cap[worker])]] = NOBODY
    return stays


def placed(snapshot: Snapshot, match: Bools, keeps: Codes, stays: Codes) -> Codes:
    """`stays` with everything placed that can be."""
    free = np.flatnonzero(stays < 0)
    if not len(free) or not len(snapshot.workers):
        return stays
    free = free[np.argsort(-snapshot.load[free], kind="stable")]
    target = stays.copy()
    able = match & snapshot.team.active
    if (able == able[0]).all() and not (snapshot.team.cap < UNLIMITED).any():
        if able[0].any():
            target[free] = _by_heap(snapshot, np.flatnonzero(able[0]), stays, free)
        return target
    choosiest = able.sum(axis=1)[snapshot.kind[free]]
    left = _one_by_one(snapshot, able, target, free[np.argsort(choosiest, kind="stable")])
    return fitted(snapshot, match, keeps, target) if left else target


def _by_heap(snapshot: Snapshot, workers: Ints, stays: Codes, free: Ints) -> Codes:
    """Alike choices: the least burdened worker is on top of a heap."""
    size = len(snapshot.workers)
    load, counts = counted(stays, size, snapshot.load), counted(stays, size)
    capacity = snapshot.team.capacity
    if (capacity[workers] == capacity[workers[0]]).all():
        heap = [(float(load[w]), int(counts[w]), w) for w in workers.tolist()]
        heapify(heap)
        takers = []
        for weight in snapshot.load[free].tolist():
            burden, count, worker = heap[0]
            heapreplace(heap, (burden + weight, count + 1, worker))
            takers.append(worker)
        return np.array(takers, np.int32)
    found = np.empty(len(free), np.int32)
    used, speed = load[workers], capacity[workers]
    for n, weight in enumerate(snapshot.load[free].tolist()):
        best = (
            int(np.lexsort((counts[workers], (used + weight) / speed))[0])
            if weight == 0
            else _least(used, speed, weight)
        )
        found[n] = workers[best]
        used[best] += weight
        counts[workers[best]] += 1
    return found


def _least(used: Floats, speed: Floats, weight: float) -> int:
    return int(np.argmin((used + weight) / speed))


def _one_by_one(snapshot: Snapshot, able: Bools, target: Codes, free: Ints) -> bool:
    """Places `free` in this order; whether some found no room."""
    size, team = len(snapshot.workers), snapshot.team
    load, counts = counted(target, size, snapshot.load), counted(target, size)
    shut = np.where(able, 0.0, np.inf)  # added to a utilization: nobody goes where it may not
    shut[:, counts >= team.cap] = np.inf
    left = False
    for i, kind, weight in zip(free.tolist(), snapshot.kind[free].tolist(), snapshot.load[free].tolist(), strict=True):
        after = (load + weight) / team.capacity + shut[kind]
        taker = int(after.argmin())
        if after[taker] == np.inf:
            left = True
            continue
        ties = np.flatnonzero(after == after[taker])
        if len(ties) > 1:
            taker = int(ties[counts[ties].argmin()])
        target[i] = taker
        load[taker] += weight
        counts[taker] += 1
        if counts[taker] >= team.cap[taker]:
            shut[:, taker] = np.inf
    return left
