"""Law 1 for every assignor that wishes first: the valid assignment nearest to a wish.

Law: as many partitions as possible are placed; among those answers the most wishes are granted; ties by hashes of ids.
"""

import numpy as np

from rota.core.assignors.hashing import hashed
from rota.core.assignors.partition_classes import Classes
from rota.core.assignors.selection import realise
from rota.core.columns import counted
from rota.core.values import UNLIMITED, Bools, Codes, Ints, Snapshot

_LEVELS = 8


def fitted(snapshot: Snapshot, match: Bools, keeps: Codes, wish: Codes) -> Codes:
    """`wish` where it is valid; the rest moves as little as caps and labels demand. A wish below 0 is none."""
    wish = granted(snapshot, match, keeps, wish)
    if not len(wish) or not len(snapshot.workers):
        return wish
    team, counts = snapshot.team, counted(wish, len(snapshot.workers))
    capped = bool((team.cap < UNLIMITED).any())
    if bool((wish >= 0).all()) and not (capped and bool((counts > team.cap).any())):
        return wish
    classes = Classes.of_snapshot(snapshot, match, keeps)
    if not len(classes.size):
        return np.full(len(wish), -1, np.int32)
    workers = len(snapshot.workers)
    held = np.flatnonzero((wish >= 0) & (classes.of >= 0))
    cell = classes.of[held].astype(np.int64) * workers + wish[held]
    wished = np.bincount(cell, minlength=classes.may.size).reshape(classes.may.shape)
    kept, moved = _nearest(snapshot, classes, wished)
    start = np.where(classes.of < 0, np.int32(-1), wish)
    return realise(start, classes.of, wished - kept, moved)


def granted(snapshot: Snapshot, match: Bools, keeps: Codes, wish: Codes) -> Codes:
    """`wish` without what law 1 forbids: nobody takes from a cordon or a drain, or without the labels."""
    if not len(snapshot.workers):
        return np.full(len(wish), -1, np.int32)
    somebody = np.maximum(wish, 0)
    fits = (wish >= 0) & match[snapshot.kind, somebody] & (snapshot.team.active[somebody] | (wish == keeps))
    return np.where(fits, wish, np.int32(-1))


def _nearest(snapshot: Snapshot, classes: Classes, wished: Ints) -> tuple[Ints, Ints]:
    """Units that stay as wished and units placed elsewhere: a maximum flow of minimum cost."""
    from ortools.graph.python import min_cost_flow

    groups, workers = classes.may.shape
    row, column = np.nonzero(classes.may)
    keep_row, keep_column = np.nonzero(wished)
    units, used = int(classes.size.sum()), wished.sum(axis=0)
    salt = hashed(w.id for w in snapshot.workers) % 2**9
    price = (2 * units + 1) * 2**14  # one move outweighs every preference among takers
    flow = min_cost_flow.SimpleMinCostFlow()
    add = flow.add_arcs_with_capacity_and_unit_cost
    moves = add(row, groups + column, classes.size[row], price + salt[column])
    keeps = add(keep_row, groups + keep_column, wished[keep_row, keep_column], np.zeros(len(keep_row), np.int64))
    source, sink = groups + workers, groups + workers + 1
    add(np.full(groups, source), np.arange(groups), classes.size, np.zeros(groups, np.int64))
    step = -(-int(np.maximum(used - classes.bound, 0).sum() + units - used.sum()) // workers) or 1
    seated = np.zeros(workers, np.int64)
    for level in range(_LEVELS + 1):  # seats above the wishes cost more and more, so that a crowd spreads
        top = classes.bound if level == _LEVELS else np.minimum(classes.bound, used + level * step)
        add(groups + np.arange(workers), np.full(workers, sink), top - seated, np.full(workers, level * 2**10))
        seated = top
    flow.set_node_supply(source, units)
    flow.set_node_supply(sink, -units)
    flow.solve_max_flow_with_min_cost()
    kept, moved = np.zeros_like(wished), np.zeros_like(wished)
    kept[keep_row, keep_column], moved[row, column] = flow.flows(keeps), flow.flows(moves)
    return kept, moved
