"""The data files of a Delta table: Parquet, on a disk or in a bucket. See `rota.ledger.port.Files`."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from rota.dataplane import columns, footers, names
from rota.errors import EnvironmentFailed
from rota.ids import rename_id
from rota.ledger.gone_files import name_span
from rota.ledger.port import Rows
from rota.ledger.values import DataFile, Ranges
from rota.record import OFFSET, PARTITION
from rota.stores import delete, do_each, join, open_files, read

GROUP = 64 << 20  # bytes in memory of a row group of a merged file
COLUMNS = 30  # that a sample row has at most
LEGACY = b"org.apache.spark.legacy"


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """The data files below `location`."""

    location: str

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        return bool(self._open().get_file_info(path).type == fs.FileType.File)

    def read_first(self, paths: Iterable[str], partitions: Iterable[str], most: int) -> dict[str, Rows]:
        """See `Files.read_first`."""
        files = {path.split("/")[-2]: path for path in sorted(paths, reverse=True)}
        found: dict[str, Rows] = {}
        for partition in partitions:
            if path := files.get(names.split(partition)):
                with suppress(OSError, ValueError, OverflowError, LookupError, pa.ArrowException):
                    found[partition] = _read_first(self._open(), path, most)
        return found

    def count_rows(self, path: str) -> dict[str, int]:
        """See `Files.count_rows`."""
        column = pq.read_table(path, columns=[PARTITION], filesystem=self._open(), partitioning=None)[PARTITION]
        return {one["values"]: one["counts"] for one in pc.value_counts(column).to_pylist()}

    def describe(self, path: str) -> DataFile:
        """See `Files.describe`."""
        try:
            return footers.read_footer(self.location, path)
        except (OSError, pa.ArrowException) as error:
            raise EnvironmentFailed(
                f"{join(self.location, path)} cannot be read ({error}). Nothing was written. Check the disk, and try again"
            ) from error

    def discard(self, files: Iterable[DataFile]) -> None:
        """See `Files.discard`."""
        delete(self.location, [file.path for file in files])

    def cut(self, said: Mapping[str, Any], ranges: Ranges, attempt: str) -> tuple[DataFile, ...] | None:
        """See `Files.cut`."""
        rows = self._read(said)
        gone = _within(rows, ranges)
        if not pc.any(gone).as_py():
            return None
        left = rows.filter(pc.invert(gone))
        if not left.num_rows:
            return ()
        return (footers.write_file(self.location, _name_file(attempt, "kept"), left),)

    def merge(self, paths: Sequence[str], attempt: str) -> DataFile | None:
        """See `Files.merge`. Memory holds the stored bytes of all files, and the decoded rows of one row group."""
        to = _name_file(attempt, "merged")
        try:
            taken = do_each(self.location, partial(read, self.location), map(footers.resolve_path, paths))
            files = [pq.ParquetFile(pa.BufferReader(one)) for one in taken]
            if not all(is_plain(file.metadata) for file in files):
                return None
            try:
                whole = pa.unify_schemas([columns.plain_schema(file.schema_arrow.remove_metadata()) for file in files])
            except pa.ArrowException:
                return None
            return footers.write_tables(self.location, to, _take_groups(files, whole), whole)
        except (OSError, pa.ArrowException) as error:
            with suppress(OSError):
                delete(self.location, [to])
            raise EnvironmentFailed(
                f"Files of {self.location} could not be merged ({error}). They stay as they are, and the next maintenance "
                f"tries again"
            ) from error

    def rename(self, path: str, attempt: str, old: str, new: str) -> DataFile:
        """See `Files.rename`. Memory holds one row group at a time."""
        file, to = footers.resolve_path(path), _name_file(attempt, new)
        try:
            with pq.ParquetFile(file, filesystem=self._open()) as rows:
                schema = columns.plain_schema(rows.schema_arrow)
                return footers.write_tables(self.location, to, _rename_ids(rows, old, new), schema)
        except (OSError, pa.ArrowException) as error:
            raise EnvironmentFailed(
                f"{join(self.location, file)} cannot be read or rewritten ({error}), and the table names it. Bring it "
                f"back, or check the disk; then: rota rename {old} {new}"
            ) from error

    def _open(self) -> fs.FileSystem:
        return open_files(self.location)

    def _read(self, said: Mapping[str, Any]) -> pa.Table:
        try:
            with pq.ParquetFile(said["path"], filesystem=self._open()) as file:
                return columns.without_views(file.read())
        except (OSError, pa.ArrowInvalid) as error:
            raise self._explain_unreadable(said, error) from error

    def _explain_unreadable(self, said: Mapping[str, Any], error: Exception) -> EnvironmentFailed:
        of = f" ({span})" if (span := name_span(said)) else ""
        return EnvironmentFailed(
            f"{join(self.location, said['path'])} cannot be read ({error}), and the table names it. Nothing was replaced. "
            f"Bring it back; or remove it, call DeltaTable.repair(), then rota adopt, and replay all that was in it{of}"
        )


def is_plain(footer: pq.FileMetaData) -> bool:
    """Return whether all readers read the same dates and times from the file. With some settings, Spark writes INT96, whose
    range exceeds that of Delta's timestamps, or dates of the old calendar, which the footer states."""
    kinds = {footer.schema.column(i).physical_type for i in range(footer.num_columns)}
    return "INT96" not in kinds and not any(key.startswith(LEGACY) for key in footer.metadata or ())


def _take_groups(files: Iterable[pq.ParquetFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield all rows of the files, with this schema, as tables of `GROUP` bytes or more."""
    some: list[pa.Table] = []
    size = 0
    for file in files:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, use_threads=False)
            some.append(_under(rows, schema) if rows.schema.remove_metadata() != schema else rows)
            size += rows.nbytes
            if size >= GROUP:
                yield pa.concat_tables(some).combine_chunks()
                some, size = [], 0
    if some:
        yield pa.concat_tables(some).combine_chunks()


def _under(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    there = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(there, schema=schema)


def _name_file(attempt: str, folder: str) -> str:
    return f"data/{attempt}/{folder}/{uuid.uuid4().hex}.parquet"


def _read_first(files: fs.FileSystem, path: str, most: int) -> Rows:
    with pq.ParquetFile(path, pre_buffer=False, filesystem=files) as file:
        columns = [name for name in file.schema_arrow.names if name != PARTITION][:COLUMNS]
        for batch in file.iter_batches(most, columns=columns, use_threads=False):
            return tuple({name: _convert(batch[name][i]) for name in batch.schema.names} for i in range(batch.num_rows))
    return ()


def _convert(scalar: Any) -> object:
    """Return the value; as text if Python cannot represent it, such as a date of the year 10000."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        return str(scalar.cast(pa.string()))


def _within(rows: pa.Table, ranges: Ranges) -> pa.ChunkedArray:
    gone = pa.chunked_array([pa.array([False] * rows.num_rows, pa.bool_())])
    for partition, (start, end) in ranges.items():
        here = pc.and_(pc.greater_equal(rows[OFFSET], start), pc.less(rows[OFFSET], end))
        gone = pc.or_(gone, pc.and_(pc.equal(rows[PARTITION], partition), here))
    return pc.fill_null(gone, False)


def _rename_ids(file: pq.ParquetFile, old: str, new: str) -> Iterator[pa.Table]:
    at = file.schema_arrow.get_field_index(PARTITION)
    for group in range(file.num_row_groups):
        rows = columns.without_views(file.read_row_group(group))
        yield rows.set_column(at, rows.field(at), _ids(rows[at], old, new))


def _ids(column: pa.ChunkedArray, old: str, new: str) -> pa.ChunkedArray:
    there = pc.unique(column)
    names = pa.array([rename_id(p, old, new) if p is not None else None for p in there.to_pylist()], column.type)
    return pc.take(names, pc.index_in(column, there))
