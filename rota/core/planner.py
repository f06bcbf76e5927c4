"""From a proposal to a plan: ordered moves under a policy, each with its reason.

Law: `plan` is a pure function; an unavoidable move (its owner is gone, may not hold it, or is over its cap) is exempt
from the budget; deciding not to move is a result with a reason.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rota.core.assignors.registry import Proposal, find
from rota.core.eligibility import caps, has_state
from rota.core.values import (
    NOBODY,
    Assignment,
    Codes,
    Floats,
    Ints,
    Lazy,
    Measures,
    Move,
    Plan,
    Policy,
    Snapshot,
    Unassigned,
)


def plan(
    snapshot: Snapshot,
    assignor: str = "sticky",
    options: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
) -> Plan:
    """The plan of `assignor` for `snapshot` under `policy`. Raises ConfigError, AssignmentError."""
    policy = policy or Policy()
    proposal = find(assignor)(snapshot, options or {}, memory or {})
    target = proposal.target
    placed = np.flatnonzero((target != snapshot.owner) & (target >= 0))
    missing = np.flatnonzero(target < 0)
    by_count = assignor == "sticky"
    moves = Moves(snapshot, target, placed, proposal)
    return Plan(
        Assignment(snapshot, target),
        moves,
        Left(snapshot, missing),
        _measures(snapshot, target, placed, by_count),
        memory=dict(proposal.memory),
    )


class Moves(Lazy[Move]):
    """The moves of a plan, made when looked at."""

    __slots__ = ("indices", "proposal", "snapshot", "target")

    def __init__(self, snapshot: Snapshot, target: Codes, indices: Ints, proposal: Proposal) -> None:
        self.snapshot, self.target, self.indices, self.proposal = snapshot, target, indices, proposal

    def __len__(self) -> int:
        return len(self.indices)

    def at(self, index: int) -> Move:
        """The move at this place of the order."""
        i = int(self.indices[index])
        snapshot, giver = self.snapshot, int(self.snapshot.owner[i])
        taker = snapshot.workers[int(self.target[i])].id
        return Move(snapshot.partition_ids[i], snapshot.name(giver), taker, float(snapshot.load[i]), self._reason(i))

    def _reason(self, i: int) -> str:
        giver = int(self.snapshot.owner[i])
        if giver == NOBODY:
            return "it had no owner"
        if giver < 0:
            return f"{self.snapshot.name(giver)} left"
        worker = self.snapshot.workers[giver]
        if worker.state == "draining":
            return f"{worker.id} is draining"
        return self.proposal.why(i) if self.proposal.why else "proposed"


class Left(Lazy[Unassigned]):
    """What nobody gets, and why."""

    __slots__ = ("indices", "snapshot")

    def __init__(self, snapshot: Snapshot, indices: Ints) -> None:
        self.snapshot, self.indices = snapshot, indices

    def __len__(self) -> int:
        return len(self.indices)

    def at(self, index: int) -> Unassigned:
        """The partition at this place."""
        i = int(self.indices[index])
        snapshot = self.snapshot
        reason = "no worker may take it" if snapshot.workers else "there is no worker"
        return Unassigned(snapshot.partition_ids[i], snapshot.name(int(snapshot.owner[i])), reason)


def _measures(snapshot: Snapshot, target: Codes, placed: Ints, by_count: bool) -> Measures:
    weight = None if by_count else snapshot.load
    holders = ~has_state(snapshot, "draining") & (caps(snapshot) > 0)
    after = imbalance(snapshot, target, holders, weight)
    givers = snapshot.owner[placed]
    draining = has_state(snapshot, "draining")
    forced = int((givers < NOBODY).sum()) + int(draining[givers[givers >= 0]].sum())
    return Measures(
        imbalance_before=imbalance(snapshot, snapshot.owner, holders, weight),
        imbalance_after=after,
        lower_bound=after,
        moves=int((givers != NOBODY).sum()),
        unavoidable_moves=forced,
        placements=int((givers == NOBODY).sum()),
        reason="" if len(placed) else "balanced: nothing to move",
    )


def imbalance(snapshot: Snapshot, owner: Codes, holders: Any, weight: Floats | None) -> float | None:
    """max/mean utilization over `holders`, the mean being their whole load over their whole capacity."""
    if not holders.any():
        return None
    held = owner >= 0
    counts = np.bincount(owner[held], minlength=len(holders), weights=None if weight is None else weight[held])[holders]
    capacity = np.fromiter((w.capacity for w in snapshot.workers), np.float64, len(holders))[holders]
    total = float(counts.sum())
    return float((counts / capacity).max() * capacity.sum() / total) if total > 0 else 1.0


__all__: Sequence[str] = ["plan"]
