"""A log in memory, and the files that it names, with the laws of `delta_log`, for simulation and tests.

Laws (each is in the suite of logs): a draft conflicts if a transaction that it sets, a file that it removes or the columns
were written after its base, or rows were removed; else it becomes the newest commit, even if its base is old. A commit may
land although its call fails.

A file of a batch has a row per offset between the bounds of its statistics; it has no other content.
"""

import json
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import quote

import pyarrow as pa

from rota.deltalog.port import Draft, Move, Moved
from rota.errors import EnvironmentFailed
from rota.ids import rename_id
from rota.ledger.port import Rows
from rota.ledger.schema import FIRST
from rota.ledger.values import DataFile, Ranges
from rota.record import OFFSET, PARTITION

COLUMNS = pa.schema(
    {
        "path": pa.string(), "size_bytes": pa.int64(), "modification_time": pa.int64(), "num_records": pa.int64(),
        f"min.{PARTITION}": pa.string(), f"max.{PARTITION}": pa.string(),
        f"min.{OFFSET}": pa.int64(), f"max.{OFFSET}": pa.int64(),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryCommit:
    """One commit: what it records, what it sets, and the files that it adds and removes."""

    info: Mapping[str, Any]
    sets: Mapping[str, int]
    adds: tuple[DataFile, ...] = ()
    removes: Mapping[str, int] | None = None
    changes: bool = True


class MemoryLog:
    """`pause` is called before each commit, so that other actors can run. `fault` returns whether a commit's call fails
    "before" or "after" the commit landed, or not at all (None)."""

    location = "memory"

    def __init__(
        self, pause: Callable[[], None] = lambda: None, fault: Callable[[], str | None] = lambda: None
    ) -> None:
        self.pause, self.fault = pause, fault
        self.commits: list[MemoryCommit] = []
        self.set_at: dict[str, tuple[list[int], list[int]]] = {}  # transaction -> versions that set it, and its numbers
        self.removed_at: dict[str, int] = {}
        self.taken_at = -1  # the newest version that removed rows
        self.schemas: list[tuple[int, str]] = []  # a version, and the columns of the table from it on

    @property
    def newest(self) -> int:
        """The newest version; -1 before the first write."""
        return len(self.commits) - 1

    def open(self) -> "MemoryVersion | None":
        """See `Log.open`."""
        return MemoryVersion(self, self.newest) if self.commits else None

    def create(self, schema: str, settings: Mapping[str, str | None] | None = None) -> "MemoryVersion":  # noqa: ARG002
        """See `Log.create`."""
        if not self.commits:
            self.schemas.append((0, schema))
            self.commits.append(MemoryCommit(self._describe({}), {}))
        return MemoryVersion(self, self.newest)

    def read_info(self, version: int) -> Mapping[str, Any]:
        """See `Log.read_info`."""
        return self.commits[version].info if 0 <= version <= self.newest else {}

    def read_actions(self, version: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """See `Log.read_actions`."""
        one = self.commits[version]
        yield from (("txn", {"appId": name, "version": number}) for name, number in one.sets.items())
        yield from (("remove", {"path": quote(path), "dataChange": one.changes}) for path in one.removes or ())
        yield from (("add", {"path": quote(f.path), "dataChange": one.changes}) for f in one.adds)

    def append(self, draft: Draft[Any]) -> None:
        """See `Version.append`."""
        self.pause()
        fault = self.fault()
        if fault == "before":
            raise EnvironmentFailed("the commit was lost. The next run continues")
        if self.has_moved(draft):
            raise Moved
        self.land(draft)
        if fault == "after":
            raise EnvironmentFailed("the commit's answer was lost. The next run continues")

    def has_moved(self, draft: Draft[Any]) -> bool:
        """Return whether something that the draft compares was written after its base."""
        base, set_at = draft.base.number, self.set_at
        if any(name in set_at and set_at[name][0][-1] > base for name in draft.sets):
            return True
        if self.taken_at > base or any(self.removed_at.get(path, -1) > base for path in draft.removes):
            return True
        return base < (self.newest if draft.alone else self.schemas[-1][0])

    def land(self, draft: Draft[Any]) -> None:
        """Make the draft the newest commit."""
        version = len(self.commits)
        if draft.columns:
            self.schemas.append((version, _join(self.schemas[-1][1], draft.columns)))
        info = self._describe(draft.said)
        adds = cast(tuple[DataFile, ...], draft.adds)
        self.commits.append(MemoryCommit(info, draft.sets, adds, draft.removes, draft.changes))
        for name, number in draft.sets.items():
            versions, numbers = self.set_at.setdefault(name, ([], []))
            versions.append(version)
            numbers.append(number)
        self.removed_at |= dict.fromkeys(draft.removes, version)
        if draft.removes and draft.changes:
            self.taken_at = version

    def _describe(self, said: Mapping[str, str]) -> dict[str, Any]:
        return {"version": len(self.commits), "timestamp": 0, "operation": "WRITE", **said}


@dataclass(frozen=True, slots=True)
class MemoryVersion:
    """See `rota.deltalog.port.Version`."""

    log: MemoryLog
    number: int

    @property
    def table(self) -> str:
        """See `Version.table`."""
        return "memory"

    @property
    def schema(self) -> str:
        """See `Version.schema`."""
        return next(schema for since, schema in reversed(self.log.schemas) if since <= self.number)

    def transaction(self, name: str) -> int | None:
        """See `Version.transaction`."""
        versions, numbers = self.log.set_at.get(name, ([], []))
        at = bisect_right(versions, self.number)
        return numbers[at - 1] if at else None

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """See `Version.read_infos`."""
        return map(self.log.read_info, versions)

    def files(self) -> pa.Table:
        """See `Version.files`."""
        there: dict[str, DataFile] = {}
        for one in self.log.commits[: self.number + 1]:
            for path in one.removes or ():
                there.pop(path, None)
            there |= {file.path: file for file in one.adds}
        return pa.Table.from_pylist([describe_file(file) for file in there.values()], COLUMNS)

    def find_vectored(self, paths: Iterable[str]) -> set[str]:  # noqa: ARG002
        """No other process writes it."""
        return set()

    def read_move(self, version: int) -> Move:
        """See `Version.read_move`."""
        one, known = self.log.commits[version], MemoryVersion(self.log, version - 1).files().to_pylist()
        adds, removes = {file.path: file.rows for file in one.adds}, frozenset(one.removes or ())
        before = {file["path"]: file["num_records"] for file in known if file["path"] in {*adds, *removes}}
        return Move(adds, removes, before)

    def check_writable(self) -> None:
        """No other program writes it."""

    def append(self, draft: Draft[Any]) -> None:
        """See `Version.append`."""
        self.log.append(draft)


class MemoryFiles:
    """The data files of a table in memory: see `rota.ledger.port.Files`."""

    def exists(self, path: str) -> bool:  # noqa: ARG002
        """None is ever missing."""
        return True

    def read_first(self, paths: Iterable[str], partitions: Iterable[str], most: int) -> dict[str, Rows]:
        """See `Files.read_first`; returns no rows of `kept` files."""
        held = {one[0]: range(*one[1:]) for one in (_bounds(path) for path in paths if "/kept/" not in path)}
        return {p: tuple({OFFSET: at} for at in held[p][:most]) for p in partitions if p in held}

    def count_rows(self, path: str) -> dict[str, int]:
        """See `Files.count_rows`."""
        partition, start, end = _bounds(path)
        return {partition: end - start}

    def describe(self, path: str) -> DataFile:
        """See `Files.describe`."""
        return replace(make_file("", *_bounds(path)), path=path)

    def discard(self, files: Iterable[DataFile]) -> None:
        """There are no files to delete."""

    def cut(self, said: Mapping[str, Any], ranges: Ranges, attempt: str) -> tuple[DataFile, ...] | None:
        """See `Files.cut`."""
        partition, start, end = said[f"min.{PARTITION}"], said[f"min.{OFFSET}"], said[f"max.{OFFSET}"] + 1
        first, last = ranges.get(partition, (end, end))
        if first >= end or last <= start:
            return None
        left = ((start, max(start, first)), (min(end, last), end))
        return tuple(make_file(f"data/{attempt}/kept", partition, *some) for some in left if some[0] < some[1])

    def merge(self, paths: Sequence[str], attempt: str) -> DataFile | None:  # noqa: ARG002
        """A file can only have rows of one contiguous range, so files are never merged."""
        return None

    def rename(self, path: str, attempt: str, old: str, new: str) -> DataFile:
        """See `Files.rename`."""
        partition, start, end = _bounds(path)
        return make_file(f"data/{attempt}/{new}", rename_id(partition, old, new), start, end)


def make_file(folder: str, partition: str, start: int, end: int) -> DataFile:
    """Return a file with a row for each offset in `[start, end)`. Its name contains both."""
    rows, low, high = end - start, {PARTITION: partition, OFFSET: start}, {PARTITION: partition, OFFSET: end - 1}
    statistics = json.dumps({"numRecords": rows, "minValues": low, "maxValues": high})
    path = f"{folder}/{uuid.uuid4().hex}#{json.dumps([partition, start, end])}"
    return DataFile(path, partition, rows, rows, 0, statistics, FIRST)


def _bounds(path: str) -> tuple[str, int, int]:
    partition, start, end = json.loads(path.rpartition("#")[2])
    return partition, start, end


def describe_file(file: DataFile) -> dict[str, Any]:
    """Return the file as a row of `Version.files`."""
    statistics = json.loads(file.statistics)
    bounds = {f"{end}.{name}": value for end in ("min", "max") for name, value in statistics[f"{end}Values"].items()}
    there = {"path": file.path, "size_bytes": file.size, "modification_time": file.modified}
    return {**there, "num_records": statistics["numRecords"], **bounds}


def _join(schema: str, added: str) -> str:
    fields = [*json.loads(schema)["fields"], *json.loads(added)["fields"]]
    return json.dumps({"type": "struct", "fields": fields})
