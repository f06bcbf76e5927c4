"""The measurements of each worker that a shedder reads: a score from its reported usage, its rate and its throughput.

Law: a score is 100 times the largest weighted fraction of a resource in use. A rate or throughput that a worker does not
report is the sum over the partitions that the worker keeps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from rota.core.columns import count_per_worker
from rota.core.values import Bools, Codes, Floats, Ints, Snapshot

RESOURCES = ("cpu", "memory", "bandwidth_in", "bandwidth_out")
IMMUNE_ROUNDS = 30  # Pulsar's loadBalancerSheddingGracePeriodMinutes


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """`now` is score, rate and throughput of each worker, per second. `is_reported` marks values that are not sums.
    `traffic` is rate and throughput of each partition. `known` marks workers that report usage or hold no partition."""

    now: Floats  # 3 x workers
    is_reported: Bools
    known: Bools
    traffic: Floats  # 2 x partitions

    @classmethod
    def of(cls, snapshot: Snapshot, keeps: Codes, weights: Mapping[str, float]) -> "Scores":
        """Read the scores from a snapshot. `weights` are those of `RESOURCES`."""
        usage = [w.usage or {} for w in snapshot.workers]
        size = len(usage)
        # a live group measures only rows; then rows replace bytes
        bytes_known = not np.isnan(snapshot.throughput).all()
        traffic = np.nan_to_num(
            np.stack((snapshot.rate, snapshot.throughput if bytes_known else snapshot.rate)), nan=0.0
        )
        now, known = np.zeros((3, size)), np.zeros((3, size), np.bool_)
        now[0] = [100 * max(weights[r] * u.get(r, 0.0) for r in RESOURCES) for u in usage]
        known[0] = [any(r in u for r in RESOURCES) for u in usage]
        for row, name in ((1, "rate"), (2, "throughput")):
            sums = count_per_worker(keeps, size, traffic[row - 1])
            known[row] = [name in u and (row == 1 or bytes_known) for u in usage]
            now[row] = [u[name] if t else total for u, t, total in zip(usage, known[row], sums, strict=True)]
        return cls(now, known, known[0] | (count_per_worker(keeps, size) == 0), traffic)


def select_recent(moved: Mapping[str, float], number: int, rounds: float) -> dict[str, float]:
    """Return the entries of `moved` (partition -> round of its move) less than `rounds` before round `number`."""
    return {p: r for p, r in moved.items() if number - r < rounds}


class Lots:
    """Replaces Pulsar's random draw: the worker with the largest crc32(partition id + worker id) is drawn.

    A crc is linear. For worker ids of one length it is a constant of the worker XOR a constant of the partition.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.ids = snapshot.partition_ids
        names = [w.id.encode() for w in snapshot.workers]
        sizes = [len(name) for name in names]
        self.lengths, length = np.unique(np.array(sizes, np.int64), return_inverse=True)
        self.length: Ints = length
        self.worker = np.fromiter((crc32(name) for name in names), np.int64, len(names))

    def draw(self, able: Bools, partition: int) -> int:
        """Return the index of one of the workers that `able` marks. At least one must be marked."""
        start = crc32(self.ids[partition].encode())
        shifts = [crc32(bytes(n), start) ^ crc32(bytes(n)) for n in self.lengths.tolist()]
        lots = self.worker ^ np.array(shifts, np.int64)[self.length]
        return int(np.where(able, lots, -1).argmax())


def count_room(snapshot: Snapshot, target: Codes) -> Ints:
    """Count how many more partitions each worker may take. A cordoned or draining worker may take none."""
    left = snapshot.team.cap - count_per_worker(target, len(snapshot.workers))
    return np.asarray(np.where(snapshot.team.active, np.maximum(left, 0), 0))
