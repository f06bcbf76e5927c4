"""Which files may hold rows of partitions and ranges, by the bounds in statistics."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from rota.ledger.values import Ranges


def may_hold(
    partitions: Sequence[str],
    ranges: Ranges,
    low: str | None,
    high: str | None,
    first: int | None = None,
    last: int | None = None,
) -> bool:
    """Return whether a file, or a part of one, may hold rows of these partitions in their ranges.

    Args:
        partitions: sorted ids.
        ranges: the range of each of these partitions; ignored if `first` or `last` is None.
        low, high: the least and the greatest partition of the file; None if unknown.
        first, last: the least and the greatest offset of the file; None if unknown.
    """
    here = partitions
    if low is not None and high is not None:
        here = partitions[bisect_left(partitions, low) : bisect_right(partitions, high)]
    if first is None or last is None:
        return bool(here)
    return any(ranges[p][0] <= last and first < ranges[p][1] for p in here)
