"""Partitions that may go to the same workers form a class. A flow network of classes x workers is far smaller than one
of partitions x workers."""

from dataclasses import dataclass

import numpy as np

from rota.core.values import Bools, Codes, Ints, Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class PartitionClasses:
    """The classes of a snapshot. `of` is the class of each partition, -1 if no worker may hold it.

    `size` is the number of partitions of a class. Tables classes x workers: `may` marks where a class may go, `have`
    counts the partitions of the class that the worker validly owns. `bound` is the most partitions that each worker may
    hold.
    """

    of: Codes
    may: Bools
    size: Ints
    have: Ints
    bound: Ints

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot, match: Bools, keeps: Codes) -> "PartitionClasses":
        """Build the classes. Partitions on a cordoned worker form a class: they may stay there and no others may come."""
        team, workers = snapshot.team, len(snapshot.workers)
        stays = np.full(len(keeps), workers, np.int64)  # the cordoned owner, or none
        if team.cordoned.any():
            held = np.flatnonzero(keeps >= 0)
            held = held[team.cordoned[keeps[held]]]
            stays[held] = keeps[held]
        wish, code = np.unique(snapshot.kind.astype(np.int64) * (workers + 1) + stays, return_inverse=True)
        rows = match[wish // (workers + 1)] & team.active
        home = wish % (workers + 1)
        rows[home < workers, home[home < workers]] = True
        packed = np.packbits(rows, axis=1)
        _, first, same = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        may = rows[first]
        able = may.any(axis=1)
        number = np.where(able, np.cumsum(able) - 1, -1).astype(np.int32)
        of = number[same.reshape(-1)[code.reshape(-1)]]
        may = may[able]
        held = np.flatnonzero((keeps >= 0) & (of >= 0))
        cells = np.bincount(of[held].astype(np.int64) * workers + keeps[held], minlength=len(may) * workers)
        size = np.bincount(of[of >= 0], minlength=len(may))
        bound = np.where(may.any(axis=0), np.minimum(team.cap, len(keeps)), 0)
        return cls(of, may, size, cells.reshape(len(may), workers), bound)
