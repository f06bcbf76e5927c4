"""What a run that has several jobs does next, and with which right.

Law: whoever was consumed longest ago comes first, so that a run that is ended halfway, however often, leaves nobody behind.
Before each job the run looks again at what it may work on: what was given to another worker meanwhile is left to him, and
what it is done with, or does not begin any more, it no longer names. Once it got anything done it begins no job after
`SHIFT` seconds: whoever came meanwhile has his turn in the next run, and a search for what hangs ends before Dagster ends
the run.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from rota.coordination.membership import narrow_run
from rota.coordination.tree import Tree
from rota.dataplane.ports import Ranges
from rota.errors import CoordinationError
from rota.rights import Rights, read_rights

SHIFT = 600.0  # seconds


def by_turn(held: Rights, offsets: Mapping[str, int]) -> dict[str, int]:
    """The partitions in the order in which they are consumed."""
    done = held.checkpoints
    return dict(sorted(offsets.items(), key=lambda one: done[one[0]].node.mzxid if one[0] in done else 0))


class Shift:
    """One run's jobs; `held` is what it may work on since it began. `clock` gives monotonic seconds."""

    def __init__(
        self,
        tree: Tree,
        node: str,
        incarnation: str,
        held: Rights,
        jobs: Iterable[Ranges],
        clock: Callable[[], float],
    ) -> None:
        self.tree, self.node, self.incarnation, self.held, self.clock = tree, node, incarnation, held, clock
        self._left = {p for ranges in jobs for p in ranges}
        self.lost: dict[str, str] = {}  # the partitions that were not begun, with the reason
        self._began: float | None = None
        self._fruitful = False

    def done(self, partition: str) -> None:
        """The run touches the partition no more."""
        self._left.discard(partition)
        self._fruitful = True

    def still(self, ranges: Ranges) -> Ranges:
        """What of the next job is begun; of the rest `lost` tells. Raises Unavailable."""
        if self._began is None:
            self._began = self.clock()
            return ranges  # its right was looked at a moment ago
        if self._fruitful and self.clock() - self._began > SHIFT:
            lost = dict.fromkeys(ranges, "left to the next run: this one has worked long enough")
        else:
            now = read_rights(self.tree, self.incarnation, self.node, ranges)
            moved = [p for p in ranges if now.held.get(p) != self.held.held[p]]
            lost = {p: now.dropped.get(p, "it was given away and came back meanwhile") for p in moved}
        self.lost |= lost
        self._left -= set(lost)
        with suppress(CoordinationError):  # a hand-over waits a little longer without it
            narrow_run(self.tree, self.node, self._left)
        return {p: r for p, r in ranges.items() if p not in lost}
