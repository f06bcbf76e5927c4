"""Replaces the rows of ranges in one commit, for a replay.

Law: after the commit, the rows of each range are exactly those of the replay, whichever files had the old rows. No other
row, no offset and no token changes. The commit is a compare-and-set of the table's version, because a log does not detect a
merge that moved the same rows meanwhile. A replay that lost its race reads the new version. If the same files hold rows of
the ranges there, the replay commits its plan on that version: a live batch beside a replay causes no second rewrite.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from itertools import repeat
from typing import Any

import pyarrow as pa

from rota.deltalog.port import Draft, Version
from rota.errors import OffsetGap
from rota.ledger import schema
from rota.ledger.change import commit_change
from rota.ledger.ledger import Ledger
from rota.ledger.overlap import may_hold
from rota.ledger.values import Batch, DataFile, LogEntry, Ranges
from rota.record import OFFSET, PARTITION

BOUNDS = tuple(f"{end}.{name}" for name in (PARTITION, OFFSET) for end in ("min", "max"))
FileEntry = Mapping[str, Any]  # a row of `Version.files`


@dataclass(frozen=True, slots=True)
class ReplacementPlan:
    """The plan that removes old rows, for each version in which exactly the files `holding` may hold rows of the ranges.

    `removes` (path -> bytes) are files to remove. `kept` are new files with the other rows of the removed files.
    """

    holding: frozenset[str]
    removes: Mapping[str, int]
    kept: tuple[DataFile, ...]


def replace_rows(ledger: Ledger, batch: Batch) -> LogEntry:
    """Replace the rows in the ranges of the batch, and return the entry of the commit. Raises OffsetGap, ForeignTable."""
    batch, plan = changed(batch, op="replay"), None
    info = ledger.describe(batch, {})

    def make(_: int) -> Draft[LogEntry] | LogEntry:
        nonlocal plan
        table = ledger.open_existing()
        _check_consumed(ledger, table, batch.ranges)
        if added := schema.find_added(table.schema, (f.columns for f in batch.files)):
            return Draft(table, columns=added)
        if plan is None or not is_valid(plan, table, batch):
            ledger.files.discard(plan.kept if plan else ())  # they lost their race: no commit names them
            plan = plan_replacement(table, ledger, batch)
        adds = (*plan.kept, *batch.files)
        ledger.check_on_disk(adds)
        return Draft(table, said=info, adds=adds, removes=plan.removes, alone=True, commit=batch.id)

    return commit_change(ledger.log, make)


def _check_consumed(ledger: Ledger, table: Version, ranges: Ranges) -> None:
    """Raise OffsetGap if a range ends beyond its partition's offset, ForeignTable as `check_owner`."""
    ledger.check_owner(table)
    positions = ledger.read_positions_in(table, ranges)
    if ahead := tuple(p for p, (_, end) in ranges.items() if end > (positions[p].offset or 0)):
        raise OffsetGap(
            f"Replay of {', '.join(ahead)} goes beyond what was consumed. Give one that ends at its offset or before",
            partitions=ahead,
        )


def plan_replacement(table: Version, ledger: Ledger, batch: Batch) -> ReplacementPlan:
    """Plan to remove each file that holds rows of the ranges, and write its other rows into a new file."""
    holding = _holding(table, batch)
    removes: dict[str, int] = {}
    kept: list[DataFile] = []
    for path, entry in holding.items():
        left = ledger.files.cut(entry, batch.ranges, batch.attempt)
        if left is not None:
            removes[path] = entry["size_bytes"]
            kept += left
    return ReplacementPlan(frozenset(holding), removes, tuple(kept))


def is_valid(plan: ReplacementPlan, table: Version, batch: Batch) -> bool:
    """Return whether the plan of an older version is valid for this one: a file never changes under its name."""
    return plan.holding == _holding(table, batch).keys()


def _holding(table: Version, batch: Batch) -> dict[str, FileEntry]:
    """Return path -> entry of the files that may hold rows of the ranges. A file without statistics may hold any."""
    files, asked = table.files(), sorted(batch.ranges)
    columns = [files[name].to_pylist() if name in files.column_names else repeat(None) for name in BOUNDS]
    bounds = zip(files["path"].to_pylist(), *columns, strict=False)
    at = [i for i, (_, *known) in enumerate(bounds) if may_hold(asked, batch.ranges, *known)]
    return {entry["path"]: entry for entry in files.take(pa.array(at, pa.int64())).to_pylist()}
