"""Lowering the highest utilization by trying every set of moves, where there are few enough.

Law: with at most `budget` moves no valid set costs less (peak, plus the price of each move); of those that cost the same
the one with the fewest moves, then the one that leaves the others most even.
"""

from math import comb

import numpy as np

from rota.core.assignors.sticky_load.local_search import Peaks
from rota.core.columns import counted
from rota.core.values import Codes, Ints

MOST = 600_000  # utilizations: one a worker for each set


def countable(peaks: Peaks, budget: int) -> bool:
    """Whether every set of at most `budget` moves can be tried."""
    rows, workers = int((peaks.snapshot.load > 0).sum()), len(peaks.snapshot.workers)
    sets: int = sum(comb(rows, k) * max(workers - 1, 0) ** k for k in range(1, budget + 1))
    return sets * workers <= MOST


def best_of_all(peaks: Peaks, budget: int) -> Codes:
    """The cheapest of all sets of at most `budget` moves."""
    snapshot, start, size = peaks.snapshot, peaks.start, len(peaks.snapshot.workers)
    speed, room = snapshot.team.capacity, snapshot.team.cap - counted(start, size)
    able = peaks.able[snapshot.kind] & ((snapshot.load > 0) & (start >= 0))[:, None]
    able &= start[:, None] != np.arange(size)
    row, taker = np.nonzero(able)  # every move, in the order of rows
    after = np.searchsorted(row, np.arange(len(start)), "right")  # where the moves of later rows begin
    used = (counted(start, size, snapshot.load) / speed)[None, :]
    held, chosen = np.zeros((1, size), np.int64), np.zeros((1, 0), np.int64)
    best, cheapest = chosen[0], float(used.max())
    for moves in range(1, budget + 1):
        first = after[row[chosen[:, -1]]] if moves > 1 else np.zeros(1, np.int64)
        state, move = _pairs(first, len(row))
        used, held = used[state], held[state]
        index, giver, load = np.arange(len(move)), start[row[move]], snapshot.load[row[move]]
        used[index, giver] -= load / speed[giver]
        used[index, taker[move]] += load / speed[taker[move]]
        held[index, giver] -= 1
        held[index, taker[move]] += 1
        chosen = np.column_stack((chosen[state], move))
        cost = np.where((held <= np.maximum(room, 0)).all(axis=1), used.max(axis=1) + peaks.price * moves, np.inf)
        lowest = float(cost.min(initial=np.inf))
        if lowest < cheapest * (1 - 1e-12):
            tied = np.flatnonzero(cost <= lowest * (1 + 1e-12))
            best, cheapest = chosen[tied[(used[tied] ** 2 * speed).sum(axis=1).argmin()]], lowest
    target = start.copy()
    target[row[best]] = taker[best]
    return target


def _pairs(first: Ints, end: int) -> tuple[Ints, Ints]:
    """Each state with each of the moves from its `first` on."""
    length = end - first
    state = np.repeat(np.arange(len(first)), length)
    move: Ints = np.arange(len(state)) - np.repeat(np.cumsum(length) - length, length) + first[state]
    return state, move
