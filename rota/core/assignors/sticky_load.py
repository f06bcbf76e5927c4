"""`sticky-load`: the largest utilization (load/capacity) as low as `budget` voluntary moves allow.

Laws, in rank order: valid and as many placed as possible; nothing voluntary while the imbalance is within `tolerance`,
nor for a gain of less than a quarter of it (where no balance is possible, noise would move something at each look);
at most `budget` voluntary moves; each of them worth `move_price` (the least gain in peak/mean for a move); the lowest
peak that the search finds, with the fewest moves. The problem is NP-hard: the lower bound stands beside the result
(Aggarwal, Motwani, Zhu, "The load rebalancing problem", 2006).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rota.core.assignors.loads import placed, within_caps
from rota.core.assignors.options import Option, chosen
from rota.core.assignors.peaks import Peaks, few, many
from rota.core.assignors.registry import Proposal
from rota.core.assignors.scores import ROUND
from rota.core.eligibility import matching, rightful
from rota.core.measures import holders, mean_utilization, utilizations
from rota.core.values import Codes, Floats, Snapshot

FEW = 4  # so many moves are searched as sets, further ones as one move or swap after the other
OPTIONS = {
    "budget": Option(None, whole=True),
    "tolerance": Option(1.1),
    "move_price": Option(0.0),
}


def assign(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """The target by load. A `tolerance` below 1 counts from 1: 0.05 means an imbalance of 1.05."""
    settings = chosen("sticky-load", options, OPTIONS)
    tolerance = settings["tolerance"] + (1.0 if settings["tolerance"] < 1 else 0.0)
    match = matching(snapshot)
    keeps = rightful(snapshot, match)
    if not snapshot.workers or not len(keeps):
        return Proposal(keeps)
    start = placed(snapshot, match, keeps, within_caps(snapshot, keeps))
    able = holders(snapshot, match, keeps)
    due = snapshot.now + ROUND
    if not able.any():
        return Proposal(start, due=due)
    used, capacity = utilizations(snapshot, start, False), snapshot.team.capacity
    mean = mean_utilization(used[able], capacity[able])
    budget = settings["budget"]
    floor = _floor(snapshot, start, used, budget)
    peak = float(used.max())
    if mean <= 0 or peak <= tolerance * mean * (1 + 1e-12):
        note = f"within the tolerance: {peak / mean if mean > 0 else 1:.3f} is not above {tolerance:g}"
        return Proposal(start, None, {}, _if_settled(note, start, keeps), due, floor)
    peaks = Peaks.of(snapshot, match, start, mean, settings["move_price"], tolerance)
    target = lowered(peaks, budget)
    if _gain(snapshot, start, target, peak) < (tolerance - 1) / 4 * mean:
        target = start  # noise alone would move something at each look where no balance is possible
    note = "" if (target != start).any() else f"no move is worth its price: {peak / mean:.3f}"
    return Proposal(target, _why(snapshot, used, mean), {}, _if_settled(note, target, keeps), due, floor)


def _gain(snapshot: Snapshot, start: Codes, target: Codes, peak: float) -> float:
    """How far below the peak everybody ends who gives or takes; others that are as high may have to wait."""
    changed = target != start
    after = utilizations(snapshot, target, False)
    return peak - float(after[np.concatenate((start[changed], target[changed]))].max(initial=0.0))


def lowered(peaks: Peaks, budget: int | None) -> Codes:
    """The lowest peak found with `budget` moves: the best set of a few, then a descent with what is left. Without a
    budget a move must gain a thousandth of the mean, or thousands would polish what nobody can see."""
    if budget is None:
        return many(replace(peaks, price=max(peaks.price, peaks.mean / 1000)), None)
    target = few(peaks, min(budget, FEW))
    spent = int(np.count_nonzero(target != peaks.start))
    if budget <= FEW or spent >= budget:
        return target
    return many(replace(peaks, start=target), budget - spent)


def _if_settled(note: str, target: Codes, keeps: Codes) -> str:
    return "" if (target != keeps).any() else note


def _floor(snapshot: Snapshot, start: Codes, used: Floats, budget: int | None) -> float | None:
    """What `budget` moves cannot go below: each worker without its `budget` largest partitions."""
    if budget is None:
        return None
    best = 0.0
    for worker in np.argsort(-used, kind="stable").tolist():
        if used[worker] <= best:
            break
        loads = np.sort(snapshot.load[start == worker])
        rest = loads[: max(len(loads) - budget, 0)].sum() / snapshot.team.capacity[worker]
        best = max(best, float(rest))
    return best


def _why(snapshot: Snapshot, used: Floats, mean: float) -> Callable[[int], str]:
    def why(partition: int) -> str:
        giver = int(snapshot.owner[partition])
        share = used[giver] / mean
        if share > 1:
            return f"{snapshot.workers[giver].id} carried {share:.2f} times the mean"
        return f"{snapshot.workers[giver].id} made room for a larger one"

    return why
