"""What the shedders read of a worker: a score from its reported usage, its rate and throughput.

Law: the score is 100 x the largest weighted fraction; a rate or throughput that a worker does not report is the sum over
the partitions that it keeps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from rota.core.columns import counted
from rota.core.values import Bools, Codes, Floats, Ints, Snapshot

RESOURCES = ("cpu", "memory", "bandwidth_in", "bandwidth_out")
IMMUNE_ROUNDS = 30  # loadBalancerSheddingGracePeriodMinutes


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """`now` is score, rate and throughput by worker, `told` which of them are reported and not sums. `traffic` is rate and
    throughput by partition. `known` workers report usage, or hold nothing."""

    now: Floats  # 3 x workers
    told: Bools
    known: Bools
    traffic: Floats  # 2 x partitions

    @classmethod
    def of(cls, snapshot: Snapshot, keeps: Codes, weights: Mapping[str, float]) -> "Scores":
        """The scores of a snapshot."""
        usage = [w.usage or {} for w in snapshot.workers]
        size = len(usage)
        bytes_known = not np.isnan(
            snapshot.throughput
        ).all()  # a live group records rows only: they stand for the bytes
        traffic = np.nan_to_num(
            np.stack((snapshot.rate, snapshot.throughput if bytes_known else snapshot.rate)), nan=0.0
        )
        now, told = np.zeros((3, size)), np.zeros((3, size), np.bool_)
        now[0] = [100 * max(weights[r] * u.get(r, 0.0) for r in RESOURCES) for u in usage]
        told[0] = [any(r in u for r in RESOURCES) for u in usage]
        for row, name in ((1, "rate"), (2, "throughput")):
            sums = counted(keeps, size, traffic[row - 1])
            told[row] = [name in u and (row == 1 or bytes_known) for u in usage]
            now[row] = [u[name] if t else total for u, t, total in zip(usage, told[row], sums, strict=True)]
        return cls(now, told, told[0] | (counted(keeps, size) == 0), traffic)


def lately(moved: Mapping[str, float], number: int, rounds: float) -> dict[str, float]:
    """Of the partitions by the round in which they moved, those still immune in round `number`."""
    return {p: r for p, r in moved.items() if number - r < rounds}


class Lots:
    """Where the originals draw lots: the lot of a worker is crc32(partition id + worker id), the greatest wins.

    A crc is linear: for workers whose ids are of one length it is a constant of the worker XOR one of the partition.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.ids = snapshot.partition_ids
        names = [w.id.encode() for w in snapshot.workers]
        sizes = [len(name) for name in names]
        self.lengths, length = np.unique(np.array(sizes, np.int64), return_inverse=True)
        self.length: Ints = length
        self.worker = np.fromiter((crc32(name) for name in names), np.int64, len(names))

    def draw(self, able: Bools, partition: int) -> int:
        """One of the workers in `able`; there is at least one."""
        start = crc32(self.ids[partition].encode())
        shifts = [crc32(bytes(n), start) ^ crc32(bytes(n)) for n in self.lengths.tolist()]
        lots = self.worker ^ np.array(shifts, np.int64)[self.length]
        return int(np.where(able, lots, -1).argmax())


def room(snapshot: Snapshot, target: Codes) -> Ints:
    """How many more each worker may take: none on a cordon or a drain."""
    left = snapshot.team.cap - counted(target, len(snapshot.workers))
    return np.asarray(np.where(snapshot.team.active, np.maximum(left, 0), 0))
