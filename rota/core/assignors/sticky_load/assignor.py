"""`sticky-load`: the largest utilization (load/capacity), the peak, as low as `budget` voluntary moves allow.

Laws, in rank order:
1. The assignment is valid, and as many partitions as possible are placed.
2. Nothing moves voluntarily if the imbalance is within `tolerance`, if noise explains the imbalance of a settled
   placement (`noise_band`, which uses the memory), or if the gain is less than a quarter of `tolerance` - 1.
3. At most `budget` moves are voluntary.
4. Each voluntary move lowers the peak by at least `move_price`, in units of the mean utilization.
5. The peak is the lowest, with the fewest moves. This is exact for a budget of up to 4 if all sets of moves can be tried
   (`exhaustive_search`). Otherwise `local_search` (a beam, a descent) finds the moves, and a lower peak may exist.

The problem is NP-hard (Aggarwal, Motwani, Zhu, "The load rebalancing problem", 2006), so a plan states a lower bound too.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rota.core.assignors.known_assignors import Proposal
from rota.core.assignors.options import Option, read_memory, read_options
from rota.core.assignors.rounds import ROUND
from rota.core.assignors.sticky_load.exhaustive_search import can_try_all, try_all
from rota.core.assignors.sticky_load.local_search import SearchSpace, descend, search_beam
from rota.core.assignors.sticky_load.noise_band import MEMORY, NOISE, NoiseBand
from rota.core.assignors.sticky_load.placement import enforce_caps, place_longest_first
from rota.core.constraints import find_matches, find_valid_owners
from rota.core.measures import find_holders, measure_mean_utilization, measure_utilizations
from rota.core.values import Codes, Floats, Snapshot

FEW = 4  # up to this many moves are searched as a set, further moves one by one
OPTIONS = {
    "budget": Option(None, whole=True),
    "tolerance": Option(1.1),
    "move_price": Option(0.0),
}


def assign(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:
    """Return the target by load. A `tolerance` below 1 is added to 1: 0.05 is an imbalance of 1.05. Raises ConfigError."""
    settings = read_options("sticky-load", options, OPTIONS)
    tolerance = settings["tolerance"] + (1.0 if settings["tolerance"] < 1 else 0.0)
    match = find_matches(snapshot)
    keeps = find_valid_owners(snapshot, match)
    if not snapshot.workers or not len(keeps):
        return Proposal(keeps)
    start = place_longest_first(snapshot, match, keeps, enforce_caps(snapshot, keeps))
    able = find_holders(snapshot, match, keeps)
    due = snapshot.now + ROUND
    if not able.any():
        return Proposal(start, due=due)
    used, capacity = measure_utilizations(snapshot, start, False), snapshot.team.capacity
    mean = measure_mean_utilization(used[able], capacity[able])
    budget = settings["budget"]
    floor = _bound_peak(snapshot, keeps, start, budget)
    level = float(used.max()) / mean if mean > 0 else 1.0
    band = NoiseBand(snapshot, match, settings, read_memory("sticky-load", memory, MEMORY)["settled"])
    was = band.find_settled(keeps, able, level, min(tolerance - 1, NOISE)) if mean > 0 else None
    if level <= tolerance * (1 + 1e-12) or was is not None:
        note = f"within the tolerance: {level:.3f} is not above {tolerance:g}"
        if was is not None and level > tolerance:
            note = f"{level:.3f} is no news: it settled at {was:.3f}, and loads are noisy"
        kept = band.remember(start, level if was is None else was)
        return Proposal(start, None, kept, _note_if_unmoved(note, start, keeps), due, floor)
    space = SearchSpace.of(snapshot, match, start, mean, settings["move_price"], tolerance)
    target = lower_peak(space, budget)
    if _measure_gain(snapshot, start, target, level * mean) < (tolerance - 1) / 4 * mean:
        target = start
    moved = int(np.count_nonzero(target != start))
    after = float(measure_utilizations(snapshot, target, False).max()) / mean
    ended = not moved or budget is None or moved < budget or after <= tolerance
    note = "" if moved else f"no move is worth its price: {level:.3f}"
    kept = band.remember(target, after) if ended else {}
    return Proposal(
        target, _make_explainer(snapshot, used, mean), kept, _note_if_unmoved(note, target, keeps), due, floor
    )


def _measure_gain(snapshot: Snapshot, start: Codes, target: Codes, peak: float) -> float:
    """Return how far below `peak` the highest worker ends among those that give or take a partition. Other workers at the
    peak may have to wait."""
    changed = target != start
    after = measure_utilizations(snapshot, target, False)
    return peak - float(after[np.concatenate((start[changed], target[changed]))].max(initial=0.0))


def lower_peak(space: SearchSpace, budget: int | None) -> Codes:
    """Return the target with the lowest peak found: the best set of few moves, then a descent with the rest of the
    budget.

    Without a budget each move must gain a thousandth of the mean. Otherwise thousands of moves would gain almost nothing.
    """
    if budget is None:
        return descend(replace(space, price=max(space.price, space.mean / 1000)), None)
    first = min(budget, FEW)
    target = try_all(space, first) if can_try_all(space, first) else space.start
    if not (target != space.start).any():  # too many sets, or several workers at the peak: a search step by step
        target = search_beam(space, first)
    spent = int(np.count_nonzero(target != space.start))
    if budget <= FEW or spent >= budget:
        return target
    return descend(replace(space, start=target), budget - spent)


def _note_if_unmoved(note: str, target: Codes, keeps: Codes) -> str:
    return "" if (target != keeps).any() else note


def _bound_peak(snapshot: Snapshot, keeps: Codes, start: Codes, budget: int | None) -> float | None:
    """Return a lower bound of the peak after `budget` moves, None without a budget: the largest utilization of a worker
    without its `budget` + k largest partitions, if k of them had to leave."""
    if budget is None:
        return None
    best, own = 0.0, measure_utilizations(snapshot, keeps, False)
    for worker in np.argsort(-own, kind="stable").tolist():
        if own[worker] <= best:
            break
        held = keeps == worker
        free = budget + int(np.count_nonzero(start[held] != worker))
        loads = np.sort(snapshot.load[held])
        rest = loads[: max(len(loads) - free, 0)].sum() / snapshot.team.capacity[worker]
        best = max(best, float(rest))
    return best


def _make_explainer(snapshot: Snapshot, used: Floats, mean: float) -> Callable[[int], str]:
    """Return the function that explains a move. `used` are the utilizations after the unavoidable moves."""
    before = measure_utilizations(snapshot, snapshot.owner, False)

    def explain(partition: int) -> str:
        giver = int(snapshot.owner[partition])
        share = used[giver] / mean
        if share > 1 and not np.isclose(used[giver], before[giver]):
            return f"{snapshot.workers[giver].id} would carry {share:.2f} times the mean after what had to move"
        if share > 1:
            return f"{snapshot.workers[giver].id} carried {share:.2f} times the mean"
        return f"{snapshot.workers[giver].id} made room for a larger one"

    return explain
