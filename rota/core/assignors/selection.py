"""Select partitions: a flow states how many leave and come, and this module chooses which ones.

Law: of equal partitions, those with the first ids stay.
"""

import numpy as np

from rota.core.columns import find_runs
from rota.core.values import UNOWNED, Codes, Ints


def select_partitions(keeps: Codes, group: Codes | None, released: Ints, taken: Ints) -> Codes:
    """Return the target column in which `released[g, w]` partitions of group g leave worker w and `taken[g, w]` come to
    it.

    `keeps` is the owner column without invalid owners. `group` is the group of each partition, -1 if no worker may hold
    it; None: all are of one group. If fewer partitions are taken than released, those with the last ids have no owner.
    """
    groups, workers = taken.shape
    target = keeps.copy()
    if released.any():
        target[_select_leaving(keeps, group, released)] = UNOWNED
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


def _select_leaving(keeps: Codes, group: Codes | None, released: Ints) -> Ints:
    """Return the last `released[g, w]` partitions of each group and worker."""
    workers, wanted = released.shape[1], released.ravel()
    of = None if group is None or len(released) == 1 else group
    start, length = find_runs(keeps) if of is None else find_runs(keeps, of)
    cell = keeps[start].astype(np.int64)
    held = cell >= 0
    if of is not None:
        cell += workers * of[start]
    giving = np.flatnonzero(held & (wanted[cell] > 0))
    cell = cell[giving]
    order = np.argsort(cell.astype(np.int16) if len(wanted) < 2**15 else cell, kind="stable")
    giving, cell = giving[order], cell[order]
    start, length = start[giving], length[giving]
    last = np.cumsum(np.bincount(cell, length, minlength=len(wanted)).astype(np.int64))
    count = np.clip(wanted[cell] - (last[cell] - np.cumsum(length)), 0, length)
    leaving: Ints = np.repeat(start + length - np.cumsum(count), count) + np.arange(int(count.sum()))
    return leaving
