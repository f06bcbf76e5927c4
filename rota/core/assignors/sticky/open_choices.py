"""The choices that laws 1 to 3 leave to law 4: which units may leave a worker, which may come, and how ties are broken."""

from dataclasses import dataclass

import numpy as np

from rota.core.values import Bools, Ints

MOST_CELLS = 1_000_000  # pairs of a group and a worker; with more, sources are not spread, as the plan's note states


@dataclass(frozen=True, slots=True, eq=False)
class OpenChoices:
    """The choices that are left. A group here is a set of equal partitions of one source; a unit is one partition.

    Tables groups x workers: each worker owns `have` units, and `release` and `take` mark where a unit may leave or come.
    `free` units of each group have no owner. Each worker ends with `low` units, `extra` of the `optional` workers with
    one more. `waiting` units stay unplaced, of groups that `may_wait`.
    """

    have: Ints
    source: Ints  # of each group
    free: Ints
    release: Bools
    take: Bools
    low: Ints
    optional: Bools
    extra: int
    waiting: int
    may_wait: Bools
    salt: tuple[Ints, Ints]  # a hash of each group and of each worker; it breaks ties

    def limit_moves(self) -> tuple[Ints, Ints]:
        """Return the most units that each worker may give, and take: surplus and deficit if no worker may do both."""
        held, top = self.have.sum(axis=0), self.low + self.optional
        if (self.release.any(axis=0) & self.take.any(axis=0)).any():
            return held, top
        return np.maximum(held - self.low, 0), np.maximum(top - held, 0)
