"""The order of a run's jobs, and the right to each of them.

Laws:
1. The partition that was consumed longest ago comes first, so that no partition starves when runs are ended halfway.
2. Before each job the run reads its rights again. A partition that was given to another worker is left to that worker.
3. The run's node no longer names a partition that is done or that is not begun any more.
4. After `SHIFT` seconds, or sooner if its caller has less time, a run that committed something begins no further job: the
   rest has its turn later.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from rota.coordination.group_state import GroupState
from rota.coordination.membership import narrow_run
from rota.errors import CoordinationError
from rota.ledger.values import Ranges
from rota.run.eligibility import Rights, read_rights

SHIFT = 600.0  # seconds in which a run begins jobs


def sort_by_turn(held: Rights, offsets: Mapping[str, int]) -> dict[str, int]:
    """The partitions in the order in which they are consumed (law 1)."""
    done = held.checkpoints
    return dict(sorted(offsets.items(), key=lambda one: done[one[0]].node.mzxid if one[0] in done else 0))


class Shift:
    """The jobs of one run. `held` are its rights as read when it began. `clock` gives monotonic seconds. `seconds` is how
    long the caller wants it to begin jobs."""

    def __init__(
        self,
        tree: GroupState,
        node: str,
        incarnation: str,
        held: Rights,
        jobs: Iterable[Ranges],
        clock: Callable[[], float],
        seconds: float,
    ) -> None:
        self.tree, self.node, self.incarnation, self.held, self.clock = tree, node, incarnation, held, clock
        self.seconds = seconds
        self._left = {p for ranges in jobs for p in ranges}
        self.lost: dict[str, str] = {}  # partition -> why it was not begun
        self._began: float | None = None
        self._fruitful = False

    def finish(self, partition: str) -> None:
        """Notes that the run is done with the partition."""
        self._left.discard(partition)
        self._fruitful = True

    def recheck(self, ranges: Ranges) -> Ranges:
        """The ranges of the next job that may be begun; `lost` says why not the others. Raises Unavailable."""
        if self._began is None:
            self._began = self.clock()
            return ranges  # its rights were read a moment ago
        if self._fruitful and self.clock() - self._began > min(SHIFT, self.seconds):
            lost = dict.fromkeys(ranges, "left to the next run: this one has worked long enough")
        else:
            now = read_rights(self.tree, self.incarnation, self.node, ranges)
            moved = [p for p in ranges if now.held.get(p) != self.held.held[p]]
            lost = {p: now.dropped.get(p, "it was given away and came back meanwhile") for p in moved}
        self.lost |= lost
        self._left -= set(lost)
        with suppress(CoordinationError):  # without it a hand-over waits a little longer
            narrow_run(self.tree, self.node, self._left)
        return {p: r for p, r in ranges.items() if p not in lost}
