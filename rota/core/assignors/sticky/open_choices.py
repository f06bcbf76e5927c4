"""What laws 1 to 3 leave open to law 4: which units may leave a worker, which may come, and how ties are broken."""

from dataclasses import dataclass

import numpy as np

from rota.core.values import Bools, Ints

MOST_CELLS = 1_000_000  # group x worker; beyond it law 4 is left to the order of ids, and the plan says so


@dataclass(frozen=True, slots=True, eq=False)
class Freedom:
    """What may still be chosen. Groups x workers: `have` owned, `release` and `take` say where a unit may leave or come.

    `free` units of each group have no owner; a worker ends with `low` seats, `extra` of the `optional` ones with one
    more; `waiting` units stay unplaced, of groups that `may_wait`.
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
    salt: tuple[Ints, Ints]  # a hash of each group and of each worker, to break ties

    def most(self) -> tuple[Ints, Ints]:
        """How many units each worker may give and take at most; where nobody does both, only what it has over."""
        held, top = self.have.sum(axis=0), self.low + self.optional
        if (self.release.any(axis=0) & self.take.any(axis=0)).any():
            return held, top
        return np.maximum(held - self.low, 0), np.maximum(top - held, 0)
