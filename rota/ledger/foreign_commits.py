"""Finds foreign commits, by which other programs changed the rows of a table: a RESTORE, a DELETE, an append.

Law: the offsets of a table state which rows it has only as long as no other program adds or removes rows. A RESTORE by Delta
keeps the offsets and removes the rows. Each of rota's commits names in `rota.base` the version up to which rota searched the
log for foreign commits. The next search goes back to that version, and so misses no commit between search and commit. A
commit that moves rows between files without changing them (OPTIMIZE), deletes files (VACUUM) or adds a column is harmless.

Law: a commit that states that it changed no row (`dataChange: false`) is believed only if its counts agree (`Move`).
deltalake 1.6.6 commits an OPTIMIZE whose files another OPTIMIZE replaced meanwhile: their rows are in the table twice then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rota.deltalog.port import Version
from rota.ledger.change import read_back

FEW = 16  # commits that are read first
ADDED, TOOK, MOVED, MISCOUNTED = "added", "took", "moved", "miscounted"


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """The newest foreign commit that added or removed rows, and a summary of it and the foreign commits before it.

    Attributes:
        back_to: the version that the newest RESTORE went back to.
        moves: versions with `dataChange: false`, newest first, back to the oldest that changed the number of rows.
        took: whether a commit that states its change removed rows.
        only_moves: whether no commit states a change of rows.
    """

    version: int
    operation: str
    back_to: int | None = None
    moves: tuple[int, ...] = ()
    took: bool = False
    only_moves: bool = True


def find_foreign_commit(table: Version) -> ForeignCommit | None:
    """Search from the newest version back to the version that a commit of rota names as searched."""
    seen, base, limit, found = 0, -1, FEW, None
    moves: tuple[int, ...] = ()
    while True:
        entries = read_back(table, limit)
        for one in entries[seen:]:
            version = int(str(one["version"]))
            if version <= base:
                return found
            if "rota.op" in one:
                base = max(base, _base(one, version))
            elif change := _find_change(table, version):
                moves += (version,) if change in (MOVED, MISCOUNTED) else ()
                if change == MOVED:
                    continue
                found = found or ForeignCommit(version, str(one.get("operation", "a commit")))
                if change == MISCOUNTED:
                    found = replace(found, moves=moves)
                else:
                    found = replace(found, took=found.took or change == TOOK, only_moves=False, back_to=_back_to(one))
                if found.back_to is not None:
                    return found
        if len(entries) < limit:
            return found
        seen, limit = limit, limit * 8


def _base(info: Mapping[str, object], version: int) -> int:
    """Return the version up to which a commit of rota searched; -1 if it did not. Old commits without `base` did."""
    base = str(info.get("rota.base", version - 1))
    return int(base) if base else -1


def _find_change(table: Version, version: int) -> str:
    """Return the kind of change that this commit made to the rows, such as `TOOK`; empty if it touched no file."""
    files = [(kind, body) for kind, body in table.log.read_actions(version) if kind in ("add", "remove")]
    changes = {kind for kind, body in files if body.get("dataChange", True)}
    if changes:
        return TOOK if "remove" in changes else ADDED
    if not files:
        return ""
    return MOVED if table.read_move(version).keeps_rows else MISCOUNTED


def _back_to(info: Mapping[str, object]) -> int | None:
    parameters = info.get("operationParameters")
    version = str(parameters.get("version")) if isinstance(parameters, dict) else ""
    return int(version) if info.get("operation") == "RESTORE" and version.isdigit() else None
