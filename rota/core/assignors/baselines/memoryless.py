"""Baselines that look at nothing but who is there: rendezvous hash, contiguous, cyclic, StatefulSet ordinals.

Law: the answer depends on the ids of active workers and partitions alone, except that what a cordoned worker holds stays
with it (up to its cap: the rest is dealt with all others), and that labels, pins and caps are obeyed (the nearest valid
assignment). So a second answer moves nothing.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from rota.core.assignors.nearest_valid import fitted
from rota.core.assignors.options import Option, chosen
from rota.core.assignors.registry import Proposal
from rota.core.columns import counted
from rota.core.constraints import matching, rightful
from rota.core.values import Bools, Codes, Floats, Ints, Snapshot

Deal = Callable[[int, int, int], Ints]  # (partitions, workers, how many were dealt before) -> place of each


def by_range(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """Contiguous slices in the order of ids, the remainder one each to the first workers."""
    chosen("range", options, {})
    return _dealt(snapshot, _even, "its slice belongs to {taker}", _by_id(snapshot))


def in_turn(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """The i-th partition to worker i modulo W."""
    chosen("round-robin", options, {})
    return _dealt(snapshot, lambda n, w, before: (before + np.arange(n)) % w, "its turn is {taker}'s", _by_id(snapshot))


def by_ordinal(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """The published StatefulSet rule: with a = min(W, P), consumer i takes [i x (P // a), ...) and the last one the
    remainder too; with `spread` the remainder goes one each to the first. Workers stand by the number that ends their
    id, if all have one; partitions by what comes before such a number, then by it: q-2 comes before q-10."""
    spread = chosen("ordinal", options, {"spread": Option(False)})["spread"]

    def slices(partitions: int, workers: int, before: int) -> Ints:
        if spread:
            return _even(partitions, workers, before)
        able = min(workers, partitions)
        return np.minimum(np.arange(partitions) // (partitions // able), able - 1)

    return _dealt(snapshot, slices, "its slice belongs to {taker}", _by_ordinal(snapshot), _by_number(snapshot))


def by_hash(snapshot: Snapshot, options: Mapping[str, Any], memory: Mapping[str, Any]) -> Proposal:  # noqa: ARG001
    """Rendezvous: the worker with the highest score -capacity / ln(hash(partition, worker))."""
    chosen("hash", options, {})
    match = matching(snapshot)
    keeps = _kept(snapshot, match)
    wish = _cordoned(snapshot, keeps)
    best = np.full(len(wish), -np.inf)
    names = [_number(name) for name in snapshot.partition_ids]
    numbers = np.fromiter(names, np.uint64, len(names))
    stays = wish >= 0
    for code in np.flatnonzero(snapshot.team.active):
        worker = snapshot.workers[code]
        score = _scores(numbers, _number(worker.id), worker.capacity)
        better = ~stays & match[snapshot.kind, code] & (score > best)
        wish[better], best[better] = code, score[better]
    target = fitted(snapshot, match, keeps, wish)
    return Proposal(target, _why(snapshot, wish, target, "its hash belongs to {taker}"))


def _scores(numbers: np.ndarray, salt: int, capacity: float) -> Floats:
    with np.errstate(over="ignore"):
        bits = numbers ^ np.uint64(salt)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    return np.asarray(-capacity / np.log(uniform), np.float64)


def _number(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def _even(partitions: int, workers: int, before: int) -> Ints:  # noqa: ARG001
    quota, rest = divmod(partitions, workers)
    return np.repeat(np.arange(workers), quota + (np.arange(workers) < rest))


def _by_id(snapshot: Snapshot) -> Ints:
    return np.arange(len(snapshot.workers))


def _by_ordinal(snapshot: Snapshot) -> Ints:
    ends = [re.search(r"(\d+)$", w.id) for w in snapshot.workers]
    if not all(ends):
        return _by_id(snapshot)
    numbers = [int(end[1]) for end in ends if end]
    return np.array(sorted(range(len(numbers)), key=lambda i: (numbers[i], i)), np.int64)


def _by_number(snapshot: Snapshot) -> Ints:
    """Partitions in the order of (what comes before the number that ends the id, that number)."""
    ends = [(name.rstrip("0123456789"), name) for name in snapshot.partition_ids]
    keys = [(start.encode(), int(name[len(start) :] or -1)) for start, name in ends]
    return np.array(sorted(range(len(keys)), key=lambda i: (*keys[i], i)), np.int64)


def _kept(snapshot: Snapshot, match: Bools) -> Codes:
    """What may be kept. What a cordoned worker is over its cap it gives up before anything is dealt: else who leaves
    would depend on who is there, and the answer on itself."""
    keeps = rightful(snapshot, match)
    stays = _cordoned(snapshot, keeps)
    if not (counted(stays, len(snapshot.workers)) > snapshot.team.cap).any():
        return keeps
    fits = fitted(snapshot, match, keeps, stays) == stays
    return np.where((stays < 0) | fits, keeps, np.int32(-1))


def _cordoned(snapshot: Snapshot, keeps: Codes) -> Codes:
    """What stays on cordoned workers; nobody elsewhere."""
    if not snapshot.team.cordoned.any():
        return np.full(len(keeps), -1, np.int32)
    return np.where((keeps >= 0) & snapshot.team.cordoned[np.maximum(keeps, 0)], keeps, np.int32(-1))


def _dealt(snapshot: Snapshot, deal: Deal, words: str, order: Ints, line: Ints | None = None) -> Proposal:
    """Deals the partitions of each wish (labels, pin) over the active workers that match it, in `order`; the partitions
    in that of `line` (none: of their ids)."""
    match = matching(snapshot)
    keeps = _kept(snapshot, match)
    wish = _cordoned(snapshot, keeps)
    rows, same = np.unique(match & snapshot.team.active, axis=0, return_inverse=True) if match.size else (match, None)
    before = 0
    for number, row in enumerate(rows):
        able = _in_order(row, order)
        kinds: Ints = np.flatnonzero(same == number)
        dealt = np.isin(snapshot.kind, kinds) & (wish < 0)
        members = np.flatnonzero(dealt) if line is None else _in_order(dealt, line)
        if len(able) and len(members):
            wish[members] = able[deal(len(members), len(able), before)]
            before += len(members)
    target = fitted(snapshot, match, keeps, wish)
    return Proposal(target, _why(snapshot, wish, target, words))


def _in_order(picked: Bools, order: Ints) -> Ints:
    found: Ints = order[picked[order]]
    return found


def _why(snapshot: Snapshot, wish: Codes, target: Codes, words: str) -> Callable[[int], str]:
    def why(partition: int) -> str:
        name = snapshot.workers[wish[partition]].id  # who moves has a wish: somebody active may take it
        said = words.format(taker=name)
        return said if target[partition] == wish[partition] else f"{said}, but {name} is full"

    return why
