"""`index/`: the Delta table that gives every landed file of a partition its ordinal.

Law: an ordinal, once assigned, never means another file. The ordinals of a partition are consecutive from 0. The commit
that assigns them compares a transaction of the partition, at the version at which the earlier files were read. If two runs
find the same new file, one commit fails and its run reads again. The index stores the size and time of a file when it got
its ordinal; a replay stores the present ones (`keep`).

The cost of a read depends on the requested partitions and ordinals. Each file of the index is sorted by both, and a read
skips row groups that hold none of them. An index caches the spans of each file that it read, and the rows of small files.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar, overload

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema

from rota.dataplane.files.spans import (
    SCHEMA,
    IndexFile,
    find_times,
    name_files,
    read_between,
    read_file,
    write_file,
)
from rota.dataplane.footers import resolve_path
from rota.deltalog.delta_log import DeltaLog
from rota.deltalog.port import Draft, Version
from rota.errors import EnvironmentFailed
from rota.ids import partition_id, rename_id
from rota.ledger.change import commit_change
from rota.ledger.merging import FileEntry, merge_group
from rota.ledger.values import DataFile, Ranges
from rota.portions import take_portions
from rota.stores import delete

T = TypeVar("T")
RENAMED = "rota/renamed"  # the transaction with the number of the last rename
MANY = 40  # files of the index above which the smallest are merged
LARGE = 100_000  # maximum of rows in a file of the index
ORDER = ("partition", "ordinal")  # of the rows of a file
ALL = 2**62
Given = tuple[dict[str, int], tuple[str, ...]]  # number of files by partition, and the partitions that remain
Rewritten = tuple[dict[str, int], tuple[DataFile, ...]]  # files to remove (path -> bytes), and files to add
New = Callable[
    [Mapping[str, frozenset[str]]], Iterable[Mapping[str, "list[LandedFile]"]]
]  # by partition: known paths -> new files, some partitions at a time


@dataclass(frozen=True, slots=True, order=True)
class LandedFile:
    """The state of a landed file: `path` below the landing folder; `modified` in ns, or in a bucket a hash of the ETag."""

    path: str
    size: int
    modified: int


@dataclass(slots=True)
class ReadIndex:
    """The cache of an index. `newest`: the version that was read last (None before the first read, or without a table), and
    its files by name. One assignment replaces both, so threads see a pair that matches."""

    newest: tuple[Version | None, Mapping[str, IndexFile]] = (None, MappingProxyType({}))


class IndexedFiles(Sequence[LandedFile]):
    """The files of a partition by ordinal. `len` counts all files. Only the requested ones, from `start` on, are loaded;
    any other raises LookupError."""

    def __init__(self, count: int, start: int, rows: tuple[LandedFile, ...]) -> None:
        self._count, self._start, self._rows = count, start, rows

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> LandedFile: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[LandedFile, ...]: ...
    def __getitem__(self, at: int | slice) -> LandedFile | tuple[LandedFile, ...]:
        wanted = range(self._count)[at]
        if isinstance(wanted, int):
            return self[wanted : wanted + 1][0]
        first, end = wanted.start - self._start, wanted.stop - self._start
        if len(wanted) and not (wanted.step == 1 and first >= 0 and end <= len(self._rows)):
            raise LookupError(f"ordinals {wanted.start} to {wanted.stop} were not asked for")
        return self._rows[first:end] if len(wanted) else ()


@dataclass(frozen=True, slots=True)
class FileIndex:
    """The index of one source, in the table of `log`. `renewed` (partition -> ordinal -> file): present states of files,
    which replace the stored ones. `read`: the cache."""

    log: DeltaLog
    renewed: Mapping[str, Mapping[int, LandedFile]] = field(default_factory=dict)
    read: ReadIndex = field(default_factory=ReadIndex, compare=False)

    @classmethod
    def at(cls, location: str) -> "FileIndex":
        """Return the index at this location. Reads nothing yet."""
        return cls(DeltaLog(location))

    @property
    def location(self) -> str:
        """The location of the index's table."""
        return self.log.location

    @property
    def id(self) -> str:
        """The id of the index's table at the last read; empty without a table."""
        if self.read.newest[0] is None:
            self.read_newest()
        version, _ = self.read.newest
        return version.table if version else ""

    def files(self, wanted: Ranges | Iterable[str]) -> Mapping[str, IndexedFiles]:
        """Return the files of each partition, all or those in [start, end), by ordinal; empty if there is no index yet."""
        ranges = wanted if isinstance(wanted, Mapping) else dict.fromkeys(wanted, (0, ALL))
        there = self.read_newest()
        counts = self._count_files(there, ranges)
        found: dict[str, dict[int, LandedFile]] = {p: {} for p in ranges}
        for rows in self._read_between(there, ranges, SCHEMA.names):
            for p, ordinal, path, size, modified in zip(
                *(rows[name].to_pylist() for name in SCHEMA.names), strict=True
            ):
                found[p][ordinal] = self.renewed.get(p, {}).get(ordinal, LandedFile(path, size, modified))
        asked = {p: range(min(start, counts[p]), min(end, counts[p])) for p, (start, end) in ranges.items()}
        if holes := [p for p, some in asked.items() if any(o not in found[p] for o in some)]:
            raise _lost(self.location, f"has lost rows of {', '.join(holes)}")
        return {p: IndexedFiles(counts[p], some.start, tuple(found[p][o] for o in some)) for p, some in asked.items()}

    def given(self, partitions: Iterable[str]) -> Mapping[str, int]:
        """Return how many files of each partition have an ordinal."""
        return self._count_files(self.read_newest(), partitions)

    def latest(self, partitions: tuple[str, ...], new: New) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return how many files of each partition have an ordinal, and what `extend` would return. Writes nothing."""
        counts, looks = self._look(self.read_newest(), partitions, new)
        return counts, {p: counts[p] + len(files) for found in looks for p, files in found.items()}

    def extend(self, partitions: tuple[str, ...], new: New) -> Mapping[str, int]:
        """Give the `new` files the next ordinals, in the order given, and return how many files each partition has then.

        One commit gives about `LARGE` files their ordinals, so no more are in memory. The result omits partitions that
        `new` does not return.
        """
        many, left, ends = False, partitions, dict[str, int]()

        def make(_: int) -> Draft[Given] | Given:
            nonlocal many
            # another run may have created the table first: the files are read on this very version
            table = self.log.open() or self.log.create(Schema.from_arrow(SCHEMA).to_json())
            there = self._read_files(table)
            counts, looks = self._look(there, left, new)
            found, whole = _take_some(looks)
            now = {p: counts[p] + len(files) for p, files in found.items()}
            rest = () if whole else tuple(p for p in left if p not in found)
            if not any(found.values()):
                return now, rest
            many = many or len(there) >= MANY
            moves = self.make_moves({p: now[p] for p, files in found.items() if files})
            return Draft(table, moves, adds=self._write_new(counts, found), result=(now, rest))

        while left:
            given, left = commit_change(self.log, make)
            ends |= given
        if many:
            self._tidy()
        return ends

    def keep(self, partitions: tuple[str, ...]) -> None:
        """Store the `renewed` states of the files of these partitions. Their ordinals stay the same."""

        def make(_: int) -> Draft[bool] | bool:
            table = self.log.open()
            removes, adds = self.rewrite_renewed(table, partitions) if table else ({}, ())
            return Draft(table, adds=adds, removes=removes, alone=True, result=True) if table and removes else True

        commit_change(self.log, make)

    def rename(self, old: str, new: str, number: int) -> None:
        """Rename the pipeline `old` to `new` in all rows, once for each `number`. Remove the rows of other pipelines: a run
        wrote them that came too late for an earlier rename."""

        def make(_: int) -> Draft[bool] | bool:
            table = self.log.open()
            if table is None or table.transaction(RENAMED) == number:
                return True
            known = {p for file in self._read_files(table) for p in file.spans["partition"].to_pylist()}
            late = self.make_moves(dict.fromkeys(sorted(known), 0))  # a run that gives offsets meanwhile conflicts
            removes, adds = self.rewrite_renamed(table, old, new)
            return Draft(table, {RENAMED: number, **late}, adds=adds, removes=removes, alone=True)

        commit_change(self.log, make)

    def rewrite_renamed(self, table: Version, old: str, new: str) -> Rewritten:
        """Write each file of the index again, with only the rows of `old`, under `new`."""
        removes, adds = dict[str, int](), list[DataFile]()
        for said, file in self.read_named_files(table):
            for rows in self._read_between([file], _everything(file), SCHEMA.names):
                kept = rows.filter(pc.starts_with(rows["partition"], partition_id(old, "")))
                ids = pa.array([rename_id(p, old, new) for p in kept["partition"].to_pylist()], pa.string())
                adds += self.write_files(kept.set_column(0, SCHEMA.field(0), ids))
            removes[said["path"]] = said["size_bytes"]
        return removes, tuple(adds)

    def read_named_files(self, table: Version) -> Iterator[tuple[dict[str, Any], IndexFile]]:
        """Yield the log's entry of each file of the index, and the file."""
        return zip(table.files().to_pylist(), self._read_files(table), strict=True)

    def _look(
        self, there: Sequence[IndexFile], partitions: tuple[str, ...], new: New
    ) -> tuple[dict[str, int], Iterator[Mapping[str, list[LandedFile]]]]:
        """Return the number of files of each partition, and an iterator over new files of the partitions that can be
        listed. The iterator reads known paths of some partitions at a time, so memory never holds all paths."""
        counts = self._count_files(there, partitions)

        def look() -> Iterator[Mapping[str, list[LandedFile]]]:
            for some in take_portions(sorted(counts), LARGE, counts.__getitem__):
                rows = self._read_between(there, dict.fromkeys(some, (0, ALL)), ("partition", "path"))
                known = name_files(some, rows)
                yield from new({p: frozenset(chain.from_iterable(known.pop(p))) for p in some})

        return counts, look()

    def find_alike(self, files: Iterable[LandedFile]) -> Iterator[tuple[str, int, LandedFile]]:
        """Yield partition, ordinal and file of each indexed file that has the time of one of `files`."""
        times = pa.array({file.modified for file in files}, pa.int64())
        for file in self.read_newest() if len(times) else ():
            for rows in self._read(find_times(file, times)):
                yield from ((p, o, LandedFile(*one)) for p, o, *one in zip(*map(pa.Array.to_pylist, rows), strict=True))

    def read_newest(self) -> list[IndexFile]:
        """Return the files of the index at its newest version."""
        table = self.log.open()
        version, files = self.read.newest
        if table is not None and table is version:
            return list(files.values())
        return self._read_files(table)

    def _read_files(self, table: Version | None) -> list[IndexFile]:
        """Return the files of the index at this version, and what each spans. A file that was read is not read again."""
        _, known = self.read.newest
        names = table.files()["path"].to_pylist() if table else []
        try:
            found = {
                name: known[name] if name in known else read_file(self.location, resolve_path(name)) for name in names
            }
        except (OSError, pa.ArrowInvalid) as error:
            raise _lost(self.location, f"cannot be read ({error})") from error
        self.read.newest = table, found
        return list(found.values())

    def _count_files(self, there: Sequence[IndexFile], partitions: Iterable[str]) -> dict[str, int]:
        """Return the number of files of each partition. Raises EnvironmentFailed if an ordinal is missing."""
        counts = dict.fromkeys(partitions, 0)
        if there and counts:
            asked = pa.array(counts, pa.string())
            spans = pa.concat_tables([f.spans.filter(pc.is_in(f.spans["partition"], asked)) for f in there])
            whole = spans.group_by("partition").aggregate([("count", "sum"), ("last", "max")]).to_pylist()
            if holes := sorted(one["partition"] for one in whole if one["count_sum"] <= one["last_max"]):
                raise _lost(self.location, f"has lost rows of {', '.join(holes)}")
            counts |= {one["partition"]: one["last_max"] + 1 for one in whole}
        return counts

    def _read_between(self, there: Sequence[IndexFile], ranges: Ranges, names: Sequence[str]) -> Iterator[pa.Table]:
        return self._read(rows for file in there if (rows := read_between(file, ranges, names)) is not None)

    def _read(self, rows: Iterable[T]) -> Iterator[T]:
        try:
            yield from rows
        except (OSError, pa.ArrowInvalid) as error:
            raise _lost(self.location, f"cannot be read ({error})") from error

    def rewrite_renewed(self, table: Version, partitions: tuple[str, ...]) -> Rewritten:
        """Write each file of the index again that has an outdated state of a renewed file."""
        removes, adds = dict[str, int](), list[DataFile]()
        renewed = {p: self.renewed[p] for p in partitions if self.renewed.get(p)}
        ranges = {p: (min(of), max(of) + 1) for p, of in renewed.items()}
        for said, file in self.read_named_files(table):
            if next(self._read_between([file], ranges, ("partition",)), None) is None:
                continue
            rows = next(self._read_between([file], _everything(file), SCHEMA.names)).to_pylist()
            now = [self._row_now(row, renewed) for row in rows]
            if now != rows:
                removes[said["path"]] = said["size_bytes"]
                adds += self.write_files(pa.Table.from_pylist(now, SCHEMA))
        return removes, tuple(adds)

    def _row_now(self, row: dict[str, Any], renewed: Mapping[str, Mapping[int, LandedFile]]) -> dict[str, Any]:
        file = renewed.get(row["partition"], {}).get(row["ordinal"])
        return {**row, "size": file.size, "modified": file.modified} if file else row

    def make_moves(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return the transactions that make the append of a partition's files a compare-and-set."""
        return {f"rota/{p}/index": count for p, count in counts.items()}

    def _write_new(self, counts: Mapping[str, int], found: Mapping[str, list[LandedFile]]) -> tuple[DataFile, ...]:
        """Write the rows of new files. A run that loses the race leaves these files as orphans until the next vacuum."""
        rows = [
            (p, counts[p] + i, f.path, f.size, f.modified)
            for p, files in sorted(found.items())
            for i, f in enumerate(files)
        ]
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
        return self.write_files(pa.Table.from_arrays(columns, schema=SCHEMA))

    def write_files(self, rows: pa.Table) -> tuple[DataFile, ...]:
        """Write files of the index with these rows; no commit names them yet. Raises EnvironmentFailed."""
        written = []
        for start in range(0, rows.num_rows, LARGE):
            some, path = rows.slice(start, LARGE), f"{uuid.uuid4().hex}.parquet"
            try:
                size = write_file(self.location, path, some)
            except OSError as error:
                raise EnvironmentFailed(f"{self.location} cannot be written ({error}). Check the disk") from error
            said = json.dumps({"numRecords": some.num_rows})
            written.append(DataFile(path, "", size, some.num_rows, int(time.time() * 1000), said, ""))
        return tuple(written)

    def _tidy(self) -> None:
        """If the index has many files, merge the smallest into one of at most `LARGE` rows. If another commit wins, the
        next run merges them."""
        table = self.log.open()
        if table is None or len(self._read_files(table)) <= MANY:
            return
        small, rows = list[FileEntry](), 0
        for entry, file in sorted(self.read_named_files(table), key=lambda pair: pair[1].rows):
            rows += file.rows
            if rows > LARGE:
                break
            small.append(entry)
        if len(small) > 1:
            merge_group(table, self, small)

    def merge(self, paths: Sequence[str], attempt: str) -> DataFile:  # noqa: ARG002
        """See `Merges.merge`. The rows of the new file are in order."""
        files = [self.read.newest[1][path] for path in paths]
        pieces = [some for one in files for some in self._read_between([one], _everything(one), SCHEMA.names)]
        (made,) = self.write_files(pa.concat_tables(pieces).sort_by([(name, "ascending") for name in ORDER]))
        return made

    def discard(self, files: Iterable[DataFile]) -> None:
        """See `Merges.discard`."""
        delete(self.location, [file.path for file in files])


def explain_without_copy(folder: str) -> str:
    """Return the next step if the index of the tables in `folder` is lost and has no copy."""
    return (
        f"Without a copy of it, it is unknown which files were read: move {folder} away, then rota adopt, and all "
        f"files that are there are read anew"
    )


def _take_some(looks: Iterable[Mapping[str, list[LandedFile]]]) -> tuple[dict[str, list[LandedFile]], bool]:
    """Collect new files until there are `LARGE`. Return them, and whether they are all."""
    found: dict[str, list[LandedFile]] = {}
    count = 0
    for some in looks:
        found |= some
        count += sum(map(len, some.values()))
        if count >= LARGE:
            return found, False
    return found, True


def _everything(file: IndexFile) -> Ranges:
    return dict.fromkeys(file.spans["partition"].to_pylist(), (0, ALL))


def _lost(index: str, what: str) -> EnvironmentFailed:
    tables = index.rpartition("/")[0]
    return EnvironmentFailed(f"{index} {what}. Bring it back. {explain_without_copy(tables)}")
