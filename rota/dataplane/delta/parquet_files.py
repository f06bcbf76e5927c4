"""The data files of a Delta table: Parquet, in a folder. See `rota.ledger.port.Files`."""

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rota.dataplane import columns, footers, names
from rota.errors import EnvironmentFailed
from rota.ids import rename_id
from rota.ledger.port import Rows
from rota.ledger.values import DataFile, Ranges
from rota.record import OFFSET, PARTITION

COLUMNS = 30  # of a row that is shown
LEGACY = b"org.apache.spark.legacy"


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Those below `folder`."""

    folder: Path

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        return (self.folder / path).exists()

    def read_first(self, paths: Iterable[str], partitions: Iterable[str], most: int) -> dict[str, Rows]:
        """See `Files.read_first`."""
        files = {Path(path).parent.name: path for path in sorted(paths, reverse=True)}
        found: dict[str, Rows] = {}
        for partition in partitions:
            if path := files.get(names.split(partition)):
                with suppress(OSError, ValueError, OverflowError, LookupError, pa.ArrowException):
                    found[partition] = _read_first(self.folder / path, most)
        return found

    def count_rows(self, path: str) -> dict[str, int]:
        """See `Files.count_rows`."""
        column = pq.ParquetFile(self.folder / path).read(columns=[PARTITION])[PARTITION]
        return {one["values"]: one["counts"] for one in pc.value_counts(column).to_pylist()}

    def is_plain(self, path: str) -> bool:
        """See `Files.is_plain`. INT96 holds times that delta-rs cannot, and what Spark wrote by its old calendar says so in
        the footer, which delta-rs drops; both are settings that a pipeline may choose."""
        said = pq.read_metadata(footers.resolve_path(self.folder, path))
        kinds = {said.schema.column(i).physical_type for i in range(said.num_columns)}
        return "INT96" not in kinds and not any(key.startswith(LEGACY) for key in said.metadata or ())

    def discard(self, files: Iterable[DataFile]) -> None:
        """See `Files.discard`."""
        for file in files:
            (self.folder / file.path).unlink(missing_ok=True)

    def cut(self, said: Mapping[str, Any], ranges: Ranges, attempt: str) -> tuple[DataFile, ...] | None:
        """See `Files.cut`."""
        rows = _read(self.folder / said["path"], said)
        gone = _within(rows, ranges)
        if not pc.any(gone).as_py():
            return None
        left = rows.filter(pc.invert(gone))
        if not left.num_rows:
            return ()
        path = self._name_file(attempt, "kept")
        pq.write_table(left, path)
        return (footers.read_footer(self.folder, path),)

    def rename(self, path: str, attempt: str, old: str, new: str) -> DataFile:
        """See `Files.rename`; a row group at a time."""
        file, to = footers.resolve_path(self.folder, path), self._name_file(attempt, new)
        try:
            with pq.ParquetFile(file) as rows, pq.ParquetWriter(to, rows.schema_arrow) as out:
                at = rows.schema_arrow.get_field_index(PARTITION)
                for group in range(rows.num_row_groups):
                    some = rows.read_row_group(group)
                    out.write_table(some.set_column(at, some.field(at), _ids(some[at], old, new)))
        except (OSError, pa.ArrowException) as error:
            raise EnvironmentFailed(
                f"{file} cannot be read or written anew ({error}), and the table names it. Bring it back, or check the "
                f"disk; then: rota rename {old} {new}"
            ) from error
        return footers.read_footer(self.folder, to)

    def _name_file(self, attempt: str, folder: str) -> Path:
        place = self.folder / "data" / attempt / folder
        place.mkdir(parents=True, exist_ok=True)
        return place / f"{uuid.uuid4().hex}.parquet"


def _read(file: Path, said: Mapping[str, Any]) -> pa.Table:
    try:
        return columns.without_views(pq.ParquetFile(file).read())
    except (OSError, pa.ArrowInvalid) as error:
        low, high, first, last = (said.get(f"{end}.{c}") for c in (PARTITION, OFFSET) for end in ("min", "max"))
        of = ""
        if isinstance(low, str) and isinstance(last, int):  # a long id is in no statistic
            of = f" (of {low if low == high else f'{low} to {high}'}: {first} to {last + 1})"
        raise EnvironmentFailed(
            f"{file} cannot be read ({error}), and the table names it. Nothing was replaced. Bring it back; or remove it, "
            f"call DeltaTable.repair(), then rota adopt, and replay all that stood in it{of}"
        ) from error


def _read_first(path: Path, most: int) -> Rows:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        columns = [name for name in file.schema_arrow.names if name != PARTITION][:COLUMNS]
        for batch in file.iter_batches(most, columns=columns, use_threads=False):
            return tuple({name: _convert(batch[name][i]) for name in batch.schema.names} for i in range(batch.num_rows))
    return ()


def _convert(scalar: Any) -> object:
    """The value in Python; its text where Python has none, such as a date of the year 10000."""
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


def _ids(column: pa.ChunkedArray, old: str, new: str) -> pa.ChunkedArray:
    there = pc.unique(column)
    names = pa.array([rename_id(p, old, new) if p is not None else None for p in there.to_pylist()], column.type)
    return pc.take(names, pc.index_in(column, there))
