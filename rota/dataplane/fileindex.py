"""`index/`: the Delta table that gives every landed file of a partition its ordinal.

Law: an ordinal, once given, means the same file for ever; ordinals of a partition follow each other from 0. A file gets
its ordinal under a transaction of its partition, on the handle on which the files before it were read: of two runs that
see the same new file, one loses and looks again. Its size and time are those of when it was read last, or is to be read:
`keep` writes them.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from rota.dataplane.opening import created, opened, plain
from rota.errors import EnvironmentFailed

SCHEMA = pa.schema(
    [
        ("partition", pa.string()),
        ("ordinal", pa.int64()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modified", pa.int64()),
    ]
)
TRIES = 100
MANY = 40  # files of the index above which it is put together again
Rows = tuple[tuple[str, int, "Landed"], ...]
_READ: dict[Path, dict[str, Rows]] = {}  # index -> its files as they were read; only those that the table still names


@dataclass(frozen=True, slots=True, order=True)
class Landed:
    """A file as it was when it got its ordinal: `path` below the landing folder, `modified` in ns."""

    path: str
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class FileIndex:
    """The index of one source, `path` being its table. `renewed` (partition -> ordinal -> file): these files as they are
    now, in place of what the table says of them."""

    path: Path
    transaction: bool = True  # of each partition that gets files; taken away, to show in a test that it is needed
    renewed: Mapping[str, Mapping[int, Landed]] = field(default_factory=dict)

    def files(self, partitions: tuple[str, ...]) -> Mapping[str, tuple[Landed, ...]]:
        """The files of each partition; a file's place in the tuple is its ordinal. No index yet: empty."""
        return self._files(opened(self.path), partitions)

    def extend(
        self, partitions: tuple[str, ...], new: Callable[[str, frozenset[str]], list[Landed] | None]
    ) -> Mapping[str, tuple[Landed, ...]]:
        """The files of each partition after `new(partition, known paths)` got the next ordinals, in the order given.

        One of which `new` says None is left out."""
        for _ in range(TRIES):
            table = opened(self.path)
            if table is None:
                table = created(self.path, SCHEMA)  # and read below, on this very handle: somebody may have been faster
            known = self._files(table, partitions)
            seen = {p: new(p, frozenset(f.path for f in known[p])) for p in partitions}
            found = {p: files for p, files in seen.items() if files is not None}
            if not any(found.values()):
                return {p: known[p] for p in found}
            if self._append(table, known, found):
                self._tidy()
                return {p: (*known[p], *files) for p, files in found.items()}
        raise EnvironmentFailed(f"{self.path}: no append in {TRIES} tries. Too many writers at once; try again")

    def keep(self, partitions: tuple[str, ...]) -> None:
        """Writes down the `renewed` files of these partitions, each under the ordinal that it has."""
        for _ in range(TRIES):
            table = opened(self.path)
            if table is None or not (actions := self._replaced(table, partitions)):
                return
            try:  # a compare-and-set of the version: a compaction may have moved the same rows
                properties = CommitProperties(max_commit_retries=0)
                table.create_write_transaction(
                    actions, "append", table.schema(), partition_by=[], commit_properties=properties
                )
            except CommitFailedError:
                continue
            except (DeltaError, OSError) as error:
                raise EnvironmentFailed(f"{self.path} cannot be written ({plain(error)}). Check the disk") from error
            return
        raise EnvironmentFailed(f"{self.path}: not renewed in {TRIES} tries. Too many writers at once; try again")

    def _replaced(self, table: DeltaTable, partitions: tuple[str, ...]) -> list[AddAction | RemoveAction]:
        """Each file of the index that says something else of a renewed file, written anew."""
        actions: list[AddAction | RemoveAction] = []
        for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            rows = _rows(str(self.path / unquote(file["path"])))
            now = tuple((p, o, self._renewed(p, o, was) if p in partitions else was) for p, o, was in rows)
            if now != rows:
                removed = RemoveAction(file["path"], True, int(time.time() * 1000), size=file["size_bytes"])
                actions += [removed, self._written(now)]
        return actions

    def _renewed(self, partition: str, ordinal: int, was: Landed) -> Landed:
        return self.renewed.get(partition, {}).get(ordinal, was)

    def _files(self, table: DeltaTable | None, partitions: tuple[str, ...]) -> dict[str, tuple[Landed, ...]]:
        found: dict[str, dict[int, Landed]] = {p: {} for p in partitions}
        known = _READ.get(self.path, {})
        names = [_local(uri) for uri in table.file_uris()] if table else []
        read = _READ[self.path] = {name: known[name] if name in known else _rows(name) for name in names}
        for rows in read.values():
            for partition, ordinal, file in rows:
                if partition in found:
                    found[partition][ordinal] = self._renewed(partition, ordinal, file)
        if holes := [p for p, files in found.items() if len(files) <= max(files, default=-1)]:
            raise _lost(self.path, f"has lost rows of {', '.join(holes)}")
        return {p: tuple(files[i] for i in range(len(files))) for p, files in found.items()}

    def _append(
        self, table: DeltaTable, known: Mapping[str, tuple[Landed, ...]], found: Mapping[str, list[Landed]]
    ) -> bool:
        rows = tuple((p, len(known[p]) + i, f) for p, files in sorted(found.items()) for i, f in enumerate(files))
        moved = [Transaction(f"rota/{p}/index", len(known[p]) + len(files)) for p, files in found.items() if files]
        moved = moved if self.transaction else []
        try:
            action = self._written(rows)
            properties = CommitProperties(app_transactions=moved, max_commit_retries=30)
            table.create_write_transaction(
                [action], "append", table.schema(), partition_by=[], commit_properties=properties
            )
        except CommitFailedError:
            return False  # the file stays as an orphan until the next vacuum
        except (DeltaError, OSError) as error:
            raise EnvironmentFailed(f"{self.path} cannot be written ({plain(error)}). Check the disk") from error
        return True

    def _written(self, rows: Rows) -> AddAction:
        """A file of the index with these rows, which nobody sees yet."""
        name = f"{uuid.uuid4().hex}.parquet"
        columns = [[p, o, f.path, f.size, f.modified] for p, o, f in rows]
        data = pa.table([list(column) for column in zip(*columns, strict=True)], schema=SCHEMA)
        pq.write_table(data, self.path / name)
        size = (self.path / name).stat().st_size
        return AddAction(name, size, {}, int(time.time() * 1000), True, json.dumps({"numRecords": len(rows)}))

    def _tidy(self) -> None:
        """Puts a long row of small files together; whoever loses that race leaves it to the next."""
        table = opened(self.path)
        if table and len(table.file_uris()) > MANY:
            try:
                table.optimize.compact()
            except (DeltaError, OSError):
                return


def without_copy(folder: Path) -> str:
    """The way on where the index of the tables in `folder` is lost for good."""
    return (
        f"Without a copy of it nobody knows which files were read: move {folder} away, then rota adopt, and all "
        f"files that are there are read anew"
    )


def _lost(index: Path, what: str) -> EnvironmentFailed:
    return EnvironmentFailed(f"{index} {what}. Bring it back. {without_copy(index.parent)}")


def _local(uri: str) -> str:
    return unquote(urlparse(uri).path) if uri.startswith("file:") else uri


def _rows(file: str) -> Rows:
    """The rows of one file of the index; such a file never changes. Raises EnvironmentFailed."""
    try:
        rows = pq.ParquetFile(file).read().to_pydict()
    except (OSError, pa.ArrowInvalid) as error:
        raise _lost(Path(file).parent, f"cannot be read ({error})") from error
    names = ("partition", "ordinal", "path", "size", "modified")
    return tuple((p, o, Landed(path, size, at)) for p, o, path, size, at in zip(*(rows[n] for n in names), strict=True))
