"""Which files changed after they were consumed: what they hold now is in no table, until their offsets are replayed.

Law: only looking, at consumed offsets as the table's log names them: what was skipped, or stood before a partition's start,
was not consumed. A run's check looks at the newest ones alone, `rota check` at all of them. A file that is gone is nobody's
fault: people tidy up what was consumed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from rota.dataplane.ports import ChangesInPlace, Source
from rota.ledger.values import LogEntry
from rota.run.spans import join_offsets

LOOKED = 1000  # consumed files of a pipeline that a run's check looks at
ALL = 1 << 62
NAMED = 3  # ranges of a partition to replay


def explain_rewritten(
    source: Source, past: Iterable[LogEntry], only: str | None = None, most: int | None = LOOKED
) -> dict[str, str]:
    """Partition -> its files that changed, with what to do; `past` is newest first. `only`: of this partition. `most`: so
    many files are looked at, all if None."""
    if not isinstance(source, ChangesInPlace):
        return {}
    spans = defaultdict[str, list[tuple[int, int]]](list)
    for partition, span in _take_newest(past, only, most):
        spans[partition].append(span)
    found = source.find_rewritten({p: sorted(of) for p, of in spans.items()})
    return {p: _told(source, p, sorted(changed)) for p, changed in found.items() if changed}


def _take_newest(past: Iterable[LogEntry], only: str | None, most: int | None) -> Iterator[tuple[str, tuple[int, int]]]:
    """What was consumed, newest first, up to so many offsets."""
    left = most if most is not None else ALL
    for one in (p for p in past if p.op == "commit"):
        for partition, (start, end) in one.ranges.items():
            if only in (None, partition) and left > 0:
                yield partition, (max(start, end - left), end)
                left -= end - start


def _told(source: Source, partition: str, changed: list[int]) -> str:
    first = f"{source.locate(partition, changed[0])} (offset {changed[0]})"
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    spans = [f"from {start} to {end}" for start, end in join_offsets(changed)]
    rest = ", and so on" if len(spans) > NAMED else ""
    return (
        f"{first}{more} changed after being consumed: what is in there now is not in the table. A replay takes it: "
        f"{', '.join(spans[:NAMED])}{rest}"
    )
