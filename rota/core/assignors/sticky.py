"""`sticky`: counts in proportion to capacity with the fewest moves.

Laws, in rank order: valid and as many placed as possible; sum of count²/capacity minimal; fewest moves and placements;
each source spread evenly; ties by id.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rota.core.assignors.registry import Proposal
from rota.core.assignors.seats import quotas
from rota.core.eligibility import caps, has_state, matching
from rota.core.values import NOBODY, Codes, Floats, Ints, Snapshot
from rota.errors import AssignmentError, ConfigError


def assign(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """The sticky target of `snapshot`; takes no options and remembers nothing."""
    if options:
        raise ConfigError(f"Unknown option {sorted(options)[0]!r} of sticky. It takes none")
    if not matching(snapshot).all():
        raise AssignmentError("labels and pins are not served by sticky yet. Use equal workers")
    workers = len(snapshot.workers)
    owner = snapshot.owner
    if not workers:
        return Proposal(np.full(len(owner), NOBODY, np.int32))
    own = np.bincount(owner[owner >= 0] if int(owner.min(initial=0)) < 0 else owner, minlength=workers)
    bound = caps(snapshot)
    bound[has_state(snapshot, "draining")] = 0
    cordoned = has_state(snapshot, "cordoned")
    bound[cordoned] = np.minimum(bound, own)[cordoned]
    seats = quotas(len(owner), np.minimum(own, bound), bound, _capacities(snapshot))
    over = np.maximum(own - seats, 0)
    target = owner.copy()
    if over.any():
        target[_shed(owner, over)] = NOBODY
    target[target < 0] = NOBODY
    free = np.flatnonzero(target == NOBODY)
    if len(free):
        room = seats - np.minimum(own, seats)
        takers = np.repeat(np.arange(workers, dtype=np.int32), room)
        free = free[np.argsort(snapshot.source[free], kind="stable")]
        target[free[: len(takers)]] = takers
    return Proposal(target, _why(snapshot, own, seats))


def _capacities(snapshot: Snapshot) -> Floats:
    return np.fromiter((w.capacity for w in snapshot.workers), np.float64, len(snapshot.workers))


def _shed(owner: Codes, over: Ints) -> Ints:
    """The last `over[w]` partitions of each worker w."""
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(1, len(over) + 1))
    picks = np.repeat(ends, over) - 1 - (np.arange(int(over.sum())) - np.repeat(np.cumsum(over) - over, over))
    shed: Ints = order[picks]
    return shed


def _why(snapshot: Snapshot, own: Ints, seats: Ints) -> Any:
    def why(partition: int) -> str:
        giver = int(snapshot.owner[partition])
        over = int(own[giver] - seats[giver])
        return f"{snapshot.workers[giver].id} was {over} over its quota of {int(seats[giver])}"

    return why
