"""Moves the rows, offsets and tokens of a renamed pipeline from `<old>:<key>` to `<new>:<key>`.

Law: nothing is read again and nothing is lost, wherever a rename stops. First `begin_rename` takes main from the old name:
no run commits to it from then on, and a commit that is under way conflicts. Then all other tables are renamed. Last,
`finish_rename` gives main with its rows to the new name. Each step is one commit, a compare-and-set of its table's version.
A repeated step does nothing. Tokens are kept, so that only tokens from claims after `begin_rename` are greater. The log is
not rewritten: `parse_entries` returns commits of the old name with the new ids.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rota.deltalog.port import Draft, Version
from rota.errors import ConfigError, ForeignTable
from rota.ids import rename_id
from rota.ledger.change import commit_change
from rota.ledger.identity import RENAMING, Rename, count_adoptions, find_owner, find_rename
from rota.ledger.ledger import Ledger
from rota.ledger.values import DataFile, Position


def is_renamed(main: Ledger, old: str, table: Version | None) -> bool:
    """Return whether this version of the table was renamed from `old` to the ledger's pipeline.

    Raises: ConfigError if this rename is not possible, ForeignTable if another group owns the table.
    """
    new = main.pipeline
    if table is None:
        raise ConfigError(
            f"There is no table at {main.location}. Let {new!r} name the path of the table of {old!r}, or move its folder "
            f"there"
        )
    if way := find_rename(table):
        if way != Rename(old, new, main.group):  # the ids of its transactions carry the group's name
            raise ConfigError(f"{main.location} is between {way.old!r} and {way.new!r}. Go on with: {way.command}")
        return False
    if replace(main, pipeline=old).owner.owns(table):
        return False
    if main.owner.owns(table) and table.transaction(_name_transaction(old, new)):
        return True
    if not main.owner.group_has(table):
        raise ForeignTable(replace(main, pipeline=old).owner.refusal(table))
    raise ConfigError(
        f"{main.location} is the table of pipeline {find_owner(table)!r}, not of {old!r}. Nothing was written. Let "
        f"{new!r} name the path of the table of {old!r}"
    )


def check_rewritable(ledger: Ledger) -> None:
    """Raise ConfigError if a deletion vector hides rows of a file: rewriting the file would bring the rows back."""
    table = ledger.open()
    if table and (hidden := table.find_vectored(table.files()["path"].to_pylist())):
        raise ConfigError(
            f"{min(hidden)} of {ledger.location} has rows that another program deleted in place. Nothing was renamed. Let "
            f"that program write the file anew, such as by REORG TABLE ... APPLY (PURGE), then type it again"
        )


def begin_rename(main: Ledger, old: str, partitions: Iterable[str]) -> int | None:
    """Take the table from `old`, so that no pipeline owns it until `finish_rename`.

    Args:
        partitions: all partitions of `old`.
    Returns: the number of this rename; None if it is finished already.
    Raises: as `is_renamed`.
    """
    former, new, all_of_old = replace(main, pipeline=old), main.pipeline, tuple(partitions)

    def make(_: int) -> Draft[int | None] | int | None:
        table = main.open_existing()
        if is_renamed(main, old, table):
            return None
        if number := table.transaction(RENAMING):
            return number
        number = (count_adoptions(table) or 0) + 1
        sets = {**main.owner.left(number), RENAMING: number, _name_transaction(old, new): number}
        sets |= make_moves(former, _read_positions(main, all_of_old))
        return Draft(table, sets, _describe_rename(former, "renaming", old, new), alone=True)

    return commit_change(main.log, make)


def read_renamed_positions(ledger: Ledger, old: str, partitions: Iterable[str]) -> dict[str, Position]:
    """Return the positions of these partitions of `old`, by their new ids. After `begin_rename` no run changes them."""
    return {rename_id(p, old, ledger.pipeline): one for p, one in _read_positions(ledger, partitions).items()}


def _read_positions(ledger: Ledger, partitions: Iterable[str]) -> Mapping[str, Position]:
    """Return the positions, without a check of the owner."""
    return ledger.read_positions_in(ledger.open(), partitions)


def finish_rename(ledger: Ledger, old: str, partitions: Iterable[str]) -> None:
    """Give the table, with all rows, offsets and tokens of these partitions of `old`, to the ledger's pipeline."""
    new, written, all_of_old = ledger.pipeline, dict[str, DataFile](), tuple(partitions)
    attempt = f"rename-{uuid.uuid4().hex[:12]}"

    def make(_: int) -> Draft[Any] | None:
        table = ledger.open()
        if table is None or ledger.owner.owns(table):
            return None
        named: dict[str, int] = {one["path"]: one["size_bytes"] for one in table.files().to_pylist()}
        for path in [path for path in named if path not in written]:  # a file never changes under its name
            written[path] = ledger.files.rename(path, attempt, old, new)
        ledger.check_on_disk(written.values())
        sets = {**ledger.owner.taken((count_adoptions(table) or 0) + 1), RENAMING: 0}
        sets |= make_moves(ledger, _merge_positions(read_renamed_positions(ledger, old, all_of_old), ledger))
        adds, said = tuple(written[path] for path in named), _describe_rename(ledger, "rename", old, new)
        return Draft(table, sets, said, adds, named, alone=True)

    commit_change(ledger.log, make)


def _merge_positions(positions: dict[str, Position], ledger: Ledger) -> dict[str, Position]:
    """Return the known positions; if the new name had a greater token earlier, with that token."""
    was = _read_positions(ledger, positions)
    known = {p: one for p, one in positions.items() if one.offset is not None}
    return {p: replace(one, token=max(one.token or 0, was[p].token or 0)) for p, one in known.items()}


def make_moves(ledger: Ledger, positions: Mapping[str, Position]) -> dict[str, int]:
    """Return the transactions that set the offset and the token of each partition."""
    return {name: number for p, one in positions.items() for name, number in ledger.position_moves(p, one).items()}


def _describe_rename(ledger: Ledger, op: str, old: str, new: str) -> dict[str, str]:
    """Return the `commitInfo`. Its `base` is empty, so the next owner's search for foreign commits does not stop here."""
    return {**ledger.describe_step(op), "rota.renamed": json.dumps({old: new})}


def _name_transaction(old: str, new: str) -> str:
    return f"rota/renamed/{old}/to/{new}"
