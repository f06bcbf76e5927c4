"""Decide whether noise in the measured loads explains an imbalance.

Law: a settled placement stays while noise explains the difference between its imbalance now and its imbalance when it
settled. A placement settles if it is the target of a plan after which no more moves are needed or found.

- Noise is at most +-n in every load. n is `tolerance` - 1, at most 10 %.
- Noise explains up to seven standard deviations of independent uniform noise, at the worker with the widest deviation.
  Noise in both measurements of the same loads exceeds this bound at a worker with a probability below e^-12 (such sums
  are sub-Gaussian with their own variance). Noise never explains more than a factor of (1+n)/(1-n), the worst case.
- A change of owner, worker, partition, requirement or option ends the settled state.
- The reference stays the imbalance at which the placement settled, so loads that drift leave the band at some time.

Without memory no placement is settled, and the tolerance alone decides: one measurement cannot tell noise from drift.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from rota.core.columns import count_per_worker
from rota.core.values import Bools, Codes, Floats, Snapshot

NOISE = 0.1
DEVIATIONS = 7.0
MEMORY = {"settled": "numbers"}


@dataclass(frozen=True, slots=True, eq=False)
class NoiseBand:
    """The band around the imbalance at which a placement settled. `past` maps the placement's digest to that imbalance."""

    snapshot: Snapshot
    match: Bools
    settings: Mapping[str, Any]
    past: Mapping[str, float]

    def find_settled(self, owner: Codes, able: Bools, imbalance: float, noise: float) -> float | None:
        """Return the imbalance at which this placement settled, if noise explains its change to `imbalance`; else None."""
        was = self.past.get(self._hash_placement(owner)) if self.past else None
        if was is None or abs(imbalance - was) > measure_noise(self.snapshot, owner, able, was, noise) + 1e-12:
            return None
        return was

    def remember(self, owner: Codes, imbalance: float) -> dict[str, Any]:
        """Return the memory of a placement that settles now."""
        return {"settled": {self._hash_placement(owner): imbalance}}

    def _hash_placement(self, owner: Codes) -> str:
        snapshot, team = self.snapshot, self.snapshot.team
        found = blake2b(digest_size=8)
        for column in (owner, snapshot.kind, self.match, team.capacity, team.state, team.cap):
            found.update(np.ascontiguousarray(column).tobytes())
        names = ("\0".join(snapshot.partition_ids), "\0".join(w.id for w in snapshot.workers), self.settings)
        found.update(repr(names).encode())
        return found.hexdigest()


def measure_noise(snapshot: Snapshot, owner: Codes, able: Bools, imbalance: float, noise: float) -> float:
    """Return how far noise of +-`noise` in every load changes this imbalance."""
    size, capacity = len(snapshot.workers), snapshot.team.capacity
    load = snapshot.load / float(snapshot.load[owner >= 0].sum())
    squares: Floats = count_per_worker(owner, size, load**2)[able]
    own = float(capacity[able].sum()) / capacity[able]  # a load raises its worker by this, and the mean by 1
    spread = squares * ((own - imbalance) ** 2 - imbalance**2) + squares.sum() * imbalance**2
    deviation = noise * float(np.sqrt(spread.max(initial=0.0) / 3))
    return min(DEVIATIONS * deviation, imbalance * ((1 + noise) / (1 - noise) - 1))
