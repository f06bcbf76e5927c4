"""Whether an imbalance is news: loads are measured, and no measurement is quite like the one before.

Law: a placement that settled (the last look moved nothing, or ended with this) is left alone while its imbalance is
within what noise explains of what it was then. Noise is +-n in every load, n the tolerance, at most 10 %. Explained are
seven standard deviations of independent uniform noise at the worker where it is widest: noise at both looks, around the
same loads, goes beyond at a worker with a chance below e^-12 (such sums are sub-Gaussian with their own variance); and
never more than the worst of any noise, a factor of (1+n)/(1-n). Any other owner, worker, partition, wish or option is
news. The limit stays where it settled: loads that drift on reach it, noise around them then carries it over, once.

Without its memory nothing has settled, and the tolerance alone decides: one look cannot tell noise from drift.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from rota.core.columns import counted
from rota.core.values import Bools, Codes, Floats, Snapshot

NOISE = 0.1
DEVIATIONS = 7.0
MEMORY = {"settled": "numbers"}


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Around the imbalance at which a placement settled; `past`: digest of that placement -> imbalance."""

    snapshot: Snapshot
    match: Bools
    settings: Mapping[str, Any]
    past: Mapping[str, float]

    def settled_at(self, owner: Codes, able: Bools, imbalance: float, noise: float) -> float | None:
        """The imbalance at which this placement settled, if noise explains that it is now `imbalance`."""
        was = self.past.get(self._digest(owner)) if self.past else None
        if was is None or abs(imbalance - was) > explained(self.snapshot, owner, able, was, noise) + 1e-12:
            return None
        return was

    def memory(self, owner: Codes, imbalance: float) -> dict[str, Any]:
        """What to remember of a placement that settles now."""
        return {"settled": {self._digest(owner): imbalance}}

    def _digest(self, owner: Codes) -> str:
        snapshot, team = self.snapshot, self.snapshot.team
        found = blake2b(digest_size=8)
        for column in (owner, snapshot.kind, self.match, team.capacity, team.state, team.cap):
            found.update(np.ascontiguousarray(column).tobytes())
        names = ("\0".join(snapshot.partition_ids), "\0".join(w.id for w in snapshot.workers), self.settings)
        found.update(repr(names).encode())
        return found.hexdigest()


def explained(snapshot: Snapshot, owner: Codes, able: Bools, imbalance: float, noise: float) -> float:
    """How far noise of +-`noise` in every load moves this imbalance."""
    size, capacity = len(snapshot.workers), snapshot.team.capacity
    load = snapshot.load / float(snapshot.load[owner >= 0].sum())
    squares: Floats = counted(owner, size, load**2)[able]
    own = (
        float(capacity[able].sum()) / capacity[able]
    )  # what a load weighs at its worker; everywhere, it lifts the mean
    spread = squares * ((own - imbalance) ** 2 - imbalance**2) + squares.sum() * imbalance**2
    deviation = noise * float(np.sqrt(spread.max(initial=0.0) / 3))
    return min(DEVIATIONS * deviation, imbalance * ((1 + noise) / (1 - noise) - 1))
