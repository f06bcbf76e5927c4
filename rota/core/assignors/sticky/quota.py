"""How many partitions each worker holds: the closed form for workers that may all hold everything.

Law: `seating` minimises sum of count²/capacity under the bounds, and among those keeps the most of what is owned.
"""

from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush

import numpy as np

from rota.core.values import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Seating:
    """`seats` is one best answer, ties by id; every other holds `low` and `extra` of the `optional` ones, as good."""

    seats: Ints
    low: Ints
    optional: Bools
    extra: int


def seating(total: int, own: Ints, bound: Ints, capacity: Floats) -> Seating:
    """Seats per worker, summing to min(total, sum of bounds); `own` is what each validly holds, at most its bound.

    With equal capacities the level q is the same for all and the r seats above it go to holders of more than q first,
    then by id. With unequal ones the k-th seat of a worker costs (2k-1)/capacity, compared as exact fractions.
    """
    total = min(total, int(bound.sum()))
    if (capacity == capacity[0]).all():
        level = _level(total, bound)
        low = np.minimum(bound, level)
        tied: Bools = bound > level
    else:
        low, tied = _weighted(total, bound, capacity)
    extra = total - int(low.sum())
    holders = tied & (own > low)
    if extra > (already := int(holders.sum())):
        low = low + holders
        optional, extra = tied & ~holders, extra - already
    else:
        optional = holders
    seats = low.copy()
    likes = np.flatnonzero(optional)
    seats[likes[np.argsort(low[likes], kind="stable")][:extra]] += 1  # of one source: least sum of count² (law 4)
    return Seating(seats, low, optional, extra)


def _level(total: int, bound: Ints) -> int:
    """The largest q with sum(min(bound, q)) <= total; bounds sum to at least total."""
    level = total // len(bound)
    if int(bound.min()) > level:
        return level
    low = np.sort(bound)
    below = np.concatenate(([0], np.cumsum(low)))  # what the i smallest hold when full
    left = len(low) - np.arange(len(low))
    reach = below[:-1] + low * left  # sum(min(bound, low[i]))
    full = int(np.searchsorted(reach, total, side="right"))  # so many bounds lie at or below the level
    if full == len(low):
        return int(low[-1])
    return int((total - below[full]) // (len(low) - full))


def _weighted(total: int, bound: Ints, capacity: Floats) -> tuple[Ints, Bools]:
    """Seats strictly below the price of the last one, and who could take one at exactly that price."""
    low, high = 0.0, float((2 * bound / capacity).max())
    for _ in range(64):  # floats find the neighbourhood; the exact walk below decides
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, bound, capacity).sum() <= total else (low, middle)
    seats = _below(low * (1 - 1e-9), bound, capacity)
    exact = [Fraction(float(c)) for c in capacity]
    heap = [(_cost(int(s) + 1, exact[w]), w) for w, s in enumerate(seats) if s < bound[w]]
    heapify(heap)
    last: list[int] = []
    price = Fraction(0)
    for _ in range(total - int(seats.sum())):
        cost, worker = heappop(heap)
        if cost > price:
            price, last = cost, []
        last.append(worker)
        seats[worker] += 1
        if seats[worker] < bound[worker]:
            heappush(heap, (_cost(int(seats[worker]) + 1, exact[worker]), worker))
    seats[last] -= 1
    tied = np.zeros(len(seats), np.bool_)
    tied[last] = True
    tied[[worker for cost, worker in heap if cost == price]] = True
    return seats, tied


def _below(price: float, bound: Ints, capacity: Floats) -> Ints:
    return np.clip(np.floor((price * capacity + 1) / 2), 0, bound).astype(np.int64)


def _cost(seat: int, capacity: Fraction) -> Fraction:
    return (2 * seat - 1) / capacity
