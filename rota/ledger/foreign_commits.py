"""What somebody else did to the rows of a table of ours: a RESTORE, a DELETE, an append of its own.

Law: the offsets of a table say which rows are in it only as long as nobody but rota adds or removes rows; a RESTORE by
Delta keeps the offsets and takes the rows. Every commit of ours names in `rota.base` the version up to which the log was
looked through for that, so that nothing can slip in between the look and the commit: the next look goes back to there.
What moves rows between files without changing them (OPTIMIZE), removes files (VACUUM) or adds a column alters nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rota.ledger.change import read_back
from rota.ledger.port import Log, Version

FEW = 16  # commits that are read first


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """The newest commit of somebody else that added or removed rows; `back_to`: the version that the newest RESTORE among
    them went back to."""

    version: int
    operation: str
    back_to: int | None


def find_foreign_commit(table: Version) -> ForeignCommit | None:
    """Looks from the newest version back to where a commit of ours has looked."""
    seen, base, limit, found = 0, -1, FEW, None
    while True:
        entries = read_back(table, limit)
        for one in entries[seen:]:
            version = int(str(one["version"]))
            if version <= base:
                return found
            if "rota.op" in one:
                base = max(base, _base(one, version))
            elif _changes_rows(table.log, version):
                found = replace(
                    found or ForeignCommit(version, str(one.get("operation", "a commit")), None), back_to=_back_to(one)
                )
                if found.back_to is not None:
                    return found
        if len(entries) < limit:
            return found
        seen, limit = limit, limit * 8


def join_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets in as few ranges as hold no other."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _base(said: Mapping[str, object], version: int) -> int:
    """Up to where a commit of ours looked: a replay does not, and one from before `rota.base` is taken to have."""
    base = str(said.get("rota.base", version - 1))
    return int(base) if base else -1


def _changes_rows(log: Log, version: int) -> bool:
    return any(kind in ("add", "remove") and body.get("dataChange", True) for kind, body in log.read_actions(version))


def _back_to(said: Mapping[str, object]) -> int | None:
    parameters = said.get("operationParameters")
    version = str(parameters.get("version")) if isinstance(parameters, dict) else ""
    return int(version) if said.get("operation") == "RESTORE" and version.isdigit() else None
