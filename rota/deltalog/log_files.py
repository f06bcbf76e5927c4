"""The files of a Delta log, on a disk or in a bucket: commits, checkpoints and packs.

Laws:
1. A commit is only written under a name that no file has: the first writer of a number wins, and no writer replaces it.
2. The state of a version is read from a checkpoint at or below the version and the commits after that checkpoint. If a log
   has another kind of checkpoint, removed commits, or transactions that may expire, delta-rs reads its state.
3. Neither a commit nor a poll for newer commits lists the folder, because a listing on a disk reads all names. Only a search
   for a checkpoint that `_last_checkpoint` does not name lists the folder.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain, count, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from rota.deltalog import features, packs
from rota.deltalog.commits import STATE, Action, State, find_info, fold, list_actions
from rota.deltalog.features import describe_error
from rota.deltalog.names import AFTER_COPY
from rota.errors import EnvironmentFailed
from rota.stores import PAGE, choose_options, delete, do_each, is_url, list_after, open_files, put_new, read, tag_file

LOG = "_delta_log"
HINT = f"{LOG}/_last_checkpoint"
COMMIT = re.compile(r"(?:.*/)?(\d{20})\.json")
CHECKPOINT = re.compile(r"(?:.*/)?(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.|(.+)\.)?parquet")
MAX_TAIL = 1_000  # commits after the checkpoint of `_last_checkpoint`; if there are more, a newer one is searched for
UNKNOWN = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)


class LogFiles:
    """The files below `location`: a path, or a URL of a store that delta-rs can open."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._packs: dict[packs.PackKey, packs.Pack] = {}

    @property
    def store(self) -> fs.FileSystem:
        """The files below the location."""
        return open_files(self.location)

    def load(self, version: int | None = None) -> DeltaTable:
        """Return a handle of delta-rs at this version, or at the newest. Raises what delta-rs raises."""
        return DeltaTable(self.location, version=version, storage_options=choose_options(self.location))

    # --- commits

    def read_commit(self, version: int) -> bytes:
        """Return the commit as it was written. Raises FileNotFoundError if there is none, OSError."""
        try:
            return read(self.location, _name(version))
        except FileNotFoundError:
            return packs.read_packed(self._packs, self.store, version)

    def put_commit(self, version: int, commit: bytes) -> str | None:
        """Return the tag of the new commit; None if this version already has one. Raises OSError."""
        return put_new(self.location, _name(version), commit)

    def delete_commit(self, version: int) -> None:
        """Delete the commit from the log's folder, if it is there."""
        self.delete([_name(version)])

    def delete(self, paths: Iterable[str]) -> None:
        """Delete those of these files that exist. Raises OSError."""
        delete(self.location, paths)

    def read_info(self, version: int) -> dict[str, Any]:
        """See `Log.read_info`."""
        try:
            return find_info(version, self.read_commit(version))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise EnvironmentFailed(
                f"The log of {self.location} cannot be read ({describe_error(error)}). Check the disk; or bring it back "
                f"from a copy, {AFTER_COPY}"
            ) from error

    def read_actions(self, version: int) -> Iterator[Action]:
        """See `Log.read_actions`. Also raises ValueError."""
        try:
            lines = self.read_commit(version).split(b"\n")
        except OSError as error:
            raise EnvironmentFailed(
                f"The log of {self.location} cannot be read ({describe_error(error)}). Check the disk and its rights"
            ) from error
        for line in lines:
            yield from json.loads(line).items() if line else ()

    def list_page(self, after: int) -> tuple[dict[int, str], bool]:
        """Return version -> tag of the first commits after this version, and whether there may be more.

        In a bucket this is one request. On a disk it is one stat for each commit and one for the next name. A tag is the
        ETag in a bucket; inode, time and size on a disk.

        Raises: EnvironmentFailed.
        """
        try:
            if not is_url(self.location):
                return _stat_commits(f"{self.location}/{LOG}", after), False
            listed = list_after(self.location, LOG, _name(after) if after >= 0 else "")
        except (OSError, ValueError) as error:
            raise EnvironmentFailed(
                f"{self.location} cannot be read ({describe_error(error)}). Check that it can be reached, and its rights"
            ) from error
        found = {int(match[1]): tag for path, tag in listed.items() if (match := COMMIT.fullmatch(path))}
        return found, len(listed) == PAGE

    def find_newest(self) -> dict[int, str]:
        """Return version -> tag of the newest commit; empty if there is none. Raises EnvironmentFailed."""
        begin: int = self._read_hint().get("version", 0)
        commits, more = self.list_page(begin - 1)
        if not commits and begin:
            commits, more = self.list_page(-1)  # the checkpoint is of a log that is gone
        newest: dict[int, str] = {}
        while commits:
            newest = dict([max(commits.items())])
            commits, more = self.list_page(max(newest)) if more else ({}, False)
        return newest

    def list_commits(self) -> dict[int, float]:
        """Return version -> time of writing, in seconds since 1970, of the commits in the log's folder. Raises OSError."""
        found = ((COMMIT.fullmatch(one.base_name), one.mtime_ns) for one in self._list())
        return {int(match[1]): written / 1e9 for match, written in found if match}

    def has_hole(self, version: int, later: Collection[int] = ()) -> bool:
        """Return whether a commit is missing.

        On a disk the method also detects a gap right after `version`, if at least as many commits follow the gap as are
        missing. A commit that another writer adds meanwhile is no hole.

        Args:
            version: the last commit to check.
            later: commits that a list found; the check begins at the lowest.
        """
        gone = [number for number in range(min(later, default=version), version) if number not in later]
        behind = (f"{self.location}/{_name(version + 2**k)}" for k in range(1, 16))
        if not is_url(self.location) and any(map(os.path.exists, behind)):
            gone.append(version + 1)
        return any(one.type != fs.FileType.File for one in self.store.get_file_info(list(map(_name, gone))))

    # --- state and checkpoints

    def read_state(self, version: int) -> State:
        """Return the state of this version; of the newest version if delta-rs reads it. Raises what delta-rs raises."""
        try:
            if self.has_hole(version):
                raise ValueError("a commit is missing")
            return self._read_state(version)
        except UNKNOWN:
            return features.describe_handle(self.load())

    def _read_state(self, version: int) -> State:
        """Read from the checkpoint of `_last_checkpoint` if it is near, else from the newest. Raises errors of `UNKNOWN`."""
        hint = self._read_hint()
        base, parts = hint.get("version", -1), hint.get("parts")
        names = [f".{n + 1:010}.{parts:010}" for n in range(parts)] if parts else [""]
        paths = [f"{LOG}/{base:020}.checkpoint{name}.parquet" for name in names]
        if max(0, version - MAX_TAIL) <= base <= version:
            with suppress(FileNotFoundError):
                return self._read_on(base, paths, version)
        there = self.list_checkpoints()  # without a checkpoint the log is read from its start
        base = max((one for one in there if one <= version), default=-1)
        return self._read_on(base, there.get(base, []), version)

    def _read_on(self, base: int, parts: list[str], version: int) -> State:
        commits = do_each(self.location, self.read_commit, range(base + 1, version + 1))
        state = fold(version, chain([self.read_checkpoint(parts)], map(list_actions, commits)))
        if not features.is_read(state.protocol):
            raise ValueError("a feature is not known here")
        return state

    def read_checkpoint(self, parts: list[str]) -> Iterator[Action]:
        """Return the actions in the parts of a checkpoint, without the files of the table. Raises OSError, ValueError,
        ArrowException."""
        for part in parts:
            with self.store.open_input_file(part) as file:
                for rows in pq.ParquetFile(file).iter_batches(columns=STATE):
                    for kind in STATE:
                        yield from ((kind, body) for body in rows.column(kind).drop_null().to_pylist())

    def list_checkpoints(self) -> dict[int, list[str]]:
        """Return version -> paths of the parts, of each checkpoint that has all of its parts. Raises OSError."""
        there: dict[tuple[int, int], list[str]] = {}
        for found in self._list():
            match = CHECKPOINT.fullmatch(found.path)
            if match and not match[4]:
                there.setdefault((int(match[1]), int(match[3] or 1)), []).append(found.path)
        return {base: sorted(paths) for (base, parts), paths in there.items() if len(paths) == parts}

    def list_superseded(self, newest: int, before: float) -> Iterator[str]:
        """Yield the paths of checkpoints that no reader needs, below the location.

        The log has all commits, so a checkpoint only saves reading them. The `newest` newest checkpoints stay. An older
        checkpoint is superseded if the next one was written before the time `before`.
        """
        first = self.store.get_file_info([_name(0), packs.name_pack(0)])
        if all(one.type != fs.FileType.File for one in first):
            return  # another program shortened the log: only the checkpoints state what the removed commits did
        parts: dict[int, list[Any]] = {}
        for found in self._list():
            if match := CHECKPOINT.fullmatch(found.path):
                parts.setdefault(int(match[1]), []).append(found)
        hint = self._read_hint()
        for version, successor in list(pairwise(sorted(parts)))[: 1 - newest]:
            if min(one.mtime_ns for one in parts[successor]) < before * 1e9 and version != hint.get("version"):
                yield from sorted(one.path for one in parts[version])

    def _list(self) -> list[Any]:
        return list(self.store.get_file_info(fs.FileSelector(LOG)))

    def _read_hint(self) -> dict[str, Any]:
        """Return version and parts of the checkpoint that `_last_checkpoint` names; empty if it cannot be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            hint = json.loads(read(self.location, HINT))
            return {"version": int(hint["version"]), "parts": hint.get("parts")}
        return {}


def is_checkpoint(path: str) -> bool:
    """Return whether this is the path of a checkpoint."""
    return bool(CHECKPOINT.fullmatch(path))


def _name(version: int) -> str:
    return f"{LOG}/{version:020}.json"


def _stat_commits(folder: str, after: int) -> dict[int, str]:
    """Return version -> tag of the commits after this one, up to the first that is missing.

    The folder is listed only if `after` is negative and commit 0 is missing. Raises OSError.
    """
    found: dict[int, str] = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        for version in count(after + 1):
            found[version] = tag_file(f"{folder}/{version:020}.json")
    if after < 0 and not found:
        with suppress(FileNotFoundError, NotADirectoryError):
            there = (match for name in os.listdir(folder) if (match := COMMIT.fullmatch(name)))
            found = {int(match[1]): tag_file(f"{folder}/{match[0]}") for match in there}
    return found
