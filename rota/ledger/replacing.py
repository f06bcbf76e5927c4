"""Rows of a range replaced in one commit: what a replay does to a table.

Law: after it, the rows of each range are exactly those of the replay, whatever files they stood in; no other row, no offset
and no token changed. The commit is a compare-and-set of the table's version: of a compaction that moved the same rows
meanwhile a log would not notice, so whoever loses the version looks again at the new one. Where the same files hold
rows of the ranges there, what was planned and written is committed on it at once: a live batch beside it costs a replay
nothing, and the rows that move are written once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rota.deltalog.port import Draft, Version
from rota.errors import OffsetGap
from rota.ledger import schema
from rota.ledger.change import commit_change
from rota.ledger.ledger import Ledger
from rota.ledger.values import Batch, DataFile, LogEntry, Ranges
from rota.record import OFFSET, PARTITION

Said = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Room:
    """What makes room for the batch on any version in which just the files `holding` may hold rows of its ranges: `removes`
    (path -> bytes), and `kept`, the files written for what else was in those."""

    holding: frozenset[str]
    removes: Mapping[str, int]
    kept: tuple[DataFile, ...]


def replace_rows(ledger: Ledger, batch: Batch) -> LogEntry:
    """The entry of the commit that puts the batch in place of what was in its ranges. Raises OffsetGap, ForeignTable."""
    batch, room = changed(batch, op="replay"), None
    said = ledger.describe(batch, {})

    def make(_: int) -> Draft[LogEntry] | LogEntry:
        nonlocal room
        table = ledger.open_existing()
        _check_consumed(ledger, table, batch.ranges)
        if added := schema.find_added(table.schema, (f.columns for f in batch.files)):
            return Draft(table, columns=added)
        if room is None or not fits(room, table, batch):
            ledger.files.discard(room.kept if room else ())  # they surely lost their race: nothing names them
            room = make_room(table, ledger, batch)
        adds = (*room.kept, *batch.files)
        ledger.check_on_disk(adds)
        return Draft(table, said=said, adds=adds, removes=room.removes, alone=True, commit=batch.id)

    return commit_change(ledger.log, make)


def _check_consumed(ledger: Ledger, table: Version, ranges: Ranges) -> None:
    """Raises OffsetGap where a range is not behind its partition's offset, ForeignTable."""
    ledger.check_owner(table)
    stands = ledger.read_positions_in(table, ranges)
    if ahead := tuple(p for p, (_, end) in ranges.items() if end > (stands[p].offset or 0)):
        raise OffsetGap(
            f"Replay of {', '.join(ahead)} goes beyond what was consumed. Give one that ends at its offset or before",
            partitions=ahead,
        )


def make_room(table: Version, ledger: Ledger, batch: Batch) -> Room:
    """Removes each file that holds rows of the ranges, and adds what else was in it (a compacted file holds more)."""
    holding = _holding(table, batch)
    removes: dict[str, int] = {}
    kept: list[DataFile] = []
    for path, said in holding.items():
        left = ledger.files.cut(said, batch.ranges, batch.attempt)
        if left is not None:
            removes[path] = said["size_bytes"]
            kept += left
    return Room(frozenset(holding), removes, tuple(kept))


def fits(room: Room, table: Version, batch: Batch) -> bool:
    """Whether what was planned on an older version does the same on this one: a file never changes under its name."""
    return room.holding == _holding(table, batch).keys()


def _holding(table: Version, batch: Batch) -> dict[str, Said]:
    """The files that may hold rows of the ranges, with what the log says of each."""
    files = table.files()
    some = files.filter(_near(files, batch.ranges)).to_pylist() if batch.ranges else []
    return {f["path"]: f for f in some if any(_may_hold(f, p, r) for p, r in batch.ranges.items())}


def _near(files: pa.Table, ranges: Ranges) -> pa.ChunkedArray:
    """All that may hold rows of the ranges, by their widest bounds: few of very many files are looked at one by one."""
    near = pa.chunked_array([pa.array([True] * files.num_rows, pa.bool_())])
    starts, ends = zip(*ranges.values(), strict=True)
    for column, first, last in ((PARTITION, min(ranges), max(ranges)), (OFFSET, min(starts), max(ends))):
        low, high = f"min.{column}", f"max.{column}"
        if low in files.column_names and high in files.column_names:
            here = pc.and_(pc.less_equal(files[low], last), pc.greater_equal(files[high], first))
            near = pc.and_(near, pc.fill_null(here, True))
    return near


def _may_hold(said: Said, partition: str, wanted: tuple[int, int]) -> bool:
    """By the log's statistics; a file without them may hold anything."""
    low, high = said.get(f"min.{PARTITION}"), said.get(f"max.{PARTITION}")
    if isinstance(low, str) and isinstance(high, str) and not low <= partition <= high:
        return False
    first, last = said.get(f"min.{OFFSET}"), said.get(f"max.{OFFSET}")
    return not (isinstance(first, int) and isinstance(last, int)) or (first < wanted[1] and last >= wanted[0])
