"""Place partitions without an owner: the largest load first, each on the worker whose utilization stays lowest.

Law: the assignment is valid and as many partitions as possible are placed. Ties go to the worker with fewer partitions,
then by id. With m workers of equal capacity the peak is at most 4/3 - 1/(3m) times the optimum (LPT, Graham 1969).
"""

from heapq import heapify, heapreplace

import numpy as np

from rota.core.assignors.nearest_valid import find_nearest_valid
from rota.core.columns import count_per_worker
from rota.core.values import UNLIMITED, UNOWNED, Bools, Codes, Floats, Ints, Snapshot


def enforce_caps(snapshot: Snapshot, keeps: Codes) -> Codes:
    """Return `keeps` without the lightest partitions of each worker over its cap. Of equal loads, the first ids stay."""
    counts = count_per_worker(keeps, len(snapshot.workers))
    stays = keeps
    for worker in np.flatnonzero(counts > snapshot.team.cap).tolist():
        held = np.flatnonzero(keeps == worker)
        order = held[np.lexsort((-held, snapshot.load[held]))]
        stays = stays.copy() if stays is keeps else stays
        stays[order[: int(counts[worker] - snapshot.team.cap[worker])]] = UNOWNED
    return stays


def place_longest_first(snapshot: Snapshot, match: Bools, keeps: Codes, stays: Codes) -> Codes:
    """Return `stays` with every partition placed that can be.

    `keeps` are the valid owners; `match` marks which worker may hold which kind.
    """
    free = np.flatnonzero(stays < 0)
    if not len(free) or not len(snapshot.workers):
        return stays
    free = free[np.argsort(-snapshot.load[free], kind="stable")]
    target = stays.copy()
    able = match & snapshot.team.active
    if (able == able[0]).all() and not (snapshot.team.cap < UNLIMITED).any():
        if able[0].any():
            target[free] = _place_by_heap(snapshot, np.flatnonzero(able[0]), stays, free)
        return target
    choosiest = able.sum(axis=1)[snapshot.kind[free]]
    left = _place_one_by_one(snapshot, able, target, free[np.argsort(choosiest, kind="stable")])
    return find_nearest_valid(snapshot, match, keeps, target) if left else target


def _place_by_heap(snapshot: Snapshot, workers: Ints, stays: Codes, free: Ints) -> Codes:
    """Return the worker of each partition in `free`, if each of `workers` may take every partition."""
    size = len(snapshot.workers)
    load, counts = count_per_worker(stays, size, snapshot.load), count_per_worker(stays, size)
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
            else _find_least_burdened(used, speed, weight)
        )
        found[n] = workers[best]
        used[best] += weight
        counts[workers[best]] += 1
    return found


def _find_least_burdened(used: Floats, speed: Floats, weight: float) -> int:
    return int(np.argmin((used + weight) / speed))


def _place_one_by_one(snapshot: Snapshot, able: Bools, target: Codes, free: Ints) -> bool:
    """Place the partitions `free` in this order. Return whether some partitions found no room."""
    size, team = len(snapshot.workers), snapshot.team
    load, counts = count_per_worker(target, size, snapshot.load), count_per_worker(target, size)
    shut = np.where(able, 0.0, np.inf)  # added to a utilization: inf where a partition may not go
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
