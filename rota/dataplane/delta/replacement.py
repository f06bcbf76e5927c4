"""Rows of a range replaced in one commit: what a replay does to a table.

Law: after it, the rows of each range are exactly those of the replay, whatever files they stood in; no other row, no offset
and no token changed. The commit is a compare-and-set of the table's version: of a compaction that moved the same rows
meanwhile delta-rs would not notice, so whoever loses the version looks again at the new one. Where the same files hold
rows of the ranges there, what was planned and written is committed on it at once: a live batch beside it costs a replay
nothing, and the rows that move are written once.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from rota.dataplane import columns, footers
from rota.dataplane.delta.commit_info import OFFSET, PARTITION
from rota.dataplane.delta.fenced_table import FencedTable, check_lost_race, make_add_action
from rota.dataplane.ports import Batch, DataFile
from rota.errors import EnvironmentFailed, OffsetGap
from rota.ledger.delta_log import DeltaVersion

TRIES = 100
Ranges = Mapping[str, tuple[int, int]]
Said = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Room:
    """What makes room for the batch: `actions` on any version in which just the files `holding` may hold rows of its
    ranges. `kept` are the files written for what else was in those."""

    holding: frozenset[str]
    actions: tuple[AddAction | RemoveAction, ...]
    kept: tuple[DataFile, ...]


def replace_rows(ledger: FencedTable, batch: Batch) -> int:
    """The version in which the batch stands instead of what was in its ranges. Raises OffsetGap, ForeignTable."""
    batch, first, room = changed(batch, op="replay"), None, None
    said = ledger.describe(batch, {})
    for _ in range(TRIES):
        table = _fitting(ledger, batch)
        first = table.number if first is None else first
        if room is None or not fits(room, table, batch):
            _discard(ledger, room)
            room = make_room(table, ledger, batch)
        ledger.check_on_disk((*batch.files, *room.kept))
        actions = [*room.actions, *map(make_add_action, batch.files)]
        properties = CommitProperties(custom_metadata=said, max_commit_retries=0)
        if (version := ledger.try_commit(batch.id, first, _make_write(table, actions, properties))) is not None:
            return version
    raise EnvironmentFailed(f"{ledger.path}: no replay in {TRIES} tries. Nothing was replaced; try again")


def append_rows(ledger: FencedTable, batch: Batch) -> int:
    """The version that holds the batch beside what was there: bad records of a replay, which the newest attempt rules."""
    batch = changed(batch, op="quarantine replay")
    first = ledger.open_or_make().number
    for _ in range(TRIES):
        table = _fitting(ledger, batch, follow=False)
        ledger.check_on_disk(batch.files)
        actions = [make_add_action(f) for f in batch.files]
        moves = ledger.identity_moves(table)
        properties = CommitProperties(custom_metadata=ledger.describe(batch, {}), app_transactions=moves)
        if (version := ledger.try_commit(batch.id, first, _make_write(table, actions, properties))) is not None:
            return version
    raise EnvironmentFailed(f"{ledger.path}: no commit in {TRIES} tries. Nothing was written; try again")


def _make_write(
    table: DeltaVersion, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties
) -> Callable[[], None]:
    """What commits these actions on the version of the handle."""
    return partial(
        table.handle.create_write_transaction,
        actions,
        "append",
        table.handle.schema(),
        partition_by=[],
        commit_properties=properties,
    )


def _fitting(ledger: FencedTable, batch: Batch, *, follow: bool = True) -> DeltaVersion:
    """The newest version, with every column of the batch; the ranges must be behind its offsets."""
    table = ledger.open_existing() if follow else ledger.open_or_make()
    ledger.check_owner(table)
    if follow:
        stands = ledger.read_positions(tuple(batch.ranges))
        ahead = tuple(p for p, (_, end) in batch.ranges.items() if end > (stands[p].offset or 0))
        if ahead:
            raise OffsetGap(
                f"Replay of {', '.join(ahead)} goes beyond what was consumed. Give one that ends at its offset or before",
                partitions=ahead,
            )
    added = columns.find_added(table.schema, (f.columns for f in batch.files))
    if not added:
        return table
    try:
        table.add_columns(added)
    except (DeltaError, OSError) as error:
        check_lost_race(ledger.path, error)
    return _fitting(ledger, batch, follow=follow)


def make_room(table: DeltaVersion, ledger: FencedTable, batch: Batch) -> Room:
    """Removes each file that holds rows of the ranges, and adds what else was in it (a compacted file holds more)."""
    now = int(time.time() * 1000)
    holding = _holding(table, batch)
    actions: list[AddAction | RemoveAction] = []
    kept: list[DataFile] = []
    for path, said in holding.items():
        rows = _rows(ledger.path / path, said)
        gone = _within(rows, batch.ranges)
        if not pc.any(gone).as_py():
            continue
        actions.append(RemoveAction(path, True, now, size=said["size_bytes"]))
        if left := _written(ledger, batch, rows.filter(pc.invert(gone))):
            actions.append(make_add_action(left))
            kept.append(left)
    return Room(frozenset(holding), tuple(actions), tuple(kept))


def fits(room: Room, table: DeltaVersion, batch: Batch) -> bool:
    """Whether what was planned on an older version does the same on this one: a file never changes under its name."""
    return room.holding == _holding(table, batch).keys()


def _discard(ledger: FencedTable, room: Room | None) -> None:
    """The files of a plan that surely lost its race: nothing names them."""
    for file in room.kept if room else ():
        (ledger.path / file.path).unlink(missing_ok=True)


def _holding(table: DeltaVersion, batch: Batch) -> dict[str, Said]:
    """The files that may hold rows of the ranges, with what the log says of each."""
    files = table.files()
    some = files.filter(_near(files, batch.ranges)).to_pylist() if batch.ranges else []
    return {f["path"]: f for f in some if any(_may_hold(f, p, r) for p, r in batch.ranges.items())}


def _near(files: pa.Table, ranges: Ranges) -> pa.ChunkedArray:
    """All that may hold rows of the ranges, by their widest bounds: few of very many files are looked at one by one."""
    near = pa.chunked_array([pa.array([True] * files.num_rows)])
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


def _rows(file: Path, said: Said) -> pa.Table:
    try:
        return pq.ParquetFile(file).read()
    except (OSError, pa.ArrowInvalid) as error:
        low, high, first, last = (said.get(f"{end}.{c}") for c in (PARTITION, OFFSET) for end in ("min", "max"))
        of = ""
        if isinstance(low, str) and isinstance(last, int):  # a long id is in no statistic
            of = f" (of {low if low == high else f'{low} to {high}'}: {first} to {last + 1})"
        raise EnvironmentFailed(
            f"{file} cannot be read ({error}), and the table names it. Nothing was replaced. Bring it back; or remove it, "
            f"call DeltaTable.repair(), then rota adopt, and replay all that stood in it{of}"
        ) from error


def _within(rows: pa.Table, ranges: Ranges) -> pa.ChunkedArray:
    gone = pa.chunked_array([pa.array([False] * rows.num_rows)])
    for partition, (start, end) in ranges.items():
        here = pc.and_(pc.greater_equal(rows[OFFSET], start), pc.less(rows[OFFSET], end))
        gone = pc.or_(gone, pc.and_(pc.equal(rows[PARTITION], partition), here))
    return pc.fill_null(gone, False)


def _written(ledger: FencedTable, batch: Batch, rows: pa.Table) -> DataFile | None:
    if not rows.num_rows:
        return None
    folder = ledger.path / "data" / batch.attempt / "kept"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    pq.write_table(rows, path)
    return footers.read_footer(ledger.path, path)
