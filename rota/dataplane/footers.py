"""Reads counts, statistics and columns of written Parquet files from their footers, without their data.

Law: a file is refused before any commit if its rows are not all of one partition, or lie outside that partition's
range.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane import names
from rota.deltalog.parquet import describe_statistics, write_parquet
from rota.errors import BadTransform, EnvironmentFailed
from rota.ledger.values import DataFile
from rota.record import OFFSET, PARTITION
from rota.stores import is_url, make_folder, open_files

SPARK = b"org.apache.spark.sql.parquet.row.metadata"
CALENDAR = {"org.apache.spark.version": "4.3.0"}  # without it, Spark 3 reads no date of the old calendar
NO_PARTITION = (
    f"The transform made rows without {PARTITION}, or with an {OFFSET} that this batch does not have. Keep both columns "
    f"unchanged"
)


def check_ranges(files: Iterable[DataFile], ranges: Mapping[str, tuple[int, int]]) -> None:
    """Raise BadTransform for a row of a foreign partition or offset."""
    for file in files:
        _within(file, ranges)


def check_there(table: str, files: Sequence[DataFile]) -> None:
    """Raise EnvironmentFailed if this process sees another size of a written file: Spark may use another disk. Buckets are
    not checked."""
    if is_url(table):
        return
    there = open_files(table)
    with ThreadPoolExecutor(8) as pool:
        sizes = pool.map(lambda file: there.get_file_info(file.path).size, files)
        for file, size in zip(files, sizes, strict=True):
            if size != file.size:
                found = "is not there" if size is None else f"has {size} bytes"
                raise EnvironmentFailed(
                    f"A file that Spark wrote cannot be read: {file.path} of {file.size} bytes {found}. Check that the run "
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
    info = files.get_file_info(path)
    return describe_file(path, pq.read_metadata(path, filesystem=files), info.size, info.mtime_ns // 1_000_000)


def write_file(table: str, path: str, rows: pa.Table) -> DataFile:
    """Write the rows into a new file of the table at this location; its folder names the partition. Raises OSError."""
    return write_tables(table, path, [rows], rows.schema)


def write_tables(table: str, path: str, tables: Iterable[pa.Table], schema: pa.Schema) -> DataFile:
    """Do as `write_file`, with the rows of several tables. Raises OSError, ArrowException."""
    make_folder(table, path.rpartition("/")[0])
    footer, size = write_parquet(open_files(table), path, tables, schema, CALENDAR)
    return describe_file(path, footer, size, int(time.time() * 1000))


def describe_file(path: str, footer: Any, size: int, modified: int) -> DataFile:
    """Return the entry of a commit for a file with this footer; `modified` is in ms."""
    columns = (footer.metadata or {}).get(SPARK, b"{}").decode()
    return DataFile(
        path=path,
        partition=names.partition(path.split("/")[-2]) if "/" in path else "",  # another program's
        size=size,
        rows=footer.num_rows,
        modified=modified,
        statistics=describe_statistics(footer),
        columns=columns,
    )


def _within(file: DataFile, ranges: Mapping[str, tuple[int, int]]) -> None:
    if file.partition not in ranges:
        raise BadTransform(
            f"The transform made rows of partition {file.partition!r}, which this batch does not have. Keep {PARTITION} "
            f"unchanged"
        )
    statistics = json.loads(file.statistics)
    low, high = statistics["minValues"], statistics["maxValues"]
    start, end = ranges[file.partition]
    if not low.get(PARTITION, file.partition) == file.partition == high.get(PARTITION, file.partition):
        raise EnvironmentFailed(
            f"{file.path} of {file.partition} holds rows of another partition. Nothing was committed"
        )
    if not start <= low.get(OFFSET, -1) <= high.get(OFFSET, end) < end or statistics["nullCount"].get(OFFSET):
        raise BadTransform(
            f"The transform gave rows of {file.partition} offsets outside [{start}, {end}). Keep {OFFSET} unchanged",
            partition=file.partition,
        )
