"""Lists a landing folder: regular files in partition folders below its root, and everything else.

Laws:
1. Each name below the root is read sooner or later, or is hidden (`is_hidden`), or has a reason why it is ignored.
2. A link is ignored, whatever its target: nothing outside the root is read. A pipe or a device is never opened.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.names import is_hidden
from rota.errors import printable

LAST = 2**63 - 1  # ns since 1970
ASIDE = "it lies in no partition's folder; move it into one"
LINK = "it is a link; land the file itself"
NO_TEXT = "its name is not UTF-8; give it another"
NO_FILE = "it is no regular file"
ChangeMessages = tuple[tuple[str, str], tuple[str, str], tuple[str, str], str]
LIVE: ChangeMessages = (  # of a file that vanished, changed, or is no longer in the index, with the next step; the last step
    (
        "vanished before it was consumed",
        "Bring it back, then: rota retry {p}. Or, if it is gone for good: rota skip {p}",
    ),
    (
        "changed after it got its offset",
        "To take it as it is now: rota retry {p}. Or to go on without it: rota skip {p}",
    ),
    ("an older one took its place", "Bring the newer one back, then: rota retry {p}"),
    "then: rota retry {p}",
)
AGAIN: ChangeMessages = (
    ("vanished", "Bring it back, or give a range without it"),
    ("changed while it was read again", "When it is complete, replay it"),
    ("an older one took its place", "Bring the newer one back"),
    "then replay {p}",
)
TOO_LONG = "its partition id would be longer than 120 bytes; give it a shorter name"


def list_folders(root: Path) -> tuple[str, ...]:
    """Return the names of the partitions' folders, in no order. Raises OSError."""
    entries = (entry for entry in _shown(root) if not _reason(entry, entry.name))
    return tuple(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def list_files(root: Path, below: str) -> "Iterator[tuple[str, os.DirEntry[str]]]":
    """Yield the regular files of a partition's folder and of its subfolders, with their paths below the root. Raises
    OSError.
    """
    if os.path.islink(f"{root}/{below}"):
        return
    for path, entry, reason in _walk(root, below):
        if not reason:
            yield path, entry


def list_rested(
    root: Path, below: str, known: frozenset[str], settle: float, now: float, yet: list[float]
) -> Iterator[LandedFile]:
    """Yield the unknown files of a partition's folder that were unchanged for `settle` seconds. Append to `yet` the
    seconds that each other file still has to rest.

    Only the inode's change time counts: a copy or a client's clock can set the modification time, but not the change
    time. The current time is `now`, or the newest change time if that is later: the clock of the file server may be
    ahead of this machine's. Raises OSError.
    """
    found: list[tuple[str, os.stat_result]] = []
    for path, entry in list_files(root, below):
        with suppress(FileNotFoundError):  # it vanished since it was listed
            if path not in known:
                found.append((path, entry.stat(follow_symlinks=False)))
    now = max([now, *(stat.st_ctime for _, stat in found)])
    for path, stat in found:
        if (left := settle - (now - stat.st_ctime)) > 0:
            yet.append(left)
        else:
            yield LandedFile(path, stat.st_size, read_time(stat))


def read_time(stat: os.stat_result) -> int:
    """Return the modification time in ns, limited to what the index can hold: a file may claim the year 2400."""
    return max(-LAST, min(stat.st_mtime_ns, LAST))


def list_ignored(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each ignored path below the root, with the reason. A folder that cannot be listed is left out: its partition
    waits. Raises OSError if the root cannot be listed."""
    for entry in _shown(root):
        if reason := _reason(entry, entry.name):
            yield entry.name, reason
        elif not entry.is_dir(follow_symlinks=False):
            yield entry.name, ASIDE
        else:
            try:
                yield from [(path, why) for path, _, why in _walk(root, entry.name) if why]
            except OSError:
                continue


def _walk(root: Path, below: str) -> "Iterator[tuple[str, os.DirEntry[str], str]]":
    """Yield each file, and each ignored entry with its reason."""
    try:
        entries = list(_shown(f"{root}/{below}"))
    except FileNotFoundError:
        return
    for entry in entries:
        path = f"{below}/{entry.name}"
        reason = _reason(entry, path)
        if not reason and entry.is_dir(follow_symlinks=False):
            yield from _walk(root, path)
        else:
            yield path, entry, reason


def _shown(folder: Path | str) -> "Iterator[os.DirEntry[str]]":
    return (entry for entry in os.scandir(folder) if not is_hidden(entry.name))


def _reason(entry: "os.DirEntry[str]", path: str) -> str:
    if not _text(path):
        return NO_TEXT
    if entry.is_symlink():
        return LINK
    return "" if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False) else NO_FILE


def _text(path: str) -> bool:
    """Return whether the index can hold the name."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def explain_blind(error: OSError) -> str:
    """Return why a partition cannot be listed, with the next step."""
    return printable(f"{error.filename} cannot be looked at ({error.strerror}). Mend its rights")
