"""Bundles what a run has to tell.

Law: of each partition the first batch is told at once, then at most one sum in each span of `seconds`, and always the last
one. The spans are those of the run, so that it tells of many partitions together: each time costs, too. What a run that was
killed could not tell is told by the next that works on the partition.
"""

from collections.abc import Callable, Iterator

from rota.ledger.ledger import Ledger
from rota.run.consume import CommittedBatch
from rota.run.untold import Shown, find_untold, join

Told = tuple[str, CommittedBatch]  # the incarnation that it concerns, and what is told


class Report:
    """The batches of a run that nobody was told of yet. `read_shown` tells where the page stands with a partition; `clock`
    gives monotonic seconds."""

    def __init__(
        self, read_shown: Callable[[str], Shown | None], main: Ledger, seconds: float, clock: Callable[[], float]
    ) -> None:
        self.read_shown, self.main, self.seconds, self.clock = read_shown, main, seconds, clock
        self._untold: dict[str, list[Told]] = {}
        self._began = clock()
        self._told_in: dict[str, int] = {}  # the span in which a partition was told of last

    def add(self, incarnation: str, batch: CommittedBatch) -> None:
        """Notes a batch. It joins the one before it, unless somebody else worked on the partition in between."""
        before = self._untold.setdefault(batch.partition, [])
        if before and before[-1][1].end == batch.start:
            batch = join(before.pop()[1], batch)
        before.append((incarnation, batch))

    def take_due(self) -> Iterator[Told]:
        """What is to be told now."""
        span = self._find_span()
        for partition in [p for p in self._untold if self._told_in.get(p) != span or not self.seconds]:
            yield from self._take(partition)

    def take_all(self) -> Iterator[Told]:
        """What is left to be told when the run ends."""
        for partition in list(self._untold):
            yield from self._take(partition)

    def _take(self, partition: str) -> Iterator[Told]:
        self._told_in[partition] = self._find_span()
        for incarnation, batch in self._untold.pop(partition):
            if untold := find_untold(batch, self.read_shown(partition), self.main):
                yield incarnation, untold

    def _find_span(self) -> int:
        return int((self.clock() - self._began) // self.seconds) if self.seconds else 0
