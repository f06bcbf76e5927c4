"""Undoes commits of other programs that state that they only moved rows between files, and changed how many there are.

Law: after it, the files that the commit touched are as before; no other file, offset or token changes. A commit is undone
only as a whole: each file that it added is still in the table, and each file that it removed can still be read. Otherwise it
stays, and a replay writes the rows of its offsets once. Streaming readers see neither commit (`dataChange: false`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from rota.deltalog.port import Version
from rota.ledger.port import Files


@dataclass(slots=True)
class Undo:
    """What undoes the commits `undone`: files to remove (path in the log -> bytes), and paths of files to add."""

    removes: dict[str, int] = field(default_factory=dict)
    adds: set[str] = field(default_factory=set)
    undone: tuple[int, ...] = ()


def plan_undo(table: Version, files: Files, moves: Iterable[int]) -> Undo:
    """Return what undoes as many of these commits as can be undone, the newest first. Raises EnvironmentFailed."""
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
