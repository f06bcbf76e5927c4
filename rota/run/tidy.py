"""Removes consumed files from the landing folder (`after`), for the run that consumed them and for the maintenance.

Laws:
1. A file is removed only while its rows are in the table, according to the table's log.
2. No file is removed while a foreign commit is not adopted, or while a file of the table is gone. A file that was
   consumed before an adopted removal of rows stays until a replay writes its rows again.
3. An offset means the same file only under the same index. A file that was consumed under another index stays.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from rota.dataplane.ports import HasFiles, Source, Tidied
from rota.errors import EnvironmentFailed, RotaError
from rota.ledger.ledger import Ledger
from rota.ledger.values import LogEntry, Ranges, Spans, join_ranges
from rota.run.spans import find_consumed

log = logging.getLogger(__name__)


def tidy_batch(source: Source, main: Ledger, table: str, list_consumed: Callable[[str], Spans]) -> None:
    """Remove the files whose rows this run has just committed to the table of this id. Raises nothing.

    Args:
        list_consumed: `find_consumed` of `HasFiles.tidy`.
    """

    def find(index: str) -> Spans:
        main.check_held(table)
        return list_consumed(index)

    try:
        if isinstance(source, HasFiles):
            source.tidy(find)
    except RotaError as error:
        log.warning("table=%s not_taken_away=%s left_to=the maintenance", main.location, error)


def tidy_ranges(source: Source, main: Ledger, table: str, consumed: Ranges) -> None:
    """Remove the files of these ranges, which have just been committed. See `tidy_batch`."""
    tidy_batch(source, main, table, lambda _: {p: [span] for p, span in consumed.items()})


def tidy_all(source: Source, main: Ledger) -> Tidied:
    """Remove all files that were consumed and whose rows are in the table now.

    Raises:
        EnvironmentFailed: the table lacks files, or another program changed its rows.
    """

    def find(index: str) -> Spans:
        if table := main.open():
            main.check_untouched(table)
        if harm := main.explain_harm():
            raise EnvironmentFailed(f"{harm}. No consumed file was taken away")
        return find_present(main.read_log(), index)

    return source.tidy(find) if isinstance(source, HasFiles) else Tidied()


def find_present(past: Iterable[LogEntry], index: str, only: str | None = None) -> Spans:
    """Return partition -> the spans that were consumed under this index and whose rows no other program removed since.

    Args:
        past: the table's log, newest first.
        index: the id of the index.
        only: restricts the result to this partition.
    """
    entries = [one for one in past if one.index in ("", index)]
    cut = next((place for place, one in enumerate(entries) if one.took), len(entries))
    since, before = find_consumed(entries[:cut]), find_consumed(entries[cut:])
    found = {p: list(spans) for p, spans in since.items()}
    for one in entries[:cut]:
        for p, span in one.ranges.items() if one.op == "replay" else ():
            found.setdefault(p, []).extend(_overlap(before, p, span))
    return {p: join_ranges(spans) for p, spans in found.items() if spans and only in (None, p)}


def _overlap(
    spans: Mapping[str, list[tuple[int, int]]], partition: str, span: tuple[int, int]
) -> list[tuple[int, int]]:
    both = ((max(start, span[0]), min(end, span[1])) for start, end in spans.get(partition, ()))
    return [(start, end) for start, end in both if start < end]
