"""What somebody else did to the rows of a table of ours: a RESTORE, a DELETE, an append of its own.

Law: the offsets of a table say which rows are in it only as long as nobody but rota adds or removes rows; a RESTORE by
Delta keeps the offsets and takes the rows. Every commit of ours names in `rota.base` the version up to which the log was
looked through for that, so that nothing can slip in between the look and the commit: the next look goes back to there.
What moves rows between files without changing them (OPTIMIZE), removes files (VACUUM) or adds a column alters nothing.

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
    """The newest commit of another program that added or removed rows, and what is known of those before it.

    `back_to`: the version that the newest RESTORE among them went back to. `moves`: those, newest first, that state that
    they only moved rows, down to the oldest that did more. `took`: whether any of the others removed rows. `only_moves`: no
    other one changed rows.
    """

    version: int
    operation: str
    back_to: int | None = None
    moves: tuple[int, ...] = ()
    took: bool = False
    only_moves: bool = True


def find_foreign_commit(table: Version) -> ForeignCommit | None:
    """Looks from the newest version back to where a commit of ours has looked."""
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


def _base(said: Mapping[str, object], version: int) -> int:
    """Up to where a commit of ours looked: a replay does not, and one from before `rota.base` is taken to have."""
    base = str(said.get("rota.base", version - 1))
    return int(base) if base else -1


def _find_change(table: Version, version: int) -> str:
    """What the commit of this version did to the rows; empty if nothing."""
    files = [(kind, body) for kind, body in table.log.read_actions(version) if kind in ("add", "remove")]
    changes = {kind for kind, body in files if body.get("dataChange", True)}
    if changes:
        return TOOK if "remove" in changes else ADDED
    if not files:
        return ""
    return MOVED if table.read_move(version).keeps_rows else MISCOUNTED


def _back_to(said: Mapping[str, object]) -> int | None:
    parameters = said.get("operationParameters")
    version = str(parameters.get("version")) if isinstance(parameters, dict) else ""
    return int(version) if said.get("operation") == "RESTORE" and version.isdigit() else None
