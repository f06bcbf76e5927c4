"""`sticky`: counts in proportion to capacity with the fewest moves.

Laws, in rank order:
1. The assignment is valid, and as many partitions as possible are placed.
2. The sum over workers of count²/capacity is minimal.
3. The number of moves is minimal.
4. The partitions of each source are spread evenly: the sum over sources and workers of count² is minimal.
5. Ties are broken by id.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rota.core.assignors.hashing import hash_ids
from rota.core.assignors.known_assignors import Proposal
from rota.core.assignors.options import read_options
from rota.core.assignors.selection import select_partitions
from rota.core.assignors.sticky.constrained import assign_constrained
from rota.core.assignors.sticky.open_choices import MOST_CELLS, OpenChoices
from rota.core.assignors.sticky.quota import Quotas, compute_quotas
from rota.core.assignors.sticky.source_spread import spread_by_flow
from rota.core.columns import count_per_worker, find_runs
from rota.core.constraints import find_matches, find_valid_owners
from rota.core.values import Bools, Codes, Ints, Snapshot


def assign(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """Return the target of `snapshot`. `sticky` has no options and no memory. Raises ConfigError if an option is given."""
    read_options("sticky", options, {})
    match = find_matches(snapshot)
    keeps = find_valid_owners(snapshot, match)
    if not snapshot.workers or not len(keeps):
        return Proposal(keeps)
    if (match == match[0]).all():
        return _assign_unconstrained(snapshot, keeps, match[0])
    target, quota, note = assign_constrained(snapshot, match, keeps)
    return Proposal(
        target,
        make_quota_explainer(snapshot, count_per_worker(keeps, len(quota)), quota),
        note=note,
        proven="not proven" not in note,
    )


def _assign_unconstrained(snapshot: Snapshot, keeps: Codes, match: Bools) -> Proposal:
    """Return the target if every partition may go to the same workers: quotas by the closed form."""
    team, workers = snapshot.team, len(snapshot.workers)
    own = count_per_worker(keeps, workers)
    bound = np.where(match & ~team.draining, team.cap, 0)
    bound = np.where(team.cordoned, np.minimum(bound, own), bound)
    quotas = compute_quotas(len(keeps), np.minimum(own, bound), bound, team.capacity)
    explain = make_quota_explainer(snapshot, own, quotas.quota)
    if len(snapshot.sources) == 1 or not (own != quotas.quota).any():
        change = (quotas.quota - own)[None, :]
        return Proposal(select_partitions(keeps, None, np.maximum(-change, 0), np.maximum(change, 0)), explain)
    if len(snapshot.sources) * workers > MOST_CELLS:
        change = (quotas.quota - own)[None, :]
        target = select_partitions(keeps, None, np.maximum(-change, 0), np.maximum(change, 0))
        return Proposal(target, explain, note=f"sources are not spread: more than {MOST_CELLS:,} source-worker cells")
    choices = _find_open_choices(snapshot, keeps, own, quotas)
    released, taken = spread_by_flow(choices)
    held = own + (taken - released).sum(axis=0)  # not `quotas.quota`: the flow decides ties between quotas
    return Proposal(
        select_partitions(keeps, snapshot.source, released, taken), make_quota_explainer(snapshot, own, held)
    )


def _find_open_choices(snapshot: Snapshot, keeps: Codes, own: Ints, quotas: Quotas) -> OpenChoices:
    """Return the choices that the closed form leaves: the sources that workers give or take, and the workers of a tie
    that get more."""
    sources, workers = len(snapshot.sources), len(own)
    start, length = find_runs(keeps, snapshot.source)
    source, owner = snapshot.source[start].astype(np.int64), keeps[start]
    held = owner >= 0
    have = np.zeros((sources, workers), np.int64)
    np.add.at(have, (source[held], owner[held]), length[held])
    free = np.zeros(sources, np.int64)
    np.add.at(free, source[~held], length[~held])
    takers = own < quotas.low + quotas.optional
    return OpenChoices(
        have=have,
        source=np.arange(sources),
        free=free,
        release=np.broadcast_to(own > quotas.low, have.shape),
        take=np.broadcast_to(takers, have.shape),
        low=quotas.low,
        optional=quotas.optional,
        extra=quotas.extra,
        waiting=len(keeps) - int(quotas.quota.sum()),
        may_wait=np.ones(sources, np.bool_),
        salt=(hash_ids(snapshot.sources), hash_ids(w.id for w in snapshot.workers)),
    )


def make_quota_explainer(snapshot: Snapshot, own: Ints, quota: Ints) -> Callable[[int], str]:
    """Return the function that explains a move: its giver had more than its quota, or made room for another partition."""

    def explain(partition: int) -> str:
        giver = int(snapshot.owner[partition])
        name, allowed = snapshot.workers[giver].id, int(quota[giver])
        over = int(own[giver]) - allowed
        if over > 0:
            return f"{name} was {over} over its quota of {allowed}"
        return f"{name} made room: it may hold what others may not"

    return explain
