"""Measures of how even an assignment is.

Law: the imbalance is the largest utilization divided by the mean utilization of the workers that may hold partitions. The
mean is the total load of these workers divided by their total capacity. The imbalance is 1.0 if there is no load, and
None if no worker may hold partitions. A utilization has the unit of load divided by capacity.
"""

import numpy as np

from rota.core.columns import count_per_worker
from rota.core.values import Bools, Codes, Floats, Snapshot


def find_holders(snapshot: Snapshot, match: Bools, keeps: Codes) -> Bools:
    """Mark the workers that may hold partitions. A cordoned worker counts only while it holds one."""
    team = snapshot.team
    if team.plain and (not len(match) or match.all()):
        return np.ones(len(snapshot.workers), np.bool_)
    able = ~team.draining & (team.cap > 0)
    if len(match):
        able &= match.any(axis=0)
    if team.cordoned.any():
        able &= team.active | (count_per_worker(keeps, len(snapshot.workers)) > 0)
    return able


def measure_utilizations(snapshot: Snapshot, owner: Codes, by_count: bool) -> Floats:
    """Return the load, or with `by_count` the number of partitions, of each worker divided by its capacity."""
    held = count_per_worker(owner, len(snapshot.workers), None if by_count else snapshot.load)
    return np.asarray(held / snapshot.team.capacity, np.float64)


def measure_imbalance(snapshot: Snapshot, owner: Codes, able: Bools, by_count: bool) -> float | None:
    """Return the imbalance among the workers `able`, by load or by number of partitions."""
    if not able.any():
        return None
    used, capacity = measure_utilizations(snapshot, owner, by_count)[able], snapshot.team.capacity[able]
    mean = measure_mean_utilization(used, capacity)
    return float(used.max()) / mean if mean > 0 else 1.0


def measure_mean_utilization(used: Floats, capacity: Floats) -> float:
    """Return the total load divided by the total capacity."""
    return float((used * capacity).sum()) / float(capacity.sum())  # no BLAS: BLAS threads cost more than the sum


def bound_peak(snapshot: Snapshot, match: Bools, able: Bools, placed: Bools) -> float:
    """Return a lower bound of the largest utilization in any valid assignment of the loads that `placed` marks.

    The bound is the largest of three: total load over total capacity; each load over the largest capacity that may hold
    it; for W workers, the W-th plus the (W+1)-th largest load over the largest capacity (Aggarwal, Motwani, Zhu 2006).
    """
    load, capacity = snapshot.load[placed], snapshot.team.capacity[able]
    if not len(capacity) or not len(load):
        return 0.0
    bound = float(load.sum() / capacity.sum())
    heaviest = np.zeros(len(snapshot.kinds))
    np.maximum.at(heaviest, snapshot.kind[placed], load)
    roomiest = np.where(match & able, snapshot.team.capacity, 0.0).max(axis=1, initial=0.0)
    asked = roomiest > 0
    bound = max(bound, float((heaviest[asked] / roomiest[asked]).max(initial=0.0)))
    if len(load) > (size := len(capacity)):
        top = np.partition(load, len(load) - size - 1)[-size - 1 :]
        top.sort()
        bound = max(bound, float(top[0] + top[1]) / float(capacity.max()))
    return bound
