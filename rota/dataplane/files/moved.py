"""Find folders that were renamed: the index has their files under another partition.

Law: a file of a new partition was moved if an indexed file of another partition has the same name below its folder, the
same size and the same time, and is gone from its path. A copy leaves the first file in place, and a different file has
another time. If a run consumed a moved file again, its rows would be in the table twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota.dataplane.files.file_index import FileIndex, LandedFile
from rota.dataplane.files.landing import Landing
from rota.errors import printable
from rota.stores import is_url


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A moved file: `path` in the new `partition`; before, `was` at `ordinal` of the partition `owner`."""

    partition: str
    path: str
    owner: str
    ordinal: int
    was: str


def find_moved(index: FileIndex, landing: Landing, new: Mapping[str, Sequence[LandedFile]]) -> list[MovedFile]:
    """Return the moved ones of the new files, sorted by partition and former ordinal."""
    by_name: dict[tuple[str, int, int], list[tuple[str, str]]] = {}
    for partition, files in new.items():
        for file in files:
            by_name.setdefault(_name(file), []).append((partition, file.path))
    if not by_name:
        return []
    found = [
        MovedFile(partition, path, owner, ordinal, was.path)
        for owner, ordinal, was in index.find_alike(file for files in new.values() for file in files)
        for partition, path in by_name.get(_name(was), ())
        if partition != owner and landing.is_gone(was.path)
    ]
    return sorted(found, key=lambda one: (one.partition, one.owner, one.ordinal))


def explain_moved(place: str, found: Sequence[MovedFile]) -> str:
    """Return why the moved files' partition is not begun, with the next step; empty without moved files."""
    if not found:
        return ""
    first = found[0]
    more = f", and {len(found) - 1} more with it" if len(found) > 1 else ""
    what = f"{place}/{first.path} is {first.was}, offset {first.ordinal} of {first.owner}{more}"
    anew = "land it there with other bytes" if is_url(place) else "give it a new time: touch"
    return printable(
        f"{what}: the folder was renamed, and what was read would be in the table twice. Rename it back. Or move away what "
        f"was read; or, to have its rows under the new name as well, {anew}. It is tried again by itself"
    )


def _name(file: LandedFile) -> tuple[str, int, int]:
    return file.path.partition("/")[2], file.size, file.modified
