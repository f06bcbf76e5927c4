"""From a proposal to a plan: what moves now under a policy, in which order, and why the rest waits.

Laws: `plan` is a pure function. An unavoidable move (its owner is gone, may not hold it, or is over its cap, as it stands
or by what must come to it) is exempt from budget and cooldown. Nobody's target is over its cap, whatever the budget; done
one after the other, the moves keep every cap at every instant if any order can. Not to move is a result with a reason, and
with a `due` if it waits. The memory is that of what happens, not of what is held back. From every interrupted prefix of
its own moves a plan goes on to the same end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rota.core.assignors.options import part, remembered
from rota.core.assignors.registry import BY_COUNT, Proposal, find
from rota.core.budget import chosen
from rota.core.columns import counted
from rota.core.constraints import matching, rightful
from rota.core.measures import holders, imbalance, lowest_peak, mean_utilization, utilizations
from rota.core.order import ordered
from rota.core.reasons import Left, Moves
from rota.core.values import UNLIMITED, Assignment, Bools, Codes, Ints, Measures, Plan, Policy, Snapshot


def plan(
    snapshot: Snapshot,
    assignor: str = "sticky",
    options: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
) -> Plan:
    """The plan of `assignor` for `snapshot` under `policy`. Raises ConfigError on a bad name or option."""
    policy, memory = policy or Policy(), memory or {}
    assign, past = find(assignor), part(memory, assignor)
    waits = _returning(snapshot, policy)
    proposal = _proposed(snapshot, waits, lambda s: assign(s, options or {}, past))
    match = matching(snapshot)
    keeps = rightful(snapshot, match)
    forced = _unavoidable(snapshot, keeps, proposal.target)
    now = _under(
        policy,
        snapshot,
        proposal,
        forced,
        remembered("planner", part(memory, "planner"), {"voluntary_at": "number"}),
    )
    target, placed = now.target, now.placed
    thought = proposal.memory
    if proposal.remembers and target is not proposal.target:
        thought = proposal.remembers(target)  # what was held back has not happened
    kept: dict[str, Any] = {assignor: dict(thought)} if thought else {}
    if now.voluntary_at is not None:
        kept["planner"] = {"voluntary_at": now.voluntary_at}
    dues = [d for d in (proposal.due, now.due, *waits.values()) if d is not None]
    words = {code: f"{snapshot.name(code)} may return until {until:g}" for code, until in waits.items()}
    return Plan(
        Assignment(snapshot, target),
        Moves(snapshot, target, placed, now.must, proposal.why),
        Left(snapshot, np.flatnonzero(target < 0), words, proposal.target),
        _measures(snapshot, match, keeps, now, proposal, assignor in BY_COUNT),
        due=min(dues, default=None),
        memory=kept,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    """What of a proposal happens now."""

    target: Codes
    placed: Ints
    must: Bools
    due: float | None = None
    voluntary_at: float | None = None
    reason: str = ""


def _returning(snapshot: Snapshot, policy: Policy) -> dict[int, float]:
    """Codes of gone workers that may still come back, and until when."""
    if policy.grace <= 0:
        return {}
    until = {
        -2 - k: min(snapshot.absences.get(w, snapshot.now), snapshot.now) + policy.grace
        for k, w in enumerate(snapshot.gone)
    }
    return {code: end for code, end in until.items() if end > snapshot.now}


def _proposed(snapshot: Snapshot, waits: Mapping[int, float], assign: Any) -> Proposal:
    """The proposal for all partitions but those that wait for their worker: nobody else is burdened with them yet."""
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
    why, remembers = inner.why, inner.remembers
    return replace(
        inner,
        target=target,
        why=None if why is None else lambda i: why(place[i]),
        remembers=None if remembers is None else lambda happens: remembers(happens[rows]),
    )


def _unavoidable(snapshot: Snapshot, keeps: Codes, target: Codes) -> Bools:
    """Partitions whose owner is gone or may not hold them, and of each worker over its cap as many as it is over."""
    forced: Bools = keeps < 0
    if (snapshot.team.cap < UNLIMITED).any():
        over = np.maximum(counted(keeps, len(snapshot.workers)) - snapshot.team.cap, 0)
        for worker in np.flatnonzero(over):
            leaving = np.flatnonzero((keeps == worker) & (target != worker))
            forced[leaving[: over[worker]]] = True
    return forced


def _under(policy: Policy, snapshot: Snapshot, proposal: Proposal, forced: Bools, memory: Mapping[str, Any]) -> _Chosen:
    """The moves that the policy allows now; what it holds back stays where it is."""
    now, last = snapshot.now, memory.get("voluntary_at")
    last = last if last is None else min(last, now)  # a clock that went back makes no wait longer
    cooling = last is not None and policy.cooldown > 0 and last + policy.cooldown > now
    changed = np.flatnonzero(proposal.target != snapshot.owner)
    target, making = chosen(snapshot, proposal.target, changed, forced, 0 if cooling else policy.budget)
    must = forced.copy() if making else forced
    must[making] = True
    voluntary = changed[~must[changed]]
    moved = int(np.count_nonzero(target[voluntary] != snapshot.owner[voluntary]))
    placed = changed[(target[changed] >= 0) & (target[changed] != snapshot.owner[changed])]
    placed = ordered(snapshot, target, placed, must)
    stamp = now if moved and policy.cooldown else last if cooling else None
    if target is proposal.target:
        return _Chosen(target, placed, must, voluntary_at=stamp)
    held = len(voluntary) - moved
    if cooling and last is not None:
        since = f"the last were {now - last:g} s ago, the cooldown is {policy.cooldown:g} s"
        return _Chosen(target, placed, must, last + policy.cooldown, stamp, f"{held} voluntary moves wait: {since}")
    waiting = f"{held} voluntary moves wait: the budget is {policy.budget}"
    if policy.budget and (target == np.maximum(snapshot.owner, -1)).all():  # another look would find the same
        return _Chosen(target, placed, must, None, stamp, f"{waiting}, and allows none of them within the caps")
    return _Chosen(target, placed, must, now + policy.cooldown if policy.budget else None, stamp, waiting)


def _measures(
    snapshot: Snapshot,
    match: Bools,
    keeps: Codes,
    now: _Chosen,
    proposal: Proposal,
    by_count: bool,
) -> Measures:
    able = holders(snapshot, match, keeps)
    after = imbalance(snapshot, now.target, able, by_count)
    givers = snapshot.owner[now.placed]
    had = givers != -1
    moves = int(np.count_nonzero(had))
    reason = "; ".join(r for r in (proposal.note, now.reason) if r)
    if not len(now.placed) and not reason:
        reason = _why_nothing(snapshot, now.target, by_count)
    return Measures(
        imbalance_before=imbalance(snapshot, snapshot.owner, able, by_count),
        imbalance_after=after,
        lower_bound=_lower_bound(snapshot, match, able, now, proposal, by_count, after),
        moves=moves,
        unavoidable_moves=int(np.count_nonzero(now.must[now.placed] & had)),
        placements=len(now.placed) - moves,
        reason=reason,
    )


def _lower_bound(
    snapshot: Snapshot,
    match: Bools,
    able: Bools,
    now: _Chosen,
    proposal: Proposal,
    by_count: bool,
    after: float | None,
) -> float | None:
    """In the ratio of `after`. By count, proven and with equal capacities, the assignor's target is itself the bound."""
    if after is None:
        return None
    capacity = snapshot.team.capacity[able]
    if by_count and proposal.proven and (capacity == capacity[0]).all():
        return after if now.target is proposal.target else imbalance(snapshot, proposal.target, able, True)
    used = utilizations(snapshot, now.target, by_count)[able]
    mean = mean_utilization(used, capacity)
    if mean <= 0:
        return 1.0
    counting = replace(snapshot, load=np.ones(len(snapshot.load))) if by_count else snapshot
    peak = lowest_peak(counting, match, able, now.target >= 0)
    return min(after, max(peak, proposal.lower_bound or 0.0) / mean)


def _why_nothing(snapshot: Snapshot, target: Codes, by_count: bool) -> str:
    if not snapshot.workers:
        return "nothing moves: there is no worker"
    if not len(target):
        return "nothing moves: there is no partition"
    if (target < 0).all():
        return "nothing moves: no partition can be placed"
    what = "counts are as even as they can be" if by_count else "the loads are where they belong"
    return f"nothing moves: {what}"
