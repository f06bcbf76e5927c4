"""An independent exact solver for small cases: it looks at every assignment there is. Shares no code with rota."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

import numpy as np

from rota.core import Partition, Worker


def may_hold(worker: Worker, partition: Partition, owner: str | None) -> bool:
    labels = dict(worker.labels)
    if worker.zone is not None:
        labels["zone"] = worker.zone
    if worker.state == "draining" or (worker.state == "cordoned" and owner != worker.id):
        return False
    if partition.pin not in (None, worker.id):
        return False
    return all(labels.get(name) == value for name, value in partition.requires.items())


def score(
    workers: Sequence[Worker],
    partitions: Sequence[Partition],
    owners: Mapping[str, str],
    rows: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """(invalid, unplaced, sum of count²/capacity in whole numbers, moves and placements, sum of count² per source)."""
    capacity = [Fraction(w.capacity) for w in workers]
    scale = lcm(*(c.numerator for c in capacity))
    invalid = np.zeros(len(rows), np.int64)
    moves = np.zeros(len(rows), np.int64)
    for i, p in enumerate(partitions):
        able = np.array([*(may_hold(w, p, owners.get(p.id)) for w in workers), True])
        invalid += ~able[rows[:, i]]
        home = next((k for k, w in enumerate(workers) if w.id == owners.get(p.id)), -1)
        moves += (rows[:, i] != home) & (rows[:, i] < len(workers))
    balance = np.zeros(len(rows), np.int64)
    spread = np.zeros(len(rows), np.int64)
    for k, w in enumerate(workers):
        count = (rows == k).sum(axis=1)
        balance += count**2 * int(scale / capacity[k])
        if w.max_partitions is not None:
            invalid += count > w.max_partitions
        for source in {p.source for p in partitions}:
            columns = [i for i, p in enumerate(partitions) if p.source == source]
            spread += (rows[:, columns] == k).sum(axis=1) ** 2
    return invalid, (rows == len(workers)).sum(axis=1), balance, moves, spread


def best(workers: Sequence[Worker], partitions: Sequence[Partition], owners: Mapping[str, str]) -> tuple[int, ...]:
    """The lexicographic optimum of (invalid, unplaced, balance, moves, spread) over every assignment."""
    choices = len(workers) + 1
    numbers = np.arange(choices ** len(partitions))
    rows = np.stack([numbers // choices**i % choices for i in range(len(partitions))], axis=1)
    keys = score(workers, partitions, owners, rows)
    first = np.lexsort(keys[::-1])[0]
    return tuple(int(key[first]) for key in keys)


def score_one(
    workers: Sequence[Worker],
    partitions: Sequence[Partition],
    owners: Mapping[str, str],
    held: Mapping[str, Sequence[str]],
) -> tuple[int, ...]:
    """The same five numbers for one assignment."""
    place = {p: k for k, w in enumerate(workers) for p in held.get(w.id, ())}
    row = np.array([[place.get(p.id, len(workers)) for p in partitions]])
    return tuple(int(key[0]) for key in score(workers, partitions, owners, row))
