"""The log of a Delta table, on any store: the only module that knows how it lies there.

Laws:
1. An absent table is None; a store that fails is the environment's fault; a location that delta-rs cannot have is refused
   in one line. delta-rs has no history of a folder with `#` or `?` in its name: the log is read here.
2. The state of a version is what a checkpoint at or below it and the commits up to it say, each read once, by its name.
   Where the log has a shape that is not known here (a checkpoint of another kind, commits that were removed, transactions
   that expire), delta-rs is asked.
3. A commit is a file of the next number that is put where none is: whoever is first has it, and nobody writes over it. It
   goes behind a version that the log still has, unchanged: else the number could be one that was packed, or a copy's.
4. What a commit costs does not grow with the commits before it: no folder is listed for it, but for a checkpoint. On a disk
   a listing reads all of it.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count, pairwise
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyarrow import fs

from rota.deltalog import features, packs
from rota.deltalog.commits import STATE, Action, State, clashes, find_info, fold, list_actions, write_commit
from rota.deltalog.features import check_writable, describe_error, explain_errors
from rota.deltalog.kept_tables import COMMIT, Kept, find_newest, keep, open_kept, stat_commits
from rota.deltalog.names import AFTER_COPY
from rota.deltalog.port import Draft, Move, Moved
from rota.errors import ConfigError, EnvironmentFailed
from rota.stores import PAGE, choose_options, delete, do_each, is_url, list_after, open_files, put_new, read

log = logging.getLogger(__name__)
LOG = "_delta_log"
HINT = f"{LOG}/_last_checkpoint"
TAKEN = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f\ud800-\udfff]")  # delta-rs decodes the first, and has no others
CHECKPOINT = re.compile(r"(?:.*/)?(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.|(.+)\.)?parquet")
INTERVAL = "delta.checkpointInterval"
OFTEN = 20  # commits between checkpoints in a bucket, where who opens a table asks for each commit after the last one
TAIL = 100  # and where the table does not say; commits after the newest one with which maintenance makes another
FAR = 1_000  # commits after the checkpoint that `_last_checkpoint` names, above which a newer one is looked for
UNKNOWN = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)
T = TypeVar("T")


class DeltaVersion:
    """The log at one version, to read from and to commit on."""

    def __init__(self, log: "DeltaLog", kept: Kept) -> None:
        self.log, self._kept, self._state = log, kept, kept.state
        self.number = kept.state.number

    @property
    def table(self) -> str:
        """The table's own id."""
        return str(self._state.metadata["id"])

    @property
    def schema(self) -> str:
        """Its columns, JSON."""
        return str(self._state.metadata["schemaString"])

    def transaction(self, name: str) -> int | None:
        """The value of this transaction; None: there is none."""
        if self._state.transactions is None:
            found: int | None = self._ask(lambda handle: handle.transaction_version(name))
            return found
        return self._state.transactions.get(name)

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """See `Version.read_infos`."""
        return self._kept.past.read_infos(versions)

    def files(self) -> pa.Table:
        """The files of this version, with their statistics as columns."""
        files = self._ask(lambda handle: pa.table(handle.get_add_actions(flatten=True)))
        self.list_later()  # they are of this log, and not of a copy that took its place
        return files

    def find_vectored(self, paths: Iterable[str]) -> set[str]:
        """See `Version.find_vectored`."""
        return self._find_vectored(paths)

    def _find_vectored(self, paths: Iterable[str]) -> set[str]:
        if features.VECTORS not in (self._state.protocol.get("readerFeatures") or ()):
            return set()
        return self._ask(lambda handle: features.find_vectored(handle, paths))

    def read_move(self, version: int) -> Move:
        """See `Version.read_move`."""
        with explain_errors(self.log.location, LOG):
            return self._kept.past.read_move(version, self._state.protocol)

    def check_writable(self) -> None:
        """See `Version.check_writable`."""
        features.check_table(self.log.location, self._state)

    def append(self, draft: Draft[Any]) -> None:
        """See `Version.append`."""
        vectored = self._find_vectored(draft.removes) if draft.removes else ()
        check_writable(self.log.location, self._state, draft, vectored)
        try:
            if draft.columns:
                features.add_columns(self.log.load(self.number), self._state.protocol, draft.columns)
            else:
                self._write(draft)
        except (DeltaError, OSError, ValueError) as error:
            if isinstance(error, CommitFailedError) or features.CHANGED in str(error):
                raise Moved from error
            raise EnvironmentFailed(
                f"{self.log.location} cannot be written ({describe_error(error)}). Check the disk; the next run goes on"
            ) from error

    def _write(self, draft: Draft[Any]) -> None:
        body, later = write_commit(draft, self._state.metadata), self.list_later()
        for number in count(self.number + 1):
            tag = None if number in later else self.log.put_commit(number, body)
            if tag:
                self._go_on(number, body, tag, draft.sets)
                return
            other = self.log.read_commit(number)
            if other == body:  # the answer to the first put was lost
                return
            if draft.alone or clashes(other, draft, self._state.metadata):
                raise Moved

    def list_later(self) -> Mapping[int, str]:
        """The first commits from this one on, none of them missing. Raises EnvironmentFailed."""
        later, _ = self.log.list_page(self.number - 1)
        if self._kept.tag and later.get(self.number) != self._kept.tag:
            raise EnvironmentFailed(
                f"{self.log.location} is not the one of version {self.number}: another copy took its place. Nothing was "
                f"written; the next run looks at what is there"
            )
        if self.log.has_hole(max(later, default=self.number), later):
            raise EnvironmentFailed(
                f"{self.log.location} lacks a commit behind version {self.number}. Nothing was written. Bring its {LOG} "
                f"back from a copy, {AFTER_COPY}"
            )
        return later

    def _go_on(self, number: int, body: bytes, tag: str, sets: Mapping[str, int]) -> None:
        """What this process knows of the log after its own commit; and a checkpoint, where one is due."""
        past, known = self._kept.past, self._state.transactions
        if number == self.number + 1:
            transactions = {**known, **sets} if known is not None else None
            keep(self.log, Kept(replace(self._state, number=number, transactions=transactions), tag, past))
            past.keep(find_info(number, body))
        try:
            if number % int(self._state.metadata["configuration"].get(INTERVAL, TAIL)) == 0:
                past.ask(number, DeltaTable.create_checkpoint)
        except (DeltaError, OSError, ValueError, ArithmeticError) as error:  # the commit is in; maintenance makes it up
            log.warning("table=%s no_checkpoint=%s", self.log.location, describe_error(error))

    def _ask(self, what: Callable[[DeltaTable], T]) -> T:
        """What delta-rs says of this version. Raises EnvironmentFailed."""
        with explain_errors(self.log.location, LOG):
            return self._kept.past.ask(self.number, what)


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of the table at `location`: a path, or a URL of a store that delta-rs can open."""

    location: str

    def open(self) -> DeltaVersion | None:
        """The newest version; None where there is no table. Raises EnvironmentFailed, ConfigError for a name that cannot
        be."""
        self._check_name()
        with explain_errors(self.location, LOG):
            try:
                return self._open_newest()
            except TableNotFoundError:
                return None

    def create(self, schema: str, settings: Mapping[str, str | None] | None = None) -> DeltaVersion:
        """The table. Of processes that create it at once, the first wins. Raises EnvironmentFailed, ConfigError."""
        self._check_name()
        often = {"delta.checkpointInterval": str(OFTEN)} if is_url(self.location) else {}
        try:
            if not is_url(self.location):
                os.makedirs(os.path.join(self.location, LOG), exist_ok=True)
            self.put_commit(0, features.make_first_commit(schema, {**often, **(settings or {})}))
        except (DeltaError, OSError) as error:
            raise EnvironmentFailed(
                f"{self.location} cannot be made ({describe_error(error)}). Check the disk and its rights"
            ) from error
        return self._open_newest()

    def _open_newest(self) -> DeltaVersion:
        return DeltaVersion(self, open_kept(self))

    def load(self, version: int | None = None) -> DeltaTable:
        """See `LogToKeep.load`."""
        return DeltaTable(self.location, version=version, storage_options=choose_options(self.location))

    def read_info(self, version: int) -> Mapping[str, Any]:
        """What the commit of this version says of itself, and its number; empty where it is not there."""
        try:
            return find_info(version, self.read_commit(version))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise EnvironmentFailed(
                f"The log of {self.location} cannot be read ({describe_error(error)}). Check the disk; or bring it back "
                f"from a copy, {AFTER_COPY}"
            ) from error

    def read_actions(self, version: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """See `Log.read_actions`. Raises ValueError, too."""
        try:
            lines = self.read_commit(version).split(b"\n")
        except OSError as error:
            raise EnvironmentFailed(
                f"The log of {self.location} cannot be read ({describe_error(error)}). Check the disk and its rights"
            ) from error
        for line in lines:
            yield from json.loads(line).items() if line else ()

    def stamp(self, version: int) -> str | None:
        """What is another value once the table has a newer version than this, or another log. None: it has already."""
        commits, _ = self.list_page(version - 1)
        return commits[version] if list(commits) == [version] else None

    def stamp_newest(self) -> object:
        """See `Log.stamp_newest`."""
        return find_newest(self)

    def guess_newest(self) -> int:
        """See `LogToKeep.guess_newest`."""
        version: int = self._read_hint().get("version", 0)
        return version

    def list_page(self, after: int) -> tuple[dict[int, str], bool]:
        """See `LogToKeep.list_page`."""
        try:
            if not is_url(self.location):
                return stat_commits(f"{self.location}/{LOG}", after), False
            listed = list_after(self.location, LOG, _name(after) if after >= 0 else "")
        except (OSError, ValueError) as error:
            raise EnvironmentFailed(
                f"{self.location} cannot be read ({describe_error(error)}). Check that it can be reached, and its rights"
            ) from error
        found = {int(match[1]): tag for path, tag in listed.items() if (match := COMMIT.fullmatch(path))}
        return found, len(listed) == PAGE

    def read_state(self, version: int) -> State:
        """See `LogToKeep.read_state`."""
        try:
            if self.has_hole(version):
                raise ValueError("a commit is missing")
            return self._read_state(version)
        except UNKNOWN:
            return features.describe_handle(self.load())

    def _read_state(self, version: int) -> State:
        """From the checkpoint that the log names, if that is near, else from the newest. Raises UNKNOWN."""
        hint = self._read_hint()
        base, parts = hint.get("version", -1), hint.get("parts")
        names = [f".{n + 1:010}.{parts:010}" for n in range(parts)] if parts else [""]
        paths = [f"{LOG}/{base:020}.checkpoint{name}.parquet" for name in names]
        if max(0, version - FAR) <= base <= version:
            with suppress(FileNotFoundError):
                return self._read_on(base, paths, version)
        there = self.list_checkpoints()  # without one the log is read from its start
        base = max((one for one in there if one <= version), default=-1)
        return self._read_on(base, there.get(base, []), version)

    def _read_on(self, base: int, parts: list[str], version: int) -> State:
        commits = do_each(self.location, self.read_commit, range(base + 1, version + 1))
        state = fold(version, chain([self.read_checkpoint(parts)], map(list_actions, commits)))
        if not features.is_read(state.protocol):
            raise ValueError("a feature is not known here")
        return state

    def has_hole(self, version: int, later: Collection[int] = ()) -> bool:
        """Whether one of these commits up to this version is missing; or, on a disk, where nobody lists them, the next one,
        and one behind it is there: a hole with as many commits behind it as it is wide is found. One that came meanwhile is
        none: commits come in order."""
        gone = [number for number in range(min(later, default=version), version) if number not in later]
        behind = (f"{self.location}/{_name(version + 2**k)}" for k in range(1, 16))
        if not is_url(self.location) and any(map(os.path.exists, behind)):
            gone.append(version + 1)
        return any(one.type != fs.FileType.File for one in self.store.get_file_info(list(map(_name, gone))))

    def list_superseded(self, newest: int, before: float) -> Iterator[str]:
        """The checkpoints, below the location, that nobody needs: the log is whole without them, `newest` newer ones stand,
        and the next one was written before that time. A checkpoint may have several parts."""
        first = self.store.get_file_info([_name(0), packs.name_pack(0)])
        if all(one.type != fs.FileType.File for one in first):
            return  # somebody shortened the log: what the checkpoints say is said nowhere else
        parts: dict[int, list[Any]] = {}
        for found in self._list():
            if match := CHECKPOINT.fullmatch(found.path):
                parts.setdefault(int(match[1]), []).append(found)
        hint = self._read_hint()
        for version, successor in list(pairwise(sorted(parts)))[: 1 - newest]:
            if min(one.mtime_ns for one in parts[successor]) < before * 1e9 and version != hint.get("version"):
                yield from sorted(one.path for one in parts[version])

    def list_commits(self) -> dict[int, float]:
        """The commits in the log's folder: version -> when it was written, in seconds since 1970. Raises OSError."""
        found = ((COMMIT.fullmatch(one.base_name), one.mtime_ns) for one in self._list())
        return {int(match[1]): written / 1e9 for match, written in found if match}

    def list_checkpoints(self) -> dict[int, list[str]]:
        """The whole checkpoints, by version, each with its parts. Raises OSError."""
        there: dict[tuple[int, int], list[str]] = {}
        for found in self._list():
            match = CHECKPOINT.fullmatch(found.path)
            if match and not match[4]:
                there.setdefault((int(match[1]), int(match[3] or 1)), []).append(found.path)
        return {base: sorted(paths) for (base, parts), paths in there.items() if len(paths) == parts}

    def read_commit(self, version: int) -> bytes:
        """The commit as it was written. Raises FileNotFoundError where there is none, OSError."""
        try:
            return read(self.location, _name(version))
        except FileNotFoundError:
            return packs.read_packed(self.location, self.store, version)

    def put_commit(self, version: int, commit: bytes) -> str | None:
        """Its tag; None where this version has one already. Raises OSError."""
        return put_new(self.location, _name(version), commit)

    def read_checkpoint(self, parts: list[str]) -> Iterator[Action]:
        """What the parts of a checkpoint say of the state. Raises OSError, ValueError, ArrowException."""
        for part in parts:  # the columns of the files are not read, however many files the checkpoint names
            with self.store.open_input_file(part) as file:
                for rows in pq.ParquetFile(file).iter_batches(columns=STATE):
                    for kind in STATE:
                        yield from ((kind, body) for body in rows.column(kind).drop_null().to_pylist())

    def checkpoint(self) -> bool:
        """Makes a checkpoint where `TAIL` commits came since the last; who commits does so, unless it is killed or
        another program told it not to. Whether there is a table. Raises EnvironmentFailed."""
        if (table := self.open()) is None:
            return False
        try:
            if table.number - max(self.list_checkpoints(), default=0) >= TAIL:
                self.load().create_checkpoint()
        except (DeltaError, OSError) as error:
            why = describe_error(error)
            raise EnvironmentFailed(
                f"{self.location} got no checkpoint ({why}). The next maintenance tries again"
            ) from error
        return True

    def delete_commit(self, version: int) -> None:
        """Deletes the commit from the log's folder, if it is there."""
        self.delete([_name(version)])

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes those files of the log that are there. Raises OSError."""
        delete(self.location, paths)

    def _list(self) -> list[Any]:
        return list(self.store.get_file_info(fs.FileSelector(LOG)))

    def _read_hint(self) -> dict[str, Any]:
        """The checkpoint at which a reader starts, so that a long log need not be listed; empty: nobody knows."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            hint = json.loads(read(self.location, HINT))
            return {"version": int(hint["version"]), "parts": hint.get("parts")}
        return {}

    @property
    def store(self) -> fs.FileSystem:
        """What is below the location."""
        return open_files(self.location)

    def _check_name(self) -> None:
        if taken := TAKEN.search(self.location):
            raise ConfigError(
                f"A Delta table cannot be in {self.location!r}: {taken[0]!r} is in its name. Give it another path"
            )


def is_checkpoint(path: str) -> bool:
    """Whether this is a checkpoint of a log."""
    return bool(CHECKPOINT.fullmatch(path))


def _name(version: int) -> str:
    return f"{LOG}/{version:020}.json"
