"""The quota of each worker, the number of partitions that it holds, by a closed form if every worker may hold everything.

Law: `compute_quotas` minimises the sum of count²/capacity under the bounds. Among those answers it moves the fewest
partitions.
"""

from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush

import numpy as np

from rota.core.values import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Quotas:
    """The best quotas. `quota` is one answer, with ties broken by id. Every equally good answer gives each worker `low`,
    and one more to `extra` of the workers that `optional` marks."""

    quota: Ints
    low: Ints
    optional: Bools
    extra: int


def compute_quotas(total: int, own: Ints, bound: Ints, capacity: Floats) -> Quotas:
    """Return quotas that sum to min(total, sum of bounds). `own` is what each worker validly holds, at most its bound.

    With equal capacities each worker gets up to a common level q; the rest goes first to workers that hold more than q,
    then by id. With unequal ones the k-th partition of a worker costs (2k-1)/capacity, compared as exact fractions.
    """
    total = min(total, int(bound.sum()))
    if (capacity == capacity[0]).all():
        level = _find_level(total, bound)
        low = np.minimum(bound, level)
        tied: Bools = bound > level
    else:
        low, tied = _fill_by_price(total, bound, capacity)
    extra = total - int(low.sum())
    holders = tied & (own > low)
    if extra > (already := int(holders.sum())):
        low = low + holders
        optional, extra = tied & ~holders, extra - already
    else:
        optional = holders
    quota = low.copy()
    tied_workers = np.flatnonzero(optional)
    quota[tied_workers[np.argsort(low[tied_workers], kind="stable")][:extra]] += 1  # law 4 if there is one source
    return Quotas(quota, low, optional, extra)


def _find_level(total: int, bound: Ints) -> int:
    """Return the largest q with sum(min(bound, q)) <= total. The bounds must sum to at least `total`."""
    level = total // len(bound)
    if int(bound.min()) > level:
        return level
    low = np.sort(bound)
    below = np.concatenate(([0], np.cumsum(low)))  # total of the i smallest bounds
    left = len(low) - np.arange(len(low))
    reach = below[:-1] + low * left  # sum(min(bound, low[i]))
    full = int(np.searchsorted(reach, total, side="right"))  # number of bounds at or below the level
    if full == len(low):
        return int(low[-1])
    return int((total - below[full]) // (len(low) - full))


def _fill_by_price(total: int, bound: Ints, capacity: Floats) -> tuple[Ints, Bools]:
    """Return the quotas strictly below the price of the last partition, and the workers that may get one more at that
    price."""
    low, high = 0.0, float((2 * bound / capacity).max())
    for _ in range(64):  # floats come near the price; the exact fractions below decide
        middle = (low + high) / 2
        low, high = (middle, high) if _count_below_price(middle, bound, capacity).sum() <= total else (low, middle)
    quota = _count_below_price(low * (1 - 1e-9), bound, capacity)
    exact = [Fraction(float(c)) for c in capacity]
    heap = [(_compute_marginal_cost(int(q) + 1, exact[w]), w) for w, q in enumerate(quota) if q < bound[w]]
    heapify(heap)
    last: list[int] = []
    price = Fraction(0)
    for _ in range(total - int(quota.sum())):
        cost, worker = heappop(heap)
        if cost > price:
            price, last = cost, []
        last.append(worker)
        quota[worker] += 1
        if quota[worker] < bound[worker]:
            heappush(heap, (_compute_marginal_cost(int(quota[worker]) + 1, exact[worker]), worker))
    quota[last] -= 1
    tied = np.zeros(len(quota), np.bool_)
    tied[last] = True
    tied[[worker for cost, worker in heap if cost == price]] = True
    return quota, tied


def _count_below_price(price: float, bound: Ints, capacity: Floats) -> Ints:
    return np.clip(np.floor((price * capacity + 1) / 2), 0, bound).astype(np.int64)


def _compute_marginal_cost(number: int, capacity: Fraction) -> Fraction:
    return (2 * number - 1) / capacity
