"""Pass 1 of the flow: as many placed as possible, then the least sum of count²/capacity over all valid assignments.

Law: the counts found are optimal, and `prices` proves it: every unit sits on a cheapest worker that it may have, and no
worker holds a seat dearer than its price. Method: the closed form says what would be best without labels; a maximum flow
either reaches it, or its minimum cut splits workers and classes in two smaller problems (Groenevelt's decomposition).
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rota.core.assignors.partition_classes import Classes
from rota.core.assignors.sticky.quota import seating
from rota.core.values import Bools, Floats, Ints

NEVER = 2**62  # the price of a seat that is not there


def balanced(classes: Classes, capacity: Floats) -> Ints:
    """Units of each class on each worker in one optimal assignment."""
    units = np.zeros(classes.may.shape, np.int64)
    everyone, every = np.arange(classes.may.shape[1]), np.arange(len(classes.size))
    reached, _, _ = _flow(classes, every, everyone, classes.bound)
    total = int(reached.sum())
    parts = [(every, everyone, total)]
    while parts:
        group, workers, total = parts.pop()
        if not len(workers) or not total:
            continue
        own = np.minimum(classes.have[np.ix_(group, workers)].sum(axis=0), classes.bound[workers])
        quota = seating(total, own, classes.bound[workers], capacity[workers]).seats
        flow, scarce_classes, scarce = _flow(classes, group, workers, quota)
        if int(flow.sum()) == total:
            units[np.ix_(group, workers)] = flow
            continue
        inside = int(classes.size[group[scarce_classes]].sum())
        parts.append((group[scarce_classes], workers[scarce], inside))
        parts.append((group[~scarce_classes], workers[~scarce], total - inside))
    return units


def _flow(classes: Classes, group: Ints, workers: Ints, limit: Ints) -> tuple[Ints, Bools, Bools]:
    """A maximum flow of these classes into `limit` seats, and the classes and workers beyond its minimum cut."""
    from ortools.graph.python import max_flow

    groups, size = len(group), len(workers)
    row, column = np.nonzero(classes.may[np.ix_(group, workers)])
    source, sink = groups + size, groups + size + 1
    flow = max_flow.SimpleMaxFlow()
    units = classes.size[group]
    arcs = flow.add_arcs_with_capacity(row, groups + column, units[row])
    flow.add_arcs_with_capacity(np.full(groups, source), np.arange(groups), units)
    flow.add_arcs_with_capacity(groups + np.arange(size), np.full(size, sink), limit)
    flow.solve(source, sink)
    result = np.zeros((groups, size), np.int64)
    result[row, column] = flow.flows(arcs)
    far = np.ones(groups + size + 2, np.bool_)
    far[flow.get_source_side_min_cut()] = False
    return result, far[:groups], far[groups : groups + size]


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """The dual of pass 1. `worker` and `unit` (of each class) are ranks among all marginal costs (2k-1)/capacity;
    `low` seats of a worker are cheaper than its price, an `optional` one costs just that."""

    worker: Ints
    unit: Ints
    low: Ints
    optional: Bools


def prices(classes: Classes, units: Ints, capacity: Floats) -> Prices:
    """The cheapest way to seat one more unit on each worker, others making room where that helps."""
    count = units.sum(axis=0)
    add, drop = _marginal_ranks(count, capacity)
    price = np.where(count < classes.bound, add, NEVER)
    row, column = np.nonzero(classes.may)
    used = units[row, column] > 0
    unit = np.full(len(classes.size), NEVER)
    while True:
        np.minimum.at(unit, row, price[column])
        cheaper = price.copy()
        np.minimum.at(cheaper, column[used], unit[row[used]])
        if (cheaper == price).all():
            break
        price = cheaper
    full = price > drop  # the last seat is cheaper than the price
    low = np.where(full, count, count - 1)
    optional = (price == drop) | ((price == add) & (count < classes.bound))
    return Prices(price, unit, np.where(count == 0, 0, low), optional & (classes.bound > 0))


def _marginal_ranks(count: Ints, capacity: Floats) -> tuple[Ints, Ints]:
    """Ranks of the cost of the next seat and of the last seat (-1 where there is none) of each worker."""
    if (capacity == capacity[0]).all():
        return 2 * count + 1, np.where(count > 0, 2 * count - 1, -1)
    exact = [Fraction(float(c)) for c in capacity]
    up = [(2 * int(n) + 1) / c for n, c in zip(count, exact, strict=True)]
    down = [(2 * int(n) - 1) / c for n, c in zip(count, exact, strict=True)]
    rank = {cost: i for i, cost in enumerate(sorted({*up, *down}))}
    add = np.fromiter((rank[c] for c in up), np.int64, len(up))
    drop = np.fromiter((rank[c] for c in down), np.int64, len(down))
    return add, np.where(count > 0, drop, -1)


def proves(classes: Classes, units: Ints, certificate: Prices) -> bool:
    """Whether `certificate` proves `units` optimal: weak duality, checked arc by arc without any search."""
    placed = units.sum(axis=1)
    fits = bool((units >= 0).all() and (units[~classes.may] == 0).all() and (units.sum(axis=0) <= classes.bound).all())
    cheapest = np.where(classes.may, certificate.worker, NEVER).min(axis=1)
    on_cheapest = bool(((units == 0) | (certificate.worker == cheapest[:, None])).all())
    count = units.sum(axis=0)
    seats = bool((count >= certificate.low).all() and (count <= certificate.low + certificate.optional).all())
    left = placed < classes.size
    return fits and on_cheapest and seats and bool((cheapest[left] == NEVER).all())
