"""From numbers to partitions: which ones leave, which ones come. Law: ties by id, the first ids stay."""

import numpy as np

from rota.core.values import NOBODY, Codes, Ints


def realise(keeps: Codes, group: Codes | None, released: Ints, taken: Ints) -> Codes:
    """The target column: of each group, `released[g, w]` of what w keeps leave it and `taken[g, w]` come to w.

    `keeps` is what may be kept, `group` the group of each partition (None: one group; -1: nobody may
    hold it). What is released and taken nowhere is left to nobody, the last ids first.
    """
    groups, workers = taken.shape
    target = keeps.copy()
    if released.any():
        target[_leaving(keeps, group, released)] = NOBODY
    free = np.flatnonzero(target < 0 if group is None else (target < 0) & (group >= 0))
    if not len(free):
        return target
    if groups == 1 or group is None:
        takers = np.repeat(np.arange(workers, dtype=np.int32), taken[0])
        target[free[: len(takers)]] = takers
        return target
    of = group[free]
    order = np.argsort(of, kind="stable")
    free, of = free[order], of[order]
    cells = np.flatnonzero(taken)
    takers = np.repeat(cells % workers, taken.ravel()[cells]).astype(np.int32)
    wanted = taken.sum(axis=1)
    starts = np.searchsorted(of, np.arange(groups))
    ranks = np.arange(len(takers)) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    target[free[np.repeat(starts, wanted) + ranks]] = takers
    return target


def _leaving(keeps: Codes, group: Codes | None, released: Ints) -> Ints:
    """The last `released[g, w]` partitions of each cell."""
    groups, workers = released.shape
    flat = released.ravel()
    if groups == 1 or group is None:
        cell, held = keeps, None
        if int(keeps.min(initial=0)) < 0:
            held = np.flatnonzero(keeps >= 0)
            cell = keeps[held]
    else:
        held = np.flatnonzero(keeps >= 0)
        cell = group[held].astype(np.int64) * workers + keeps[held]
    candidates = np.flatnonzero((flat > 0)[cell])
    cell = cell[candidates]
    if int(flat.max()) == 1:
        last = np.empty(len(flat), np.int64)
        last[cell] = candidates
        leaving: Ints = last[np.flatnonzero(flat)]
        return leaving if held is None else np.asarray(held[leaving])
    order = np.argsort(cell.astype(np.int16) if len(flat) < 2**15 else cell, kind="stable")
    cells = np.flatnonzero(flat)
    ends = np.searchsorted(cell[order], cells, side="right")
    count = flat[cells]
    picks = np.repeat(ends, count) - 1 - (np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count))
    rows: Ints = candidates[order[picks]]
    return rows if held is None else np.asarray(held[rows])
