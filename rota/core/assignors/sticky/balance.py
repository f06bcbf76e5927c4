"""Pass 1 of the flow: the least sum of count²/capacity among valid assignments that place as many as possible.

Law: the counts are optimal, and `compute_prices` proves it: each partition is on a cheapest worker that may hold it, and
no partition costs more than the price of its worker.

Method: the closed form gives the best result without labels. A maximum flow either reaches this result, or its minimum
cut splits workers and classes into two smaller problems (Groenevelt's decomposition). A unit is one partition.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rota.core.assignors.partition_classes import PartitionClasses
from rota.core.assignors.sticky.quota import compute_quotas
from rota.core.values import Bools, Floats, Ints

NEVER = 2**62  # the price of a worker that can take no more


def balance_classes(classes: PartitionClasses, capacity: Floats) -> Ints:
    """Return how many units of each class each worker holds in one optimal assignment."""
    units = np.zeros(classes.may.shape, np.int64)
    everyone, every = np.arange(classes.may.shape[1]), np.arange(len(classes.size))
    reached, _, _ = _solve_flow(classes, every, everyone, classes.bound)
    total = int(reached.sum())
    parts = [(every, everyone, total)]
    while parts:
        group, workers, total = parts.pop()
        if not len(workers) or not total:
            continue
        own = np.minimum(classes.have[np.ix_(group, workers)].sum(axis=0), classes.bound[workers])
        quota = compute_quotas(total, own, classes.bound[workers], capacity[workers]).quota
        flow, scarce_classes, scarce = _solve_flow(classes, group, workers, quota)
        if int(flow.sum()) == total:
            units[np.ix_(group, workers)] = flow
            continue
        inside = int(classes.size[group[scarce_classes]].sum())
        parts.append((group[scarce_classes], workers[scarce], inside))
        parts.append((group[~scarce_classes], workers[~scarce], total - inside))
    return units


def _solve_flow(classes: PartitionClasses, group: Ints, workers: Ints, limit: Ints) -> tuple[Ints, Bools, Bools]:
    """Return a maximum flow of the classes `group` to `workers`, each worker up to its `limit`, and the classes and
    workers beyond the minimum cut."""
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
    """The dual of pass 1. `worker` and `unit` (of each class) are ranks among all marginal costs (2k-1)/capacity; `low`
    units of a worker cost less than its price, and one more unit on an `optional` worker costs exactly its price."""

    worker: Ints
    unit: Ints
    low: Ints
    optional: Bools


def compute_prices(classes: PartitionClasses, units: Ints, capacity: Floats) -> Prices:
    """Return the least cost of one more unit on each worker, if other units may move to make room for it."""
    count = units.sum(axis=0)
    add, drop = _rank_marginal_costs(count, capacity)
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
    full = price > drop  # the last unit costs less than the price
    low = np.where(full, count, count - 1)
    optional = (price == drop) | ((price == add) & (count < classes.bound))
    return Prices(price, unit, np.where(count == 0, 0, low), optional & (classes.bound > 0))


def _rank_marginal_costs(count: Ints, capacity: Floats) -> tuple[Ints, Ints]:
    """Return the rank of the cost of each worker's next unit, and of its last unit, -1 if the worker holds none."""
    if (capacity == capacity[0]).all():
        return 2 * count + 1, np.where(count > 0, 2 * count - 1, -1)
    exact = [Fraction(float(c)) for c in capacity]
    up = [(2 * int(n) + 1) / c for n, c in zip(count, exact, strict=True)]
    down = [(2 * int(n) - 1) / c for n, c in zip(count, exact, strict=True)]
    rank = {cost: i for i, cost in enumerate(sorted({*up, *down}))}
    add = np.fromiter((rank[c] for c in up), np.int64, len(up))
    drop = np.fromiter((rank[c] for c in down), np.int64, len(down))
    return add, np.where(count > 0, drop, -1)
