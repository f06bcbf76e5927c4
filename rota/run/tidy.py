"""Removes consumed files from where they landed (`after`): for the run that consumed them, and for the maintenance.

Laws:
1. A file is removed only while its rows are in the table, as far as the table's log shows.
2. No file is removed while a change of rows by another program is not adopted, or while a file of the table is gone.
   What was consumed before an adopted change stays until a replay writes its rows again.
3. An offset means the same file only under the same index. What was consumed under another index stays.
"""

import logging
from collections.abc import Iterable, Mapping

from rota.dataplane.ports import Source, Tidied, TidiesUp
from rota.errors import EnvironmentFailed, RotaError
from rota.ledger.ledger import Ledger
from rota.ledger.values import LogEntry, Spans, join_ranges
from rota.run.spans import find_consumed

log = logging.getLogger(__name__)


def name_index(source: Source) -> str:
    """Return the id of the index that gives the source's offsets their meaning; empty if it has none."""
    return source.index_id if isinstance(source, TidiesUp) else ""


def claim_source(source: Source) -> None:
    """Make the source's index the only one whose files are taken away. Raises ForeignTable, EnvironmentFailed."""
    if isinstance(source, TidiesUp):
        source.claim()


def tidy_batch(source: Source, main: Ledger, consumed: Spans, table: str) -> None:
    """Remove what this run has just committed to the table of this id. Raises nothing."""
    if not (consumed and isinstance(source, TidiesUp) and source.tidies):
        return
    try:
        main.check_held(table)
    except RotaError as error:
        log.warning("not_taken_away=%s left_to=the maintenance reason=%s", ",".join(consumed), error)
        return
    source.tidy(consumed)


def tidy_all(source: Source, main: Ledger) -> Tidied:
    """Remove all files that were consumed and whose rows are in the table now.

    Raises:
        EnvironmentFailed: the table lacks files, or another program changed its rows.
    """
    if not (isinstance(source, TidiesUp) and source.tidies):
        return Tidied()
    if table := main.open():
        main.check_untouched(table)
    if harm := main.explain_harm():
        raise EnvironmentFailed(f"{harm}. No consumed file was taken away")
    source.read_ends(())  # the index is read as it is now
    return source.tidy(find_present(main.read_log(), source.index_id))


def find_present(past: Iterable[LogEntry], index: str) -> Spans:
    """Return partition -> the spans that were consumed under this index and whose rows no other program removed since.

    Args:
        past: the table's log, newest first.
        index: the id of the index.
    """
    entries = [one for one in past if one.index in ("", index)]
    cut = next((place for place, one in enumerate(entries) if one.took), len(entries))
    since, before = find_consumed(entries[:cut]), find_consumed(entries[cut:])
    found = {p: list(spans) for p, spans in since.items()}
    for one in entries[:cut]:
        for p, span in one.ranges.items() if one.op == "replay" else ():
            found.setdefault(p, []).extend(_overlap(before, p, span))
    return {p: join_ranges(spans) for p, spans in found.items() if spans}


def _overlap(
    spans: Mapping[str, list[tuple[int, int]]], partition: str, span: tuple[int, int]
) -> list[tuple[int, int]]:
    both = ((max(start, span[0]), min(end, span[1])) for start, end in spans.get(partition, ()))
    return [(start, end) for start, end in both if start < end]
