"""Turn an assignor's proposal into a plan: which moves happen now under a policy, in which order, and why others wait.

Laws:
- `plan` is a pure function.
- Budget and cooldown hold back voluntary moves only. A move is unavoidable if the owner is gone, may not hold the
  partition, or is over its cap. A move that makes room for an unavoidable move is unavoidable too.
- No worker's target is over its cap, whatever the budget. If any order of the moves keeps every cap after each move, the
  plan's order does.
- A plan without moves states a reason. If moves wait until a time, `due` is not later than that time.
- The memory describes the moves of this plan, and no move that waits.
- If a plan is interrupted after any of its moves, planning again leads to the same assignment.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rota.core.assignors.known_assignors import BY_COUNT, Proposal, find_assignor
from rota.core.assignors.options import read_memory, read_part
from rota.core.budget import apply_budget
from rota.core.columns import count_per_worker
from rota.core.constraints import find_matches, find_valid_owners
from rota.core.measures import (
    bound_peak,
    find_holders,
    measure_imbalance,
    measure_mean_utilization,
    measure_utilizations,
)
from rota.core.order import order_moves
from rota.core.reasons import LazyMoves, LazyUnassigned
from rota.core.values import UNLIMITED, Assignment, Bools, Codes, Ints, Measures, Plan, Policy, Snapshot


def plan(
    snapshot: Snapshot,
    assignor: str = "sticky",
    options: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
) -> Plan:
    """Plan `snapshot` with `assignor` under `policy`. Raises ConfigError for an unknown assignor or a wrong option."""
    policy, memory = policy or Policy(), memory or {}
    assign, past = find_assignor(assignor), read_part(memory, assignor)
    waits = _find_returning(snapshot, policy)
    proposal = _propose(snapshot, waits, lambda s: assign(s, options or {}, past))
    return _make_plan(snapshot, proposal, policy, memory, waits, assignor)


def describe(snapshot: Snapshot, target: Codes, explain: Callable[[int], str]) -> Plan:
    """Return moves that happened without a planner, from the owners of `snapshot` to `target`, as a plan. `explain`
    explains a voluntary move. Law: the plan's target is `target`, even if `target` is not valid."""
    return _make_plan(snapshot, Proposal(target, explain, proven=False), Policy(), {}, {}, "sticky")


def _make_plan(
    snapshot: Snapshot,
    proposal: Proposal,
    policy: Policy,
    memory: Mapping[str, Any],
    waits: Mapping[int, float],
    assignor: str,
) -> Plan:
    match = find_matches(snapshot)
    keeps = find_valid_owners(snapshot, match)
    forced = _find_unavoidable(snapshot, keeps, proposal.target)
    now = _apply_policy(
        policy,
        snapshot,
        proposal,
        forced,
        read_memory("planner", read_part(memory, "planner"), {"voluntary_at": "number"}),
    )
    target, placed = now.target, now.placed
    kept_memory = proposal.memory
    if proposal.remember and target is not proposal.target:
        kept_memory = proposal.remember(target)  # without the moves that wait
    kept: dict[str, Any] = {assignor: dict(kept_memory)} if kept_memory else {}
    if now.voluntary_at is not None:
        kept["planner"] = {"voluntary_at": now.voluntary_at}
    dues = [d for d in (proposal.due, now.due, *waits.values()) if d is not None]
    words = {code: f"{snapshot.name(code)} may return until {until:g}" for code, until in waits.items()}
    return Plan(
        Assignment(snapshot, target),
        LazyMoves(snapshot, target, placed, now.must, proposal.explain),
        LazyUnassigned(snapshot, np.flatnonzero(target < 0), words, proposal.target),
        _measure_plan(snapshot, match, keeps, now, proposal, assignor in BY_COUNT),
        due=min(dues, default=None),
        memory=kept,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _AllowedMoves:
    """The part of a proposal that happens now. `due` and `voluntary_at`, the last voluntary moves, are snapshot seconds."""

    target: Codes
    placed: Ints
    must: Bools
    due: float | None = None
    voluntary_at: float | None = None
    reason: str = ""


def _find_returning(snapshot: Snapshot, policy: Policy) -> dict[int, float]:
    """Map the owner code of each gone worker that may still return to the time until which it may return."""
    if policy.grace <= 0:
        return {}
    until = {
        -2 - k: min(snapshot.absences.get(w, snapshot.now), snapshot.now) + policy.grace
        for k, w in enumerate(snapshot.gone)
    }
    return {code: end for code, end in until.items() if end > snapshot.now}


def _propose(snapshot: Snapshot, waits: Mapping[int, float], assign: Any) -> Proposal:
    """Return the proposal without partitions that wait for a gone worker. These partitions add load to no other worker."""
    if not waits or not (held := np.isin(snapshot.owner, list(waits))).any():
        proposal: Proposal = assign(snapshot)
        return proposal
    rows = np.flatnonzero(~held)
    columns = {c: getattr(snapshot, c)[rows] for c in ("owner", "load", "source", "kind", "rate", "throughput")}
    ids = tuple(snapshot.partition_ids[i] for i in rows.tolist())
    inner: Proposal = assign(replace(snapshot, partition_ids=ids, **columns))
    target = np.full(len(snapshot.owner), -1, np.int32)
    target[rows] = inner.target
    place = {int(row): i for i, row in enumerate(rows)}
    explain, remember = inner.explain, inner.remember
    return replace(
        inner,
        target=target,
        explain=None if explain is None else lambda i: explain(place[i]),
        remember=None if remember is None else lambda happens: remember(happens[rows]),
    )


def _find_unavoidable(snapshot: Snapshot, keeps: Codes, target: Codes) -> Bools:
    """Mark each partition whose owner is gone or may not hold it. If a worker is over its cap, mark as many of its
    partitions as it must release."""
    forced: Bools = keeps < 0
    if (snapshot.team.cap < UNLIMITED).any():
        over = np.maximum(count_per_worker(keeps, len(snapshot.workers)) - snapshot.team.cap, 0)
        for worker in np.flatnonzero(over):
            leaving = np.flatnonzero((keeps == worker) & (target != worker))
            forced[leaving[: over[worker]]] = True
    return forced


def _apply_policy(
    policy: Policy, snapshot: Snapshot, proposal: Proposal, forced: Bools, memory: Mapping[str, Any]
) -> _AllowedMoves:
    """Return the moves that the policy allows now. A partition whose move waits keeps its owner."""
    now, last = snapshot.now, memory.get("voluntary_at")
    last = last if last is None else min(last, now)  # if the clock went back, the wait does not grow
    cooling = last is not None and policy.cooldown > 0 and last + policy.cooldown > now
    changed = np.flatnonzero(proposal.target != snapshot.owner)
    target, making = apply_budget(snapshot, proposal.target, changed, forced, 0 if cooling else policy.budget)
    must = forced.copy() if making else forced
    must[making] = True
    voluntary = changed[~must[changed]]
    moved = int(np.count_nonzero(target[voluntary] != snapshot.owner[voluntary]))
    placed = changed[(target[changed] >= 0) & (target[changed] != snapshot.owner[changed])]
    placed = order_moves(snapshot, target, placed, must)
    stamp = now if moved and policy.cooldown else last if cooling else None
    if target is proposal.target:
        return _AllowedMoves(target, placed, must, voluntary_at=stamp)
    held = len(voluntary) - moved
    if cooling and last is not None:
        since = f"the last were {now - last:g} s ago, the cooldown is {policy.cooldown:g} s"
        return _AllowedMoves(
            target, placed, must, last + policy.cooldown, stamp, f"{held} voluntary moves wait: {since}"
        )
    waiting = f"{held} voluntary moves wait: the budget is {policy.budget}"
    if policy.budget and (target == np.maximum(snapshot.owner, -1)).all():  # planning again has the same result
        return _AllowedMoves(target, placed, must, None, stamp, f"{waiting}, and allows none of them within the caps")
    return _AllowedMoves(target, placed, must, now + policy.cooldown if policy.budget else None, stamp, waiting)


def _measure_plan(
    snapshot: Snapshot,
    match: Bools,
    keeps: Codes,
    now: _AllowedMoves,
    proposal: Proposal,
    by_count: bool,
) -> Measures:
    able = find_holders(snapshot, match, keeps)
    after = measure_imbalance(snapshot, now.target, able, by_count)
    givers = snapshot.owner[now.placed]
    had = givers != -1
    moves = int(np.count_nonzero(had))
    reason = "; ".join(r for r in (proposal.note, now.reason) if r)
    if not len(now.placed) and not reason:
        reason = _explain_no_moves(snapshot, now.target, by_count)
    return Measures(
        imbalance_before=measure_imbalance(snapshot, snapshot.owner, able, by_count),
        imbalance_after=after,
        lower_bound=_bound_imbalance(snapshot, match, able, now, proposal, by_count, after),
        moves=moves,
        unavoidable_moves=int(np.count_nonzero(now.must[now.placed] & had)),
        placements=len(now.placed) - moves,
        reason=reason,
    )


def _bound_imbalance(
    snapshot: Snapshot,
    match: Bools,
    able: Bools,
    now: _AllowedMoves,
    proposal: Proposal,
    by_count: bool,
    after: float | None,
) -> float | None:
    """Return a lower bound of the imbalance `after`. If an assignor by count proves its target and the capacities are
    equal, the imbalance of that target is the bound."""
    if after is None:
        return None
    capacity = snapshot.team.capacity[able]
    if by_count and proposal.proven and (capacity == capacity[0]).all():
        return after if now.target is proposal.target else measure_imbalance(snapshot, proposal.target, able, True)
    used = measure_utilizations(snapshot, now.target, by_count)[able]
    mean = measure_mean_utilization(used, capacity)
    if mean <= 0:
        return 1.0
    counting = replace(snapshot, load=np.ones(len(snapshot.load))) if by_count else snapshot
    peak = bound_peak(counting, match, able, now.target >= 0)
    return min(after, max(peak, proposal.lower_bound or 0.0) / mean)


def _explain_no_moves(snapshot: Snapshot, target: Codes, by_count: bool) -> str:
    if not snapshot.workers:
        return "nothing moves: there is no worker"
    if not len(target):
        return "nothing moves: there is no partition"
    if (target < 0).all():
        return "nothing moves: no partition can be placed"
    what = "counts are as even as they can be" if by_count else "the loads are where they belong"
    return f"nothing moves: {what}"
