"""What is still to be told of a partition's commits, given what is shown of it: one batch that sums it up.

Laws:
1. What is told begins where the page stands and ends where the run stands: nothing is told twice, nothing is left out, and
   the page does not go back. Offsets, rows, bad rows and seconds are sums over the commits in between.
2. The table's log is asked only where the page does not stand where the run began: another run told meanwhile, or one
   ended that could not tell.
"""

from collections.abc import Iterable
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
