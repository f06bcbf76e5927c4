"""The order of a plan's moves, and which of them fit a budget.

Laws: unavoidable moves first; then the most burdened giver first. Done one after the other the moves keep every cap at
every instant, if any order can: a move into a full worker waits for a move out of it. With a budget, a voluntary move
that makes room for an unavoidable one is not counted.
"""

import numpy as np

from rota.core.eligibility import counted
from rota.core.values import UNLIMITED, Bools, Codes, Ints, Snapshot


def ordered(snapshot: Snapshot, target: Codes, moves: Ints, forced: Bools, budget: int | None = None) -> Ints:
    """`moves` (partition indices) in order; with a budget only as many voluntary ones as it allows."""
    must = forced[moves]
    if not must.all():
        wish = moves[~must]
        moves = np.concatenate((moves[must], wish[_by_burden(snapshot, wish)]))
    capped = (snapshot.team.cap < UNLIMITED).any()
    if budget is None:
        return _feasible(snapshot, target, moves, len(moves)) if capped else moves
    certain = int(np.count_nonzero(must))
    if not capped:
        return moves[: certain + budget]
    return _feasible(snapshot, target, moves, certain + budget)


def _by_burden(snapshot: Snapshot, moves: Ints) -> Ints:
    """The k-th move of a giver that has more than others comes before theirs."""
    giver = snapshot.owner[moves]
    burden = counted(snapshot.owner, len(snapshot.workers)) / snapshot.team.capacity
    order = np.argsort(giver, kind="stable")
    ranks = np.empty(len(moves), np.int64)
    starts = np.searchsorted(giver[order], giver[order])
    ranks[order] = np.arange(len(moves)) - starts
    left = burden[giver] - ranks / snapshot.team.capacity[giver]
    by_burden: Ints = np.argsort(-left, kind="stable")
    return by_burden


def _feasible(snapshot: Snapshot, target: Codes, moves: Ints, wanted: int) -> Ints:
    """The first `wanted` moves, each preceded by the moves that make room for it. In a circle of full workers no order
    of whole moves keeps the caps: there the takers claim when they have released."""
    staying = np.where(target >= 0, snapshot.owner, -1)  # what nobody gets is let go first of all
    held = counted(staying, len(snapshot.workers)).tolist()
    cap, owner, goal = snapshot.team.cap.tolist(), snapshot.owner, target
    leaving: dict[int, list[int]] = {}
    for move in moves[::-1].tolist():
        leaving.setdefault(int(owner[move]), []).append(move)
    done: dict[int, None] = {}
    for first in moves[:wanted].tolist():
        chain, seen = [] if first in done else [first], {int(owner[first])}
        while chain and (taker := int(goal[chain[-1]])) >= 0 and held[taker] >= cap[taker] and taker not in seen:
            while leaving[taker][-1] in done:  # the target keeps the caps, so a full taker has something to give
                leaving[taker].pop()
            seen.add(taker)
            chain.append(leaving[taker][-1])
        for move in reversed(chain):
            done[move] = None
            if (giver := int(owner[move])) >= 0:
                held[giver] -= 1
            if (taker := int(goal[move])) >= 0:
                held[taker] += 1
    return np.array(list(done), np.int64)
