"""Undoes foreign commits that state `dataChange: false`, but changed the number of rows.

Law: an undo restores the files that the commit touched, and changes no other file, offset or token. A commit is undone as a
whole or not at all: the table must still have each file that it added, and each file that it removed must be readable.
Otherwise a replay repairs the rows of its offsets. Streaming readers see neither the commit nor the undo.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from rota.deltalog.port import Version
from rota.ledger.port import Files


@dataclass(slots=True)
class Undo:
    """The plan that undoes the commits `undone`: files to remove (path in the log -> bytes), and paths of files to add."""

    removes: dict[str, int] = field(default_factory=dict)
    adds: set[str] = field(default_factory=set)
    undone: tuple[int, ...] = ()


def plan_undo(table: Version, files: Files, moves: Iterable[int]) -> Undo:
    """Plan the undo of those of these commits that can be undone, the newest first. Raises EnvironmentFailed."""
    undo = Undo()
    there = {unquote(one["path"]): (one["path"], one["size_bytes"]) for one in table.files().to_pylist()}
    for version in moves:
        move = table.read_move(version)
        before = move.before or {}
        added, taken = move.adds.keys() - before.keys(), move.removes & before.keys()
        whole = move.before is not None and added <= there.keys() | undo.adds
        if not whole or not all(map(files.exists, taken)) or table.find_vectored(taken):
            continue
        undo.removes |= [there.pop(path) for path in added - undo.adds]
        undo.adds = (undo.adds - added) | (taken - there.keys())
        undo.undone += (version,)
    return undo
