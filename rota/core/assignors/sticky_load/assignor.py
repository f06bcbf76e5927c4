"""`sticky-load`: the largest utilization (load/capacity) as low as `budget` voluntary moves allow.

Laws, in rank order: valid and as many placed as possible; nothing voluntary while the imbalance is within `tolerance`,
nor for a gain of less than a quarter of it, nor while a placement that settled is as noise of +-10 % may show it
(`noise_band.py`: exactly what holds; it takes the memory); at most `budget` voluntary moves; each of them worth `move_price`
(the least gain in peak/mean for a move); the lowest peak, with the fewest moves: of all sets of moves where a budget of
up to 4 leaves few enough (`sets.py`), else the lowest that a beam and a descent find, which is not proven to be the
lowest. The problem is NP-hard: the lower bound stands beside the result
(Aggarwal, Motwani, Zhu, "The load rebalancing problem", 2006).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rota.core.assignors.options import Option, chosen, remembered
from rota.core.assignors.registry import Proposal
from rota.core.assignors.rounds import ROUND
from rota.core.assignors.sticky_load.exhaustive_search import best_of_all, countable
from rota.core.assignors.sticky_load.local_search import Peaks, few, many
from rota.core.assignors.sticky_load.noise_band import MEMORY, NOISE, Band
from rota.core.assignors.sticky_load.placement import placed, within_caps
from rota.core.constraints import matching, rightful
from rota.core.measures import holders, mean_utilization, utilizations
from rota.core.values import Codes, Floats, Snapshot

FEW = 4  # so many moves are searched as sets, further ones as one move or swap after the other
OPTIONS = {
    "budget": Option(None, whole=True),
    "tolerance": Option(1.1),
    "move_price": Option(0.0),
}


def assign(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:
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
    floor = _floor(snapshot, keeps, start, budget)
    level = float(used.max()) / mean if mean > 0 else 1.0
    band = Band(snapshot, match, settings, remembered("sticky-load", memory, MEMORY)["settled"])
    was = band.settled_at(keeps, able, level, min(tolerance - 1, NOISE)) if mean > 0 else None
    if level <= tolerance * (1 + 1e-12) or was is not None:
        note = f"within the tolerance: {level:.3f} is not above {tolerance:g}"
        if was is not None and level > tolerance:
            note = f"{level:.3f} is no news: it settled at {was:.3f}, and loads are noisy"
        kept = band.memory(start, level if was is None else was)
        return Proposal(start, None, kept, _if_settled(note, start, keeps), due, floor)
    peaks = Peaks.of(snapshot, match, start, mean, settings["move_price"], tolerance)
    target = lowered(peaks, budget)
    if _gain(snapshot, start, target, level * mean) < (tolerance - 1) / 4 * mean:
        target = start
    moved = int(np.count_nonzero(target != start))
    after = float(utilizations(snapshot, target, False).max()) / mean
    ended = not moved or budget is None or moved < budget or after <= tolerance
    note = "" if moved else f"no move is worth its price: {level:.3f}"
    kept = band.memory(target, after) if ended else {}
    return Proposal(target, _why(snapshot, used, mean), kept, _if_settled(note, target, keeps), due, floor)


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
    first = min(budget, FEW)
    target = best_of_all(peaks, first) if countable(peaks, first) else peaks.start
    if not (target != peaks.start).any():  # too many to try, or several are equally hot: one after the other
        target = few(peaks, first)
    spent = int(np.count_nonzero(target != peaks.start))
    if budget <= FEW or spent >= budget:
        return target
    return many(replace(peaks, start=target), budget - spent)


def _if_settled(note: str, target: Codes, keeps: Codes) -> str:
    return "" if (target != keeps).any() else note


def _floor(snapshot: Snapshot, keeps: Codes, start: Codes, budget: int | None) -> float | None:
    """What `budget` moves cannot go below: what each worker has, without its `budget` largest partitions and as many more
    as had to leave it. What is placed might have been placed elsewhere."""
    if budget is None:
        return None
    best, own = 0.0, utilizations(snapshot, keeps, False)
    for worker in np.argsort(-own, kind="stable").tolist():
        if own[worker] <= best:
            break
        held = keeps == worker
        free = budget + int(np.count_nonzero(start[held] != worker))
        loads = np.sort(snapshot.load[held])
        rest = loads[: max(len(loads) - free, 0)].sum() / snapshot.team.capacity[worker]
        best = max(best, float(rest))
    return best


def _why(snapshot: Snapshot, used: Floats, mean: float) -> Callable[[int], str]:
    """`used` is what each worker carries once what must move has moved."""
    before = utilizations(snapshot, snapshot.owner, False)

    def why(partition: int) -> str:
        giver = int(snapshot.owner[partition])
        share = used[giver] / mean
        if share > 1 and not np.isclose(used[giver], before[giver]):
            return f"{snapshot.workers[giver].id} would carry {share:.2f} times the mean after what had to move"
        if share > 1:
            return f"{snapshot.workers[giver].id} carried {share:.2f} times the mean"
        return f"{snapshot.workers[giver].id} made room for a larger one"

    return why
