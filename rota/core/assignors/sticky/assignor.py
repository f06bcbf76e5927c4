"""`sticky`: counts in proportion to capacity with the fewest moves.

Laws, in rank order: valid and as many placed as possible; sum of count²/capacity minimal; fewest moves and placements;
each source spread evenly (least sum over sources and workers of count²); ties by id.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rota.core.assignors.hashing import hashed
from rota.core.assignors.options import chosen
from rota.core.assignors.registry import Proposal
from rota.core.assignors.selection import realise
from rota.core.assignors.sticky.constrained import labelled
from rota.core.assignors.sticky.open_choices import MOST_CELLS, Freedom
from rota.core.assignors.sticky.price_flow import pays, traded
from rota.core.assignors.sticky.quota import Seating, seating
from rota.core.assignors.sticky.source_spread import spread
from rota.core.columns import counted, runs
from rota.core.constraints import matching, rightful
from rota.core.values import Bools, Codes, Ints, Snapshot


def assign(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """The sticky target of `snapshot`; takes no options and remembers nothing."""
    chosen("sticky", options, {})
    match = matching(snapshot)
    keeps = rightful(snapshot, match)
    if not snapshot.workers or not len(keeps):
        return Proposal(keeps)
    if (match == match[0]).all():
        return _alike(snapshot, keeps, match[0])
    target, seats, note = labelled(snapshot, match, keeps)
    return Proposal(
        target, quota_reason(snapshot, counted(keeps, len(seats)), seats), note=note, proven="not proven" not in note
    )


def _alike(snapshot: Snapshot, keeps: Codes, match: Bools) -> Proposal:
    """Every partition may go to the same workers: seats by the closed form."""
    team, workers = snapshot.team, len(snapshot.workers)
    own = counted(keeps, workers)
    bound = np.where(match & ~team.draining, team.cap, 0)
    bound = np.where(team.cordoned, np.minimum(bound, own), bound)
    seats = seating(len(keeps), np.minimum(own, bound), bound, team.capacity)
    why = quota_reason(snapshot, own, seats.seats)
    if len(snapshot.sources) == 1 or not (own != seats.seats).any():
        change = (seats.seats - own)[None, :]
        return Proposal(realise(keeps, None, np.maximum(-change, 0), np.maximum(change, 0)), why)
    if len(snapshot.sources) * workers > MOST_CELLS:
        change = (seats.seats - own)[None, :]
        target = realise(keeps, None, np.maximum(-change, 0), np.maximum(change, 0))
        return Proposal(target, why, note=f"sources are not spread: more than {MOST_CELLS:,} source-worker cells")
    freedom = _freedom(snapshot, keeps, own, seats)
    released, taken = traded(freedom) if pays(freedom) else spread(freedom)
    held = own + (taken - released).sum(axis=0)  # not `seats`: who has one in a tie was open until now
    return Proposal(realise(keeps, snapshot.source, released, taken), quota_reason(snapshot, own, held))


def _freedom(snapshot: Snapshot, keeps: Codes, own: Ints, seats: Seating) -> Freedom:
    """What the closed form leaves open: which sources a giver gives, which a taker takes, who has the seats in a tie."""
    sources, workers = len(snapshot.sources), len(own)
    start, length = runs(keeps, snapshot.source)
    source, owner = snapshot.source[start].astype(np.int64), keeps[start]
    held = owner >= 0
    have = np.zeros((sources, workers), np.int64)
    np.add.at(have, (source[held], owner[held]), length[held])
    free = np.zeros(sources, np.int64)
    np.add.at(free, source[~held], length[~held])
    takers = own < seats.low + seats.optional
    return Freedom(
        have=have,
        source=np.arange(sources),
        free=free,
        release=np.broadcast_to(own > seats.low, have.shape),
        take=np.broadcast_to(takers, have.shape),
        low=seats.low,
        optional=seats.optional,
        extra=seats.extra,
        waiting=len(keeps) - int(seats.seats.sum()),
        may_wait=np.ones(sources, np.bool_),
        salt=(hashed(snapshot.sources), hashed(w.id for w in snapshot.workers)),
    )


def quota_reason(snapshot: Snapshot, own: Ints, seats: Ints) -> Callable[[int], str]:
    """Words for a move off a worker that had more than its quota, or that made room for another."""

    def why(partition: int) -> str:
        giver = int(snapshot.owner[partition])
        name, quota = snapshot.workers[giver].id, int(seats[giver])
        over = int(own[giver]) - quota
        if over > 0:
            return f"{name} was {over} over its quota of {quota}"
        return f"{name} made room: it may hold what others may not"

    return why
