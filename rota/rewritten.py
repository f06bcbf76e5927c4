"""Which files changed after they were consumed: what they hold now is in no table, until their offsets are replayed.

Law: only looking, at consumed offsets as the table's log names them: what was skipped, or stood before a partition's start,
was not consumed. A run's check looks at the newest ones alone, `rota check` at all of them. A file that is gone is nobody's
fault: people tidy up what was consumed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice

from rota.dataplane.ports import LogEntry, Source
from rota.spans import join_offsets

LOOKED = 1000  # consumed files of a pipeline that a run's check looks at
NAMED = 3  # ranges of a partition to replay


def explain_rewritten(
    source: Source, past: Iterable[LogEntry], only: str | None = None, most: int | None = LOOKED
) -> dict[str, str]:
    """Partition -> its files that changed, with what to do; `past` is newest first. `only`: of this partition. `most`: so
    many files are looked at, all if None."""
    offsets = defaultdict[str, list[int]](list)
    consumed = ((p, offset) for p, offset in _consumed(past) if only in (None, p))
    for partition, offset in islice(consumed, most):
        offsets[partition].append(offset)
    found = {p: sorted(changed) for p, changed in source.find_rewritten(offsets).items() if changed}
    return {p: _told(source, p, changed) for p, changed in found.items()}


def _consumed(past: Iterable[LogEntry]) -> Iterator[tuple[str, int]]:
    for one in (p for p in past if p.op == "commit"):
        for partition, (start, end) in one.ranges.items():
            yield from ((partition, offset) for offset in reversed(range(start, end)))


def _told(source: Source, partition: str, changed: list[int]) -> str:
    first = f"{source.locate(partition, changed[0])} (offset {changed[0]})"
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    spans = [f"from {start} to {end}" for start, end in join_offsets(changed)]
    rest = ", and so on" if len(spans) > NAMED else ""
    return (
        f"{first}{more} changed after being consumed: what is in there now is not in the table. A replay takes it: "
        f"{', '.join(spans[:NAMED])}{rest}"
    )
