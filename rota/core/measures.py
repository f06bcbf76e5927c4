"""How even an assignment is. Law: imbalance is max/mean utilization over the workers that may hold something, 1.0 at no
load, None without such workers; the mean is their whole load over their whole capacity."""

import numpy as np

from rota.core.columns import counted
from rota.core.values import Bools, Codes, Floats, Snapshot


def holders(snapshot: Snapshot, match: Bools, keeps: Codes) -> Bools:
    """The workers that may hold something: cordoned ones only if they do."""
    team = snapshot.team
    if team.plain and (not len(match) or match.all()):
        return np.ones(len(snapshot.workers), np.bool_)
    able = ~team.draining & (team.cap > 0)
    if len(match):
        able &= match.any(axis=0)
    if team.cordoned.any():
        able &= team.active | (counted(keeps, len(snapshot.workers)) > 0)
    return able


def utilizations(snapshot: Snapshot, owner: Codes, by_count: bool) -> Floats:
    """Load (or count) over capacity, for each worker."""
    held = counted(owner, len(snapshot.workers), None if by_count else snapshot.load)
    return np.asarray(held / snapshot.team.capacity, np.float64)


def imbalance(snapshot: Snapshot, owner: Codes, able: Bools, by_count: bool) -> float | None:
    """max/mean utilization over `able`, by load or by count."""
    if not able.any():
        return None
    used, capacity = utilizations(snapshot, owner, by_count)[able], snapshot.team.capacity[able]
    mean = mean_utilization(used, capacity)
    return float(used.max()) / mean if mean > 0 else 1.0


def mean_utilization(used: Floats, capacity: Floats) -> float:
    """The whole load over the whole capacity."""
    return float((used * capacity).sum()) / float(capacity.sum())  # no BLAS: its threads cost more than the sum


def lowest_peak(snapshot: Snapshot, match: Bools, able: Bools, placed: Bools) -> float:
    """A utilization that no valid assignment of the placed loads can stay below: the largest of the whole load over the
    whole capacity, the largest load over the largest capacity that may hold it, and (with alike workers) the W-th plus
    the W+1-th largest load. Aggarwal, Motwani, Zhu 2006."""
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
