"""The log of a Delta table, on any store that delta-rs can open: the only module that knows how it lies there.

Laws:
1. An absent table is None; a store that fails is the environment's fault; a location that delta-rs cannot have is refused
   in one line. delta-rs has no history of a folder with `#` or `?` in its name: the log is read here.
2. The transactions of a version are those that delta-rs says of each id at that version: a checkpoint at or below it and
   the commits up to it. They are read once; delta-rs reads the whole log again for each id that it is asked for. Where the
   log has a shape that is not known here (a checkpoint of another kind, commits that were removed, transactions that
   expire), delta-rs is asked.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, TableFeatures, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from rota.errors import ConfigError, EnvironmentFailed
from rota.ledger import delta_features, past
from rota.ledger.delta_commits import Said, check_lasting, find_info, list_transactions, parse_said
from rota.ledger.delta_features import CHANGED, UNREAD, check_known, check_writable, describe_error, explain_mapping
from rota.ledger.kept_tables import Past, find_newest, list_tags, open_kept
from rota.ledger.port import Draft, Moved
from rota.stores import PAGE, choose_options, delete, do_each, is_url, list_after, open_files, read

LOG = "_delta_log"
HINT = f"{LOG}/_last_checkpoint"
COMMIT = re.compile(r"(?:.*/)?(\d{20})\.json")
TAKEN = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f\ud800-\udfff]")  # delta-rs decodes the first, and has no others
CHECKPOINT = re.compile(r"(?:.*/)?(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.|(.+)\.)?parquet")
OFTEN = 20  # commits between checkpoints in a bucket, where who opens a table asks for each commit after the last one
TAIL = 100  # commits after the newest checkpoint with which a table gets another
FAR = 1_000  # commits after the checkpoint that `_last_checkpoint` names, above which a newer one is looked for
RETRIES = 30  # of delta-rs, each on a newer version, as long as nothing of what is compared moved
UNKNOWN = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)
T = TypeVar("T")


class DeltaVersion:
    """The log at one version, to read from and to commit on."""

    def __init__(self, log: "DeltaLog", handle: DeltaTable, past: Past) -> None:
        self.log, self.handle, self._past = log, handle, past
        self.number: int = handle.version()
        self._known: Mapping[str, int] | None = None
        self._read = False

    @property
    def table(self) -> str:
        """The table's own id."""
        return str(self.handle.metadata().id)

    @property
    def schema(self) -> str:
        """Its columns, JSON."""
        return str(self.handle.schema().to_json())

    def transaction(self, name: str) -> int | None:
        """The value of this transaction; None: there is none."""
        if not self._read:
            self._known, self._read = self._past.read_transactions(self.number), True
        found: int | None = self.handle.transaction_version(name) if self._known is None else self._known.get(name)
        return found

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """See `Version.read_infos`."""
        return self._past.read_infos(versions)

    def files(self) -> pa.Table:
        """The files of this version, with their statistics as columns."""
        return pa.table(self.handle.get_add_actions(flatten=True))

    def find_vectored(self, paths: Iterable[str]) -> set[str]:
        """See `Version.find_vectored`."""
        return delta_features.find_vectored(self.handle, paths)

    def explain_unreadable(self) -> str:
        """See `Version.explain_unreadable`."""
        return explain_mapping(self.log.location, self.handle)

    def append(self, draft: Draft[Any]) -> None:
        """See `Version.append`."""
        check_writable(self.log.location, self.handle, draft.removes)
        try:
            self._add_columns(draft.columns) if draft.columns else self._write(draft)
        except (DeltaError, OSError) as error:
            check_known(self.log.location, error)
            if isinstance(error, CommitFailedError) or CHANGED in str(error):
                raise Moved from error
            raise EnvironmentFailed(
                f"{self.log.location} cannot be written ({describe_error(error)}). Check the disk; the next run goes on"
            ) from error

    def _write(self, draft: Draft[Any]) -> None:
        now, change = int(time.time() * 1000), draft.changes
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(path, change, now, size=size) for path, size in draft.removes.items()
        ]
        actions += [AddAction(f.path, f.size, {}, f.modified, change, f.statistics) for f in draft.adds]
        properties = CommitProperties(
            app_transactions=[Transaction(name, number) for name, number in draft.sets.items()],
            custom_metadata=dict(draft.said) or None,
            max_commit_retries=0 if draft.alone else RETRIES,
        )
        self.handle.create_write_transaction(
            actions,
            "append",
            self.handle.schema(),
            partition_by=[],
            commit_properties=properties,
            post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),  # it is kept for ever
        )

    def _add_columns(self, columns: str) -> None:
        """A `timestamp_ntz` inside a map is one that deltalake's own look does not find: without the feature it refuses."""
        known = self.handle.protocol().writer_features or ()
        if "timestampNtz" not in known and '"timestamp_ntz"' in columns:
            self.handle.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
        self.handle.alter.add_columns(list(Schema.from_json(columns).fields))


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of the table at `location`: a path, or a URL of a store that delta-rs can open."""

    location: str

    def open(self) -> DeltaVersion | None:
        """The newest version; None where there is no table. Raises EnvironmentFailed, ConfigError for a name that cannot
        be."""
        self._check_name()
        try:
            return self._open_newest()
        except TableNotFoundError:
            return None
        except OSError as error:
            raise EnvironmentFailed(
                f"{self.location} cannot be read ({describe_error(error)}). Check the disk and its rights"
            ) from error
        except DeltaError as error:
            way = f"Bring its {LOG} back from a copy, then: rota adopt"
            if UNREAD in str(error):
                way = "Another program gave it a feature that delta-rs does not read: take it away there"
            raise EnvironmentFailed(
                f"{self.location} is no table that can be read ({describe_error(error)}). {way}"
            ) from error

    def create(self, schema: str, settings: Mapping[str, str | None] | None = None) -> DeltaVersion:
        """The table, made by whoever is first. Raises EnvironmentFailed, ConfigError."""
        self._check_name()
        often = {"delta.checkpointInterval": str(OFTEN)} if is_url(self.location) else {}
        try:
            DeltaTable.create(
                self.location,
                Schema.from_json(schema),
                mode="ignore",
                configuration={**often, **(settings or {})},
                storage_options=choose_options(self.location),
            )
        except CommitFailedError:
            pass  # somebody else was first
        except (DeltaError, OSError) as error:
            raise EnvironmentFailed(
                f"{self.location} cannot be made ({describe_error(error)}). Check the disk and its rights"
            ) from error
        return self._open_newest()

    def _open_newest(self) -> DeltaVersion:
        def load() -> DeltaTable:
            return DeltaTable(self.location, storage_options=choose_options(self.location))

        return open_kept(self, partial(DeltaVersion, self), load)

    def read_info(self, version: int) -> Mapping[str, Any]:
        """What the commit of this version says of itself, and its number; empty where it is not there."""
        return self._parse(find_info, version) or {}

    def read_said(self, version: int) -> Said | None:
        """See `LogToKeep.read_said`."""
        return self._parse(parse_said, version)

    def _parse(self, parse: Callable[[int, bytes], T], version: int) -> T | None:
        try:
            return parse(version, self.read_commit(version))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise EnvironmentFailed(
                f"The log of {self.location} cannot be read ({describe_error(error)}). Check the disk; or bring it back "
                f"from a copy, then: rota adopt"
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
        commits = list_tags(self, version - 1)
        return commits[version] if list(commits) == [version] else None

    def stamp_newest(self) -> object:
        """See `Log.stamp_newest`."""
        return find_newest(self)

    def guess_newest(self) -> int:
        """See `LogToKeep.guess_newest`. In a bucket it would take a request more."""
        return 0 if is_url(self.location) else self._read_hint().get("version", 0)

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

    def read_transactions(self, version: int) -> Mapping[str, int] | None:
        """All transactions at this version; None where delta-rs must be asked."""
        try:
            base, parts = self._named_checkpoint(version) or self._newest_checkpoint(version)
            known = dict(self.read_checkpoint(parts))
            for commit in do_each(self.location, self.read_commit, range(base + 1, version + 1)):
                known.update(list_transactions(commit))
        except UNKNOWN:
            return None
        return known

    def list_superseded(self, newest: int, before: float) -> Iterator[str]:
        """The checkpoints, below the location, that nobody needs: the log is whole without them, `newest` newer ones stand,
        and the next one was written before that time. A checkpoint may have several parts."""
        first = self.store.get_file_info([_name(0), past.name_pack(0)])
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
            return past.read_packed(self.location, self.store, version)

    def read_checkpoint(self, parts: list[str]) -> Iterator[tuple[str, int]]:
        """The transactions of a checkpoint. Raises OSError, ValueError, ArrowException."""
        for part in parts:  # only the column of transactions is read, however many files the checkpoint names
            with self.store.open_input_file(part) as file:
                for rows in pq.ParquetFile(file).iter_batches(columns=["txn"]):
                    yield from map(check_lasting, rows.column("txn").drop_null().to_pylist())

    def checkpoint(self) -> bool:
        """Makes a checkpoint where `TAIL` commits came since the last; delta-rs does so at commits, unless it is killed or
        another program told it not to. Whether there is a table. Raises EnvironmentFailed."""
        if (table := self.open()) is None:
            return False
        try:
            if table.number - max(self.list_checkpoints(), default=0) >= TAIL:
                table.handle.create_checkpoint()
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

    def _named_checkpoint(self, version: int) -> tuple[int, list[str]] | None:
        hint = self._read_hint()
        base, parts = hint.get("version", -1), hint.get("parts")
        if not max(0, version - FAR) <= base <= version:
            return None
        names = [f".{n + 1:010}.{parts:010}" for n in range(parts)] if parts else [""]
        paths = [f"{LOG}/{base:020}.checkpoint{name}.parquet" for name in names]
        there = all(one.type == fs.FileType.File for one in self.store.get_file_info(paths))
        return (base, paths) if there else None

    def _newest_checkpoint(self, version: int) -> tuple[int, list[str]]:
        """The newest whole one; without one the log is read from its start."""
        there = self.list_checkpoints()
        base = max((one for one in there if one <= version), default=-1)
        return base, there.get(base, [])

    @property
    def store(self) -> fs.FileSystem:
        """What is below the location."""
        return open_files(self.location)

    def _check_name(self) -> None:
        if taken := TAKEN.search(self.location):
            raise ConfigError(
                f"A Delta table cannot be in {self.location!r}: {taken[0]!r} is in its name. Give it another path"
            )


def stat_commits(folder: str, after: int) -> dict[int, str]:
    """Version -> tag of the commits that come after this one, up to one that is not there: so no folder is listed, unless
    the first is not there and all are asked for. Raises OSError."""
    found: dict[int, str] = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        for version in count(after + 1):
            found[version] = _tag(f"{folder}/{version:020}.json")
    if after < 0 and not found:
        with suppress(FileNotFoundError, NotADirectoryError):
            there = (match for name in os.listdir(folder) if (match := COMMIT.fullmatch(name)))
            found = {int(match[1]): _tag(f"{folder}/{match[0]}") for match in there}
    return found


def _tag(path: str) -> str:
    seen = os.stat(path)
    return f"{seen.st_ino}-{seen.st_mtime_ns}-{seen.st_size}"


def is_checkpoint(path: str) -> bool:
    """Whether this is a checkpoint of a log."""
    return bool(CHECKPOINT.fullmatch(path))


def _name(version: int) -> str:
    return f"{LOG}/{version:020}.json"
