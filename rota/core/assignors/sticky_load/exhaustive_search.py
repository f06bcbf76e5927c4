"""Lower the highest utilization, the peak, by trying every set of moves if there are few enough sets.

Law: no valid set of at most `budget` moves costs less. A set costs its peak plus the price of each move. Of sets of equal
cost, the search chooses one with the fewest moves, then the one that leaves all workers most even.
"""

from math import comb

import numpy as np

from rota.core.assignors.sticky_load.local_search import SearchSpace
from rota.core.columns import count_per_worker
from rota.core.values import Codes, Ints

MOST = 600_000  # sets times workers


def can_try_all(space: SearchSpace, budget: int) -> bool:
    """Return whether there are few enough sets of at most `budget` moves."""
    rows, workers = int((space.snapshot.load > 0).sum()), len(space.snapshot.workers)
    sets: int = sum(comb(rows, k) * max(workers - 1, 0) ** k for k in range(1, budget + 1))
    return sets * workers <= MOST


def try_all(space: SearchSpace, budget: int) -> Codes:
    """Return the assignment after the cheapest of all sets of at most `budget` moves."""
    snapshot, start, size = space.snapshot, space.start, len(space.snapshot.workers)
    speed, room = snapshot.team.capacity, snapshot.team.cap - count_per_worker(start, size)
    able = space.able[snapshot.kind] & ((snapshot.load > 0) & (start >= 0))[:, None]
    able &= start[:, None] != np.arange(size)
    row, taker = np.nonzero(able)  # every move, in the order of rows
    after = np.searchsorted(row, np.arange(len(start)), "right")  # where the moves of later rows begin
    used = (count_per_worker(start, size, snapshot.load) / speed)[None, :]
    held, chosen = np.zeros((1, size), np.int64), np.zeros((1, 0), np.int64)
    best, cheapest = chosen[0], float(used.max())
    for moves in range(1, budget + 1):
        first = after[row[chosen[:, -1]]] if moves > 1 else np.zeros(1, np.int64)
        state, move = _extend_sets(first, len(row))
        used, held = used[state], held[state]
        index, giver, load = np.arange(len(move)), start[row[move]], snapshot.load[row[move]]
        used[index, giver] -= load / speed[giver]
        used[index, taker[move]] += load / speed[taker[move]]
        held[index, giver] -= 1
        held[index, taker[move]] += 1
        chosen = np.column_stack((chosen[state], move))
        cost = np.where((held <= np.maximum(room, 0)).all(axis=1), used.max(axis=1) + space.price * moves, np.inf)
        lowest = float(cost.min(initial=np.inf))
        if lowest < cheapest * (1 - 1e-12):
            tied = np.flatnonzero(cost <= lowest * (1 + 1e-12))
            best, cheapest = chosen[tied[(used[tied] ** 2 * speed).sum(axis=1).argmin()]], lowest
    target = start.copy()
    target[row[best]] = taker[best]
    return target


def _extend_sets(first: Ints, end: int) -> tuple[Ints, Ints]:
    """Pair each state with each move from the state's `first` move on."""
    length = end - first
    state = np.repeat(np.arange(len(first)), length)
    move: Ints = np.arange(len(state)) - np.repeat(np.cumsum(length) - length, length) + first[state]
    return state, move
