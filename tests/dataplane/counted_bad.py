"""Which rows of the quarantine count, as docs/tables.md states."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from rota.ledger.values import LogEntry


def make_counter(past: Iterable[LogEntry]) -> Callable[[str, int, str], bool]:
    """Whether a quarantined row of (partition, offset, attempt) counts, given main's log, newest first."""
    ranges: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for one in (p for p in past if p.op in ("commit", "replay")):
        for partition, (start, end) in one.ranges.items():
            ranges[partition].append((start, end, one.attempt))

    def counts(partition: str, offset: int, attempt: str) -> bool:
        return next((a for start, end, a in ranges[partition] if start <= offset < end), None) == attempt

    return counts
