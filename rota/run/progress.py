"""The progress report: the batches of a partition that were committed and are not on Dagster's page yet, as one sum.

Laws:
1. A report covers the commits from the last reported offset to the last committed one: none twice, none left out. Its
   offsets, rows, bad rows and seconds are sums over these commits. The reported offset never decreases.
2. The table's log is read only if the last reported offset is not the start of the batch: another run has reported, or
   has ended before it could report.
3. A run reports the first batch of a partition at once, then at most one sum in each interval, and always the last batch.
   All partitions share the run's intervals, so that reports of many partitions are stored together.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

from rota.ledger.ledger import Ledger
from rota.run.consume import CommittedBatch, IdlePartition, make_event


@dataclass(frozen=True, slots=True)
class ReportedOffset:
    """The newest batch of a partition on the page: it ends at `offset` and was written under `token`."""

    offset: int
    token: int


def join(first: CommittedBatch, then: CommittedBatch) -> CommittedBatch:
    """Return the sum of two batches of one partition; `then` begins where `first` ends."""
    return replace(
        then,
        start=first.start,
        rows=first.rows + then.rows,
        bad_rows=first.bad_rows + then.bad_rows,
        seconds=first.seconds + then.seconds,
        run_id=first.run_id if first.healed else then.run_id,
        healed=first.healed or then.healed,
    )


def find_unreported(batch: CommittedBatch, reported: ReportedOffset | None, main: Ledger) -> CommittedBatch | None:
    """Return the sum to report after `batch` was committed; None if the page has it.

    A reported offset that is ahead under an older token belongs to a table that was restored since; it is ignored.
    """
    if (
        reported is None
        or reported.offset == batch.start
        or (reported.offset > batch.start and reported.token < batch.token)
    ):
        return batch
    if reported.offset >= batch.end:
        return None
    return _sum_up(main, batch.partition, reported.offset, batch.end, batch.end + batch.lag, batch.run_id) or batch


def find_unreported_before(idle: IdlePartition, reported: ReportedOffset | None, main: Ledger) -> CommittedBatch | None:
    """Return the sum to report for a partition without new records; None if the page has all batches."""
    if reported is None or reported.offset >= idle.offset:
        return None
    return _sum_up(main, idle.partition, reported.offset, idle.offset, idle.offset, "")


def _sum_up(main: Ledger, partition: str, start: int, end: int, latest: int, run_id: str) -> CommittedBatch | None:
    """Return the sum of the log's commits between the two offsets, for the run of this id; None if there are none."""
    past = main.read_log_back_to({partition: start})
    inside = (one for one in past if one.goes_beyond(partition, start) and one.ranges[partition][1] <= end)
    events: Iterable[CommittedBatch] = (make_event(one, partition, latest, healed=one.run != run_id) for one in inside)
    ordered = sorted(events, key=lambda one: one.start)
    return reduce(join, ordered) if ordered else None


ProgressEntry = tuple[str, CommittedBatch]  # the incarnation, and the sum to report for it


class ProgressReport:
    """The batches of a run that are not reported yet.

    Args:
        read_reported: returns the newest batch of a partition on the page; None if there is none.
        main: the pipeline's main table.
        seconds: the length of an interval; 0 reports each batch at once.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        read_reported: Callable[[str], ReportedOffset | None],
        main: Ledger,
        seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.read_reported, self.main, self.seconds, self.clock = read_reported, main, seconds, clock
        self._pending: dict[str, list[ProgressEntry]] = {}
        self._began = clock()
        self._reported_in: dict[str, int] = {}  # partition -> the interval of its last report

    def add(self, incarnation: str, batch: CommittedBatch) -> None:
        """Add a batch to the partition's last sum; begin a new sum if another run committed in between."""
        before = self._pending.setdefault(batch.partition, [])
        if before and before[-1][1].end == batch.start:
            batch = join(before.pop()[1], batch)
        before.append((incarnation, batch))

    def take_due(self) -> Iterator[ProgressEntry]:
        """Yield the sums that are due now."""
        now = self._interval()
        for partition in [p for p in self._pending if self._reported_in.get(p) != now or not self.seconds]:
            yield from self._take(partition)

    def take_all(self) -> Iterator[ProgressEntry]:
        """Yield all sums that are left, when the run ends."""
        for partition in list(self._pending):
            yield from self._take(partition)

    def _take(self, partition: str) -> Iterator[ProgressEntry]:
        self._reported_in[partition] = self._interval()
        for incarnation, batch in self._pending.pop(partition):
            if unreported := find_unreported(batch, self.read_reported(partition), self.main):
                yield incarnation, unreported

    def _interval(self) -> int:
        return int((self.clock() - self._began) // self.seconds) if self.seconds else 0
