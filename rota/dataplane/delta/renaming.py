"""The tables of a pipeline under another name: every row, offset and token goes from `<old>:<key>` to `<new>:<key>`.

Law: nothing is read again and nothing is lost, wherever it stops. First `begin_rename` takes main from the old name: from
then on nobody commits to it, and what is under way conflicts. Then everything else goes over; last of all `finish_rename`
gives main with its rows to the new name. Each step is one commit, a compare-and-set of its table's version, and does nothing
the second time. A token goes along, so that only who claims under the new name after `begin_rename` is above it. The log is
not written anew: `parse_entries` tells what it says of the old name.
"""

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from rota.dataplane import footers
from rota.dataplane.delta.commit_info import PARTITION
from rota.dataplane.delta.fenced_table import FencedTable, check_lost_race, make_add_action
from rota.dataplane.delta.identity import RENAMING, Rename, count_adoptions, find_owner, find_rename
from rota.dataplane.footers import resolve_path
from rota.dataplane.ports import Batch, DataFile, Position
from rota.errors import ConfigError, EnvironmentFailed, ForeignTable
from rota.ids import rename_id
from rota.ledger.delta_log import DeltaVersion

TRIES = 100


def is_renamed(main: FencedTable, old: str) -> bool:
    """Whether the table has gone from `old` to the ledger's pipeline. Raises ConfigError where there is nothing that could,
    ForeignTable where it is somebody else's."""
    table, new = main.open(), main.pipeline
    if table is None:
        raise ConfigError(
            f"There is no table at {main.path}. Let {new!r} name the path of the table of {old!r}, or move its folder there"
        )
    if way := find_rename(main.path, table):
        if way != Rename(old, new, main.group):  # the ids of its transactions carry the group's name
            raise ConfigError(f"{main.path} is between {way.old!r} and {way.new!r}. Go on with: {way.command}")
        return False
    if replace(main, pipeline=old).owner.owns(table):
        return False
    if main.owner.owns(table) and table.transaction(_name_transaction(old, new)):
        return True
    if not main.owner.group_has(table):
        raise ForeignTable(replace(main, pipeline=old).owner.refusal(main.path, table))
    raise ConfigError(
        f"{main.path} is the table of pipeline {find_owner(table)!r}, not of {old!r}. Nothing was written. Let "
        f"{new!r} name the path of the table of {old!r}"
    )


def begin_rename(main: FencedTable, old: str, partitions: Iterable[str]) -> int:
    """Nobody has the table after it: the number of this rename. `partitions` are all of `old`. Raises as `is_renamed`."""
    former, new = replace(main, pipeline=old), main.pipeline
    for _ in range(TRIES):
        is_renamed(main, old)
        table = main.open_existing()
        if number := table.transaction(RENAMING):
            return int(number)
        number = (count_adoptions(table) or 0) + 1
        moves = [
            *main.owner.left(number),
            Transaction(RENAMING, number),
            Transaction(_name_transaction(old, new), number),
        ]
        stands = _stands(main, partitions)
        _try_commit(
            former, table, [], [*moves, *make_moves(former, stands)], _describe_rename(former, "renaming", old, new)
        )
    raise EnvironmentFailed(f"{main.path}: not begun in {TRIES} tries. Stop the group's runs and try again")


def read_renamed_positions(ledger: FencedTable, old: str, partitions: Iterable[str]) -> dict[str, Position]:
    """What the table says of these partitions of `old`, by their ids to be; after `begin_rename`, nobody changes it."""
    return {rename_id(p, old, ledger.pipeline): one for p, one in _stands(ledger, partitions).items()}


def _stands(ledger: FencedTable, partitions: Iterable[str]) -> Mapping[str, Position]:
    """Whoever has the table."""
    return ledger.read_positions_in(ledger.open(), partitions)


def finish_rename(ledger: FencedTable, old: str, partitions: Iterable[str]) -> None:
    """The table is the ledger's pipeline's after it, with every row, offset and token of `old`, whose are `partitions`."""
    new, written = ledger.pipeline, dict[str, DataFile]()
    attempt = f"rename-{uuid.uuid4().hex[:12]}"
    for _ in range(TRIES):
        table = ledger.open()
        if table is None or ledger.owner.owns(table):
            return
        named = table.files().to_pylist()
        actions: list[AddAction | RemoveAction] = []
        for said in named:
            path = said["path"]
            if path not in written:  # a file never changes under its name
                written[path] = _rewrite_file(ledger, resolve_path(ledger.path, path), attempt, old)
            removed = RemoveAction(path, True, int(time.time() * 1000), size=said["size_bytes"])
            actions += [removed, make_add_action(written[path])]
        ledger.check_on_disk(written.values())
        moves = [*ledger.owner.taken((count_adoptions(table) or 0) + 1), Transaction(RENAMING, 0)]
        moves += make_moves(ledger, _merge_positions(read_renamed_positions(ledger, old, partitions), ledger))
        _try_commit(ledger, table, actions, moves, _describe_rename(ledger, "rename", old, new))
    raise EnvironmentFailed(f"{ledger.path}: not renamed in {TRIES} tries. Stop who writes to it and try again")


def _merge_positions(stands: dict[str, Position], ledger: FencedTable) -> dict[str, Position]:
    """With the greater token, where the new name had one in an earlier life of the table."""
    was = _stands(ledger, stands)
    known = {p: one for p, one in stands.items() if one.offset is not None}
    return {p: replace(one, token=max(one.token or 0, was[p].token or 0)) for p, one in known.items()}


def make_moves(ledger: FencedTable, stands: Mapping[str, Position]) -> list[Transaction]:
    """What sets the token and the offset of each partition to where it stands."""
    return [move for p, one in stands.items() for move in ledger.position_moves(p, one)]


def _try_commit(
    ledger: FencedTable,
    table: DeltaVersion,
    actions: Sequence[AddAction | RemoveAction],
    moves: list[Transaction],
    said: dict[str, str],
) -> None:
    """Tries to write it on this very version; whoever calls looks at what came of it."""
    properties = CommitProperties(app_transactions=moves, custom_metadata=said, max_commit_retries=0)
    try:
        table.handle.create_write_transaction(
            list(actions), "append", table.handle.schema(), partition_by=[], commit_properties=properties
        )
    except (DeltaError, OSError) as error:
        check_lost_race(ledger.path, error)


def _describe_rename(ledger: FencedTable, op: str, old: str, new: str) -> dict[str, str]:
    """Without a `rota.base`: what somebody else did to the rows is looked for by the next owner."""
    batch = Batch(uuid.uuid4().hex, "", "", "", 0, {}, op=op)
    return {**ledger.describe(batch, {}), "rota.renamed": json.dumps({old: new})}


def _name_transaction(old: str, new: str) -> str:
    return f"rota/renamed/{old}/to/{new}"


def _rewrite_file(ledger: FencedTable, file: Path, attempt: str, old: str) -> DataFile:
    """The file with the new ids, a row group at a time."""
    to = ledger.path / "data" / attempt / ledger.pipeline / f"{uuid.uuid4().hex}.parquet"
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        with pq.ParquetFile(file) as rows, pq.ParquetWriter(to, rows.schema_arrow) as out:
            at = rows.schema_arrow.get_field_index(PARTITION)
            for group in range(rows.num_row_groups):
                some = rows.read_row_group(group)
                out.write_table(some.set_column(at, some.field(at), _ids(some[at], old, ledger.pipeline)))
    except (OSError, pa.ArrowException) as error:
        raise EnvironmentFailed(
            f"{file} cannot be read or written anew ({error}), and the table names it. Bring it back, or check the disk; "
            f"then: rota rename {old} {ledger.pipeline}"
        ) from error
    return footers.read_footer(ledger.path, to)


def _ids(column: pa.ChunkedArray, old: str, new: str) -> pa.ChunkedArray:
    there = pc.unique(column)
    names = pa.array([rename_id(p, old, new) if p is not None else None for p in there.to_pylist()], column.type)
    return pc.take(names, pc.index_in(column, there))
