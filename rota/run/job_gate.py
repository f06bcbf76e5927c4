"""The order of a run's jobs, and the check before each job.

Laws:
1. The partition that was consumed longest ago comes first, so that no partition starves when runs end early.
2. Before each job the run reads its rights again. It leaves out each partition that was given to another worker.
3. The run's node does not name a partition that is done or that the run will not begin.
4. A run that committed something begins no job after `MAX_JOB_START_S` seconds, or sooner if its caller has less time.
   The next run consumes the rest.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from rota.coordination.group_state import GroupState
from rota.coordination.membership import narrow_run
from rota.errors import CoordinationError
from rota.ledger.values import Ranges
from rota.run.eligibility import Rights, read_rights

MAX_JOB_START_S = 600.0  # seconds in which a run begins jobs


def sort_by_turn(held: Rights, offsets: Mapping[str, int]) -> dict[str, int]:
    """Return the partitions in the order in which they are consumed (law 1)."""
    done = held.checkpoints
    return dict(sorted(offsets.items(), key=lambda one: done[one[0]].node.mzxid if one[0] in done else 0))


class JobGate:
    """Admits the jobs of one run, one at a time.

    Args:
        held: the rights as they were read when the run began.
        clock: returns monotonic seconds.
        seconds: for how long the run may begin jobs.
    """

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
        """Record that the run is done with the partition."""
        self._left.discard(partition)
        self._fruitful = True

    def recheck(self, ranges: Ranges) -> Ranges:
        """Return the ranges of the next job that the run may begin. Add the reason for each other range to `lost`.

        Raises Unavailable.
        """
        if self._began is None:
            self._began = self.clock()
            return ranges  # its rights were read a moment ago
        if self._fruitful and self.clock() - self._began > min(MAX_JOB_START_S, self.seconds):
            lost = dict.fromkeys(ranges, "left to the next run: this one has worked long enough")
        else:
            now = read_rights(self.tree, self.incarnation, self.node, ranges)
            moved = [p for p in ranges if now.held.get(p) != self.held.held[p]]
            lost = {p: now.dropped.get(p, "it was given away and came back meanwhile") for p in moved}
        self.lost |= lost
        self._left -= set(lost)
        with suppress(CoordinationError):  # if this fails, a handover waits a little longer
            narrow_run(self.tree, self.node, self._left)
        return {p: r for p, r in ranges.items() if p not in lost}
