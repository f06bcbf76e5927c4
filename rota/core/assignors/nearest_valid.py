"""The valid assignment nearest to a wish, for assignors that first decide without caps and labels.

Laws, in rank order: as many partitions as possible are placed; as many as possible go where wished; ties are broken by
hashes of ids.
"""

import numpy as np

from rota.core.assignors.hashing import hash_ids
from rota.core.assignors.partition_classes import PartitionClasses
from rota.core.assignors.selection import select_partitions
from rota.core.columns import count_per_worker
from rota.core.values import UNLIMITED, Bools, Codes, Ints, Snapshot

_LEVELS = 8


def find_nearest_valid(snapshot: Snapshot, match: Bools, keeps: Codes, wish: Codes) -> Codes:
    """Return the valid assignment nearest to `wish`. A partition whose wish is below 0 may go anywhere."""
    wish = drop_invalid_wishes(snapshot, match, keeps, wish)
    if not len(wish) or not len(snapshot.workers):
        return wish
    team, counts = snapshot.team, count_per_worker(wish, len(snapshot.workers))
    capped = bool((team.cap < UNLIMITED).any())
    if bool((wish >= 0).all()) and not (capped and bool((counts > team.cap).any())):
        return wish
    classes = PartitionClasses.of_snapshot(snapshot, match, keeps)
    if not len(classes.size):
        return np.full(len(wish), -1, np.int32)
    workers = len(snapshot.workers)
    held = np.flatnonzero((wish >= 0) & (classes.of >= 0))
    cell = classes.of[held].astype(np.int64) * workers + wish[held]
    wished = np.bincount(cell, minlength=classes.may.size).reshape(classes.may.shape)
    kept, moved = _solve_flow(snapshot, classes, wished)
    start = np.where(classes.of < 0, np.int32(-1), wish)
    return select_partitions(start, classes.of, wished - kept, moved)


def drop_invalid_wishes(snapshot: Snapshot, match: Bools, keeps: Codes, wish: Codes) -> Codes:
    """Return `wish` with -1 for each invalid worker: one without the labels or the pin, or neither active nor the owner."""
    if not len(snapshot.workers):
        return np.full(len(wish), -1, np.int32)
    worker = np.maximum(wish, 0)
    fits = (wish >= 0) & match[snapshot.kind, worker] & (snapshot.team.active[worker] | (wish == keeps))
    return np.where(fits, wish, np.int32(-1))


def _solve_flow(snapshot: Snapshot, classes: PartitionClasses, wished: Ints) -> tuple[Ints, Ints]:
    """Return how many partitions of each class go where wished and how many elsewhere: a maximum flow of minimum cost."""
    from ortools.graph.python import min_cost_flow

    groups, workers = classes.may.shape
    row, column = np.nonzero(classes.may)
    keep_row, keep_column = np.nonzero(wished)
    units, used = int(classes.size.sum()), wished.sum(axis=0)
    salt = hash_ids(w.id for w in snapshot.workers) % 2**9
    price = (2 * units + 1) * 2**14  # one move outweighs every preference among takers
    flow = min_cost_flow.SimpleMinCostFlow()
    add = flow.add_arcs_with_capacity_and_unit_cost
    moves = add(row, groups + column, classes.size[row], price + salt[column])
    keeps = add(keep_row, groups + keep_column, wished[keep_row, keep_column], np.zeros(len(keep_row), np.int64))
    source, sink = groups + workers, groups + workers + 1
    add(np.full(groups, source), np.arange(groups), classes.size, np.zeros(groups, np.int64))
    step = -(-int(np.maximum(used - classes.bound, 0).sum() + units - used.sum()) // workers) or 1
    filled = np.zeros(workers, np.int64)
    for level in range(_LEVELS + 1):  # each further level costs more, so that partitions spread over workers
        top = classes.bound if level == _LEVELS else np.minimum(classes.bound, used + level * step)
        add(groups + np.arange(workers), np.full(workers, sink), top - filled, np.full(workers, level * 2**10))
        filled = top
    flow.set_node_supply(source, units)
    flow.set_node_supply(sink, -units)
    flow.solve_max_flow_with_min_cost()
    kept, moved = np.zeros_like(wished), np.zeros_like(wished)
    kept[keep_row, keep_column], moved[row, column] = flow.flows(keeps), flow.flows(moves)
    return kept, moved
