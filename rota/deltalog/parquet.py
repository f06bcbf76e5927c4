"""Writes Parquet files. No other module of rota does.

The functions need pyarrow alone, so that Spark's tasks can get this module by value.

Law: only values that Parquet and readers order alike, and that JSON can represent, have statistics: whole numbers, dates of
the years 1 to 9999, short strings. Readers can read a column without statistics.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

MAX_STATISTIC = 64  # characters of a string in statistics


class ParquetWriter:
    """A Parquet file that is being written. `metadata` goes into its footer; `choices` are arguments of Arrow's writer.

    Each method raises OSError and ArrowException.
    """

    def __init__(
        self, files: fs.FileSystem, path: str, schema: pa.Schema, metadata: Mapping[str, str], **choices: Any
    ) -> None:
        self._footer: list[Any] = []
        self._file = files.open_output_stream(path)
        choices |= {"metadata_collector": self._footer, "write_page_checksum": True}
        self._writer = pq.ParquetWriter(self._file, schema, **choices)
        self._writer.add_key_value_metadata(dict(metadata))

    def write(self, rows: pa.Table, group: int | None = None) -> None:
        """Write the rows, in row groups of `group` rows."""
        self._writer.write_table(rows, row_group_size=group)

    def close(self) -> tuple[Any, int]:
        """Publish the file, and return its footer and its bytes."""
        self._writer.close()
        size = int(self._file.tell())
        self._file.close()
        return self._footer[0], size


def write_parquet(
    files: fs.FileSystem,
    path: str,
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    metadata: Mapping[str, str] = MappingProxyType({}),
    group: int | None = None,
    **choices: Any,
) -> tuple[Any, int]:
    """Write a file with the rows of the tables, and return its footer and its bytes. See `ParquetWriter`."""
    writer = ParquetWriter(files, path, schema, metadata, **choices)
    try:
        for rows in tables:
            writer.write(rows, group)
    finally:
        written = writer.close()
    return written


def describe_statistics(footer: Any) -> str:
    """Return the statistics of the file with this footer, JSON, as Delta states them."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, groups in _columns(footer):
        if not all(s is not None and s.has_null_count for s in groups):
            continue
        nulls[name] = sum(s.null_count for s in groups)
        bounds = _bounds(groups)
        if bounds and len(bounds) == sum(1 for s in groups if s.num_values) and all(map(_is_plain, bounds)):
            low[name], high[name] = _encode(min(b[0] for b in bounds)), _encode(max(b[1] for b in bounds))
    return json.dumps({"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _columns(footer: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield each column that is not part of a nested one, with the statistics of its row groups."""
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    for i in range(footer.num_columns):
        column = footer.schema.column(i)
        if column.path == column.name and column.max_repetition_level == 0:
            yield column.name, [g.column(i).statistics for g in groups]


def _bounds(groups: list[Any]) -> list[tuple[Any, Any]]:
    """Return the least and greatest value of each row group; empty if Python cannot represent one: a date of the year
    10000 or 0, or text that is not UTF-8."""
    try:
        return [(s.min, s.max) for s in groups if s.has_min_max]
    except (OverflowError, ValueError, pa.ArrowException):
        return []


def _is_plain(bounds: tuple[Any, Any]) -> bool:
    return all((type(v) is int) or type(v) is date or (isinstance(v, str) and len(v) <= MAX_STATISTIC) for v in bounds)


def _encode(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
