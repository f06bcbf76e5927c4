"""Finds files that changed after they were consumed. Only a replay brings their present content into the table.

Laws:
1. The module only reads, and compares only offsets that the table's log names as consumed. Skipped offsets, and those
   before a partition's start, were not consumed.
2. The check of a run compares the newest files only; `rota check` compares all.
3. A file that is gone is no fault: users may delete what was consumed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from rota.dataplane.ports import HasFiles, Source, SourceFile
from rota.ledger.values import LogEntry
from rota.run.spans import find_changed, join_offsets

MAX_COMPARED_FILES = 1000  # consumed files of a pipeline that a run's check compares
UNLIMITED = 1 << 62
MAX_NAMED_RANGES = 3  # ranges of a partition that the reason names


def explain_rewritten(
    source: Source, past: Iterable[LogEntry], only: str | None = None, most: int | None = MAX_COMPARED_FILES
) -> dict[str, str]:
    """Return partition -> its changed files as text, with the next step.

    Args:
        source: the pipeline's source.
        past: the table's log, newest first.
        only: restricts the search to this partition.
        most: the upper bound of compared files; None: all.
    """
    if not isinstance(source, HasFiles):
        return {}
    spans = defaultdict[str, list[tuple[int, int]]](list)
    for partition, span in _take_newest(past, only, most):
        spans[partition].append(span)
    found = find_changed(source, {p: sorted(of) for p, of in spans.items()})
    return {p: _describe_changes(files) for p, files in found.items()}


def _take_newest(past: Iterable[LogEntry], only: str | None, most: int | None) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield spans of consumed offsets, newest first, with at most `most` offsets."""
    left = most if most is not None else UNLIMITED
    for one in (p for p in past if p.op == "commit"):
        for partition, (start, end) in one.ranges.items():
            if only in (None, partition) and left > 0:
                yield partition, (max(start, end - left), end)
                left -= end - start


def _describe_changes(changed: Sequence[SourceFile]) -> str:
    first = f"{changed[0].name} (offset {changed[0].offset})"
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    spans = [f"from {start} to {end}" for start, end in join_offsets(one.offset for one in changed)]
    rest = ", and so on" if len(spans) > MAX_NAMED_RANGES else ""
    return (
        f"{first}{more} changed after being consumed: what is in there now is not in the table. A replay takes it: "
        f"{', '.join(spans[:MAX_NAMED_RANGES])}{rest}"
    )
