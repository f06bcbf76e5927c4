"""Counts, statistics and columns of written Parquet files, from their footers, without a pass over the data.

Law: a file is refused before any commit if its rows are not all of one partition, or lie outside that partition's
range. Statistics are given only if Parquet's order is the reader's and JSON has the value: whole numbers, dates of the
years 1 to 9999, short strings. Readers can still read a column without statistics.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane import names
from rota.errors import BadTransform, EnvironmentFailed
from rota.ledger.values import DataFile
from rota.record import OFFSET, PARTITION
from rota.stores import is_url, make_folder, open_files

SPARK = b"org.apache.spark.sql.parquet.row.metadata"
CALENDAR = {"org.apache.spark.version": "4.3.0"}  # a Spark 3 reads no old date where a footer does not say whose it is
NO_PARTITION = (
    f"The transform made rows without {PARTITION}, or of one with an {OFFSET} that this batch does not hold. Keep both as "
    f"they come"
)
MAX_STATISTIC = 64  # characters of a string in statistics


def check_ranges(files: Iterable[DataFile], ranges: Mapping[str, tuple[int, int]]) -> None:
    """Raise BadTransform for a row of a foreign partition or offset."""
    for file in files:
        _within(file, ranges)


def check_there(table: str, files: Sequence[DataFile]) -> None:
    """Raise EnvironmentFailed if a written file differs here: Spark may use another disk. Buckets are not checked."""
    if is_url(table):
        return
    there = open_files(table)
    with ThreadPoolExecutor(8) as pool:
        sizes = pool.map(lambda file: there.get_file_info(file.path).size, files)
        for file, size in zip(files, sizes, strict=True):
            if size != file.size:
                found = "is not there" if size is None else f"has {size} bytes"
                raise EnvironmentFailed(
                    f"What Spark wrote cannot be read: {file.path} of {file.size} bytes {found}. Check that the run "
                    f"sees {table}"
                )


def resolve_path(uri: str) -> str:
    """Return the path of a file below the table; delta-rs gives it as part of a URL."""
    return unquote(uri.rpartition("://")[2])


def read_footer(table: str, path: str) -> DataFile:
    """Return one written file of the table at this location; its folder names the partition. Raises OSError,
    ArrowException.
    """
    files = open_files(table)
    said = files.get_file_info(path)
    return describe_file(path, pq.read_metadata(path, filesystem=files), said.size, said.mtime_ns // 1_000_000)


def write_file(table: str, path: str, rows: pa.Table) -> DataFile:
    """Write the rows into a new file of the table at this location; its folder names the partition. Raises OSError."""
    make_folder(table, path.rpartition("/")[0])
    footer: list[Any] = []
    with open_files(table).open_output_stream(path) as file:
        with pq.ParquetWriter(file, rows.schema, metadata_collector=footer, write_page_checksum=True) as out:
            out.add_key_value_metadata(CALENDAR)
            out.write_table(rows)
        size = int(file.tell())
    return describe_file(path, footer[0], size, int(time.time() * 1000))


def describe_file(path: str, footer: Any, size: int, modified: int) -> DataFile:
    """Return the entry of a commit for a file with this footer; `modified` is in ms."""
    columns = (footer.metadata or {}).get(SPARK, b"{}").decode()
    return DataFile(
        path=path,
        partition=names.partition(path.split("/")[-2]) if "/" in path else "",  # another program's
        size=size,
        rows=footer.num_rows,
        modified=modified,
        statistics=json.dumps({"numRecords": footer.num_rows, **_statistics(footer)}),
        columns=columns,
    )


def _within(file: DataFile, ranges: Mapping[str, tuple[int, int]]) -> None:
    if file.partition not in ranges:
        raise BadTransform(
            f"The transform made rows of partition {file.partition!r}, which this batch does not hold. Keep {PARTITION} as "
            f"it comes"
        )
    said = json.loads(file.statistics)
    low, high = said["minValues"], said["maxValues"]
    start, end = ranges[file.partition]
    if not low.get(PARTITION, file.partition) == file.partition == high.get(PARTITION, file.partition):
        raise EnvironmentFailed(
            f"{file.path} of {file.partition} holds rows of another partition. Nothing was committed"
        )
    if not start <= low.get(OFFSET, -1) <= high.get(OFFSET, end) < end or said["nullCount"].get(OFFSET):
        raise BadTransform(
            f"The transform gave rows of {file.partition} offsets outside [{start}, {end}). Keep {OFFSET} as it comes",
            partition=file.partition,
        )


def _statistics(footer: Any) -> dict[str, dict[str, Any]]:
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, groups in _columns(footer):
        if not all(s is not None and s.has_null_count for s in groups):
            continue
        nulls[name] = sum(s.null_count for s in groups)
        bounds = _bounds(groups)
        if bounds and len(bounds) == sum(1 for s in groups if s.num_values) and all(map(_plain, bounds)):
            low[name], high[name] = _shown(min(b[0] for b in bounds)), _shown(max(b[1] for b in bounds))
    return {"minValues": low, "maxValues": high, "nullCount": nulls}


def _bounds(groups: list[Any]) -> list[tuple[Any, Any]]:
    """Return the least and greatest value of each row group; None if Python has no such value: a date of the year 10000
    or 0, or text that is not UTF-8.
    """
    try:
        return [(s.min, s.max) for s in groups if s.has_min_max]
    except (OverflowError, ValueError, pa.ArrowException):
        return []


def _columns(footer: Any) -> Iterator[tuple[str, list[Any]]]:
    """Return each column that is not part of a nested one, with the statistics of its row groups."""
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    for i in range(footer.num_columns):
        column = footer.schema.column(i)
        if column.path == column.name and column.max_repetition_level == 0:
            yield column.name, [g.column(i).statistics for g in groups]


def _plain(bounds: tuple[Any, Any]) -> bool:
    return all((type(v) is int) or type(v) is date or (isinstance(v, str) and len(v) <= MAX_STATISTIC) for v in bounds)


def _shown(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
