"""What is still to be told of a partition's commits, given what is shown of it: one batch that sums it up.

Laws:
1. What is told begins where the page stands and ends where the run stands: nothing is told twice, nothing is left out, and
   the page does not go back. Offsets, rows, bad rows and seconds are sums over the commits in between.
2. The table's log is asked only where the page does not stand where the run began: another run told meanwhile, or one
   ended that could not tell.
3. Of each partition a run tells the first batch at once, then at most one sum in each span of seconds, and always the last
   one. The spans are those of the run, so that it tells of many partitions together: each time costs, too. What a run that
   was killed could not tell is told by the next that works on the partition.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

from rota.ledger.ledger import Ledger
from rota.run.consume import CommittedBatch, IdlePartition, make_event


@dataclass(frozen=True, slots=True)
class Shown:
    """Where the page stands with a partition: its newest batch ends at `offset` and was written under `token`."""

    offset: int
    token: int


def join(first: CommittedBatch, then: CommittedBatch) -> CommittedBatch:
    """One batch for two of the same partition, the second of which follows the first."""
    return replace(
        then,
        start=first.start,
        rows=first.rows + then.rows,
        bad_rows=first.bad_rows + then.bad_rows,
        seconds=first.seconds + then.seconds,
        run_id=first.run_id if first.healed else then.run_id,
        healed=first.healed or then.healed,
    )


def find_untold(batch: CommittedBatch, shown: Shown | None, main: Ledger) -> CommittedBatch | None:
    """What is to be told once `batch` is in the table; None where the page has it. A page that is ahead under an older token
    is of a table that was restored meanwhile, and is left behind."""
    if shown is None or shown.offset == batch.start or (shown.offset > batch.start and shown.token < batch.token):
        return batch
    if shown.offset >= batch.end:
        return None
    return _sum_up(main, batch.partition, shown.offset, batch.end, batch.end + batch.lag, batch.run_id) or batch


def find_untold_before(idle: IdlePartition, shown: Shown | None, main: Ledger) -> CommittedBatch | None:
    """What is to be told of a partition in which nothing is new; None where the page has all of it."""
    if shown is None or shown.offset >= idle.offset:
        return None
    return _sum_up(main, idle.partition, shown.offset, idle.offset, idle.offset, "")


def _sum_up(main: Ledger, partition: str, start: int, end: int, latest: int, run_id: str) -> CommittedBatch | None:
    """The log's commits between the two offsets as one batch, for a run of this id; None where there are none."""
    past = main.read_log_back_to({partition: start})
    inside = (one for one in past if one.goes_beyond(partition, start) and one.ranges[partition][1] <= end)
    events: Iterable[CommittedBatch] = (make_event(one, partition, latest, healed=one.run != run_id) for one in inside)
    ordered = sorted(events, key=lambda one: one.start)
    return reduce(join, ordered) if ordered else None


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
