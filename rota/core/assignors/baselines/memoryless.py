"""Baselines without memory: rendezvous hash, contiguous ranges, round robin, StatefulSet ordinals.

Law: the target depends only on the ids (for `hash` also capacities) of active workers and partitions, with two
exceptions. A cordoned worker keeps its partitions up to its cap. The nearest valid assignment obeys labels, pins and
caps. Therefore planning twice moves nothing.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from rota.core.assignors.known_assignors import Proposal
from rota.core.assignors.nearest_valid import find_nearest_valid
from rota.core.assignors.options import Option, read_options
from rota.core.columns import count_per_worker
from rota.core.constraints import find_matches, find_valid_owners
from rota.core.values import Bools, Codes, Floats, Ints, Snapshot

# (partitions, workers, partitions dealt before) -> for each partition, the place of its worker
DealRule = Callable[[int, int, int], Ints]


def assign_range(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """`range`: contiguous slices in the order of ids. The remainder goes to the first workers, one partition each."""
    read_options("range", options, {})
    return _deal(snapshot, _deal_evenly, "its slice belongs to {taker}", _order_by_id(snapshot))


def assign_round_robin(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """`round-robin`: the i-th partition goes to worker i modulo W."""
    read_options("round-robin", options, {})
    return _deal(
        snapshot, lambda n, w, before: (before + np.arange(n)) % w, "its turn is {taker}'s", _order_by_id(snapshot)
    )


def assign_ordinal(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """`ordinal`: the published StatefulSet rule. With a = min(W, P), worker i gets P // a partitions from i * (P // a)
    on, and the last worker also the remainder. With the option `spread` the remainder goes to the first workers, one
    each.

    Workers are ordered by the number at the end of their id if all have one. Partitions are ordered by the text before
    such a number, then by the number: q-2 comes before q-10.
    """
    spread = read_options("ordinal", options, {"spread": Option(False)})["spread"]
    return assign_slices(snapshot, "spread" if spread else "published")


def assign_slices(snapshot: Snapshot, slices: str) -> Proposal:
    """Return the slices of ordinals: `published` or `spread` as in `assign_ordinal`, or `sticky` as in `deal_sticky`."""
    rule: DealRule = {"published": _deal_slices, "spread": _deal_evenly, "sticky": deal_sticky}[slices]
    return _deal(
        snapshot, rule, "its slice belongs to {taker}", _order_by_ordinal(snapshot), _order_by_number(snapshot)
    )


def assign_hash(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """`hash`: rendezvous hashing. A partition goes to the worker of the highest -capacity / ln(hash(partition, worker))."""
    read_options("hash", options, {})
    match = find_matches(snapshot)
    keeps = _find_kept(snapshot, match)
    wish = _keep_cordoned(snapshot, keeps)
    best = np.full(len(wish), -np.inf)
    names = [_hash_id(name) for name in snapshot.partition_ids]
    numbers = np.fromiter(names, np.uint64, len(names))
    stays = wish >= 0
    for code in np.flatnonzero(snapshot.team.active):
        worker = snapshot.workers[code]
        score = _score_ids(numbers, _hash_id(worker.id), worker.capacity)
        better = ~stays & match[snapshot.kind, code] & (score > best)
        wish[better], best[better] = code, score[better]
    target = find_nearest_valid(snapshot, match, keeps, wish)
    return Proposal(target, _make_explainer(snapshot, wish, target, "its hash belongs to {taker}"))


def _score_ids(numbers: np.ndarray, salt: int, capacity: float) -> Floats:
    with np.errstate(over="ignore"):
        bits = numbers ^ np.uint64(salt)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    return np.asarray(-capacity / np.log(uniform), np.float64)


def _hash_id(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def _deal_evenly(partitions: int, workers: int, before: int) -> Ints:  # noqa: ARG001
    quota, rest = divmod(partitions, workers)
    return np.repeat(np.arange(workers), quota + (np.arange(workers) < rest))


def _deal_slices(partitions: int, workers: int, before: int) -> Ints:  # noqa: ARG001
    able = min(workers, partitions)
    return np.minimum(np.arange(partitions) // (partitions // able), able - 1)


def deal_sticky(partitions: int, workers: int, before: int) -> Ints:  # noqa: ARG001
    """Return the place of each partition's worker. Law: counts are as even as with `spread`. One worker more moves only
    the partitions that the new worker gets, the fewest possible: each other slice loses only its surplus, at its end."""
    held: list[list[int]] = [list(range(partitions))]
    for team in range(2, workers + 1):
        quota, rest = divmod(partitions, team)
        given: list[int] = []
        for place, mine in enumerate(held):
            keeps = quota + (place < rest)
            given += mine[keeps:]
            del mine[keeps:]
        held.append(sorted(given))
    places = np.zeros(partitions, np.int64)
    for place, mine in enumerate(held):
        places[mine] = place
    return places


def _order_by_id(snapshot: Snapshot) -> Ints:
    return np.arange(len(snapshot.workers))


def _order_by_ordinal(snapshot: Snapshot) -> Ints:
    ends = [re.search(r"(\d+)$", w.id) for w in snapshot.workers]
    if not all(ends):
        return _order_by_id(snapshot)
    numbers = [int(end[1]) for end in ends if end]
    return np.array(sorted(range(len(numbers)), key=lambda i: (numbers[i], i)), np.int64)


def _order_by_number(snapshot: Snapshot) -> Ints:
    """Return the partitions in the order of `number_key`."""
    keys = [number_key(name) for name in snapshot.partition_ids]
    return np.array(sorted(range(len(keys)), key=lambda i: (*keys[i], i)), np.int64)


def number_key(name: str) -> tuple[bytes, int]:
    """Return the text before the number at the end of an id, then that number: q-2 comes before q-10."""
    start = name.rstrip("0123456789")
    return start.encode(), int(name[len(start) :] or -1)


def _find_kept(snapshot: Snapshot, match: Bools) -> Codes:
    """Return the valid owners. A cordoned worker over its cap loses partitions before any are dealt. Otherwise the
    partitions that it loses would depend on the deal, and planning twice would move partitions."""
    keeps = find_valid_owners(snapshot, match)
    stays = _keep_cordoned(snapshot, keeps)
    if not (count_per_worker(stays, len(snapshot.workers)) > snapshot.team.cap).any():
        return keeps
    fits = find_nearest_valid(snapshot, match, keeps, stays) == stays
    return np.where((stays < 0) | fits, keeps, np.int32(-1))


def _keep_cordoned(snapshot: Snapshot, keeps: Codes) -> Codes:
    """Return the owner column of partitions on cordoned workers, -1 for all others."""
    if not snapshot.team.cordoned.any():
        return np.full(len(keeps), -1, np.int32)
    return np.where((keeps >= 0) & snapshot.team.cordoned[np.maximum(keeps, 0)], keeps, np.int32(-1))


def _deal(snapshot: Snapshot, deal: DealRule, words: str, order: Ints, line: Ints | None = None) -> Proposal:
    """Deal the partitions of each kind over the active workers that may hold them. `words` is the reason of a move.

    `order` is the order of workers and `line` that of partitions, None for the order of ids.
    """
    match = find_matches(snapshot)
    keeps = _find_kept(snapshot, match)
    wish = _keep_cordoned(snapshot, keeps)
    rows, same = np.unique(match & snapshot.team.active, axis=0, return_inverse=True) if match.size else (match, None)
    before = 0
    for number, row in enumerate(rows):
        able = _select_in_order(row, order)
        kinds: Ints = np.flatnonzero(same == number)
        dealt = np.isin(snapshot.kind, kinds) & (wish < 0)
        members = np.flatnonzero(dealt) if line is None else _select_in_order(dealt, line)
        if len(able) and len(members):
            wish[members] = able[deal(len(members), len(able), before)]
            before += len(members)
    target = find_nearest_valid(snapshot, match, keeps, wish)
    return Proposal(target, _make_explainer(snapshot, wish, target, words))


def _select_in_order(picked: Bools, order: Ints) -> Ints:
    found: Ints = order[picked[order]]
    return found


def _make_explainer(snapshot: Snapshot, wish: Codes, target: Codes, words: str) -> Callable[[int], str]:
    def explain(partition: int) -> str:
        name = snapshot.workers[wish[partition]].id  # a partition that moves has a wish
        said = words.format(taker=name)
        return said if target[partition] == wish[partition] else f"{said}, but {name} is full"

    return explain
