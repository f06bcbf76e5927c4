"""Write the rows of a Spark job below a table, before a commit names them: a folder for each partition.

Law: `write` returns all files that the job wrote and readers will read. The tasks report them and, on a disk, this process
sees them.

Law: Spark passes a task's Python at most `AT_ONCE` bytes of texts, or one row, at a time. Spark's own limit measures the
batch again after each row, which takes longer than to write the row (5M rows of Parquet, read and written: 6.7 CPU seconds,
and 2.9 without; plain Spark 2.8). So for a table of at most `COUNTED_COLUMNS` without nested texts, Spark counts `ROWS`
rows, and an expression measures the texts of each row. A row wider than its share ends the job (WideRow); the caller
repeats the job with Spark's limit. Of a wider table, numbers alone may exceed `AT_ONCE`: Spark's limit applies.

Law: if the plan shows that rows are of the job's offsets, they are passed with one hash of partition and offset instead of
both columns. If two hashes are equal, or there are more than `NUMBERED`, rows keep both columns. The hash saves a twelfth
of a row's CPU time on this way (8M rows of Parquet: 2.69 CPU seconds instead of 2.93). If Spark has the name of each row's
file, it passes the CRC of the name, and looks up neither column (7 ns a row; `xxhash64` of the name takes 18).
"""

import io
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from rota import stores
from rota.dataplane import footers, names
from rota.dataplane.formats.plain_json import NotPlain
from rota.dataplane.spark import on_executors, parsing
from rota.dataplane.spark.spark_source import DirectJob
from rota.deltalog import parquet
from rota.errors import BadTransform, EnvironmentFailed
from rota.ledger.values import DataFile, Ranges
from rota.record import OFFSET, PARTITION
from rota.stores import describe_to_executors, hide_credentials, join, name_inside, open_executors_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

Origin = tuple[str, int]  # a partition and an offset
ONCE = 1 << 28  # bytes of texts that rows share, each stored once
ROWS, AT_ONCE = 8192, 1 << 26
COUNTED_COLUMNS = 512  # `ROWS` rows of so many numbers, of 16 bytes at most, have `AT_ONCE` bytes
COUNTED = {  # 2147483647 turns the measurement off
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
WIDE = "rota: a row is wider than its share"
FOREIGN = (
    "Spark read what is not of this job. Nothing of it was committed; it is tried again. If it comes back, land files "
    "under names of letters, digits, -, _ and . alone"
)
READ_AT_ONCE = 1 << 20  # values of a batch of Spark's Parquet reader, which allocates memory for all columns at once
READER = "spark.sql.parquet.columnarReaderBatchSize"
NUMBERED = 10_000  # maximum of a job's offsets: enough for files, not for messages


class WideRow(Exception):
    """A row has more bytes of texts than its share."""


def write(
    frame: "DataFrame",
    table: str,
    folder: str,
    *,
    counted: bool = False,
    shared: bool = False,
    known: Ranges | None = None,
    named: Mapping[str, Origin] | None = None,
) -> tuple[DataFile, ...]:
    """Write a frame into `folder` of the table at this location, and return the files.

    Args:
        counted: nothing in the frame's plan calls Python, so that Spark may limit a batch by its rows.
        shared: rows share long texts, each of which is stored once.
        known: the plan shows that each row is of one of these offsets, or of none.
        named: see `Records`; the plan goes row by row.

    Raises: BadTransform for a row without a partition, WideRow, EnvironmentFailed.
    """
    from pyspark.errors import PySparkException

    origins = _number_origins(frame, known or {}, named or {})
    make = _make_writer(frame.schema, table, folder, ONCE if shared else None, origins)
    wide = find_wide(frame, without=(PARTITION,) if origins else ()) if counted else None
    counted_rows = {} if wide is None else COUNTED
    settings = {**counted_rows, **_limit_reader(len(frame.columns))}
    rows = _select(frame, origins is not None, bool(named), wide)
    try:
        with _set(frame.sparkSession, settings):
            said = _collect(rows, make)
    except PySparkException as error:
        if counted_rows and WIDE in str(error):
            raise WideRow from error
        raise
    if not all(one["partition"] for one in said):
        raise EnvironmentFailed(FOREIGN) if origins and named else BadTransform(footers.NO_PARTITION)
    return _list_files(said, table)


def write_directly(job: DirectJob, table: str, folder: str) -> tuple[DataFile, ...]:
    """Write the records of a job without Spark's expressions, as `write` does. Its tasks read, decode and write.

    Law: each share is read by a task that reports how many rows it decoded, and the files hold as many.

    Raises: NotPlain, EnvironmentFailed.
    """
    write = _make_writer(job.kind, table, folder, None, None)
    said = _collect(job.shares, on_executors.write_directly(job.read, write, NotPlain))
    if refused := [one["refused"] for one in said if "refused" in one]:
        raise NotPlain(refused[0])
    read, written = ([one for one in said if (name in one)] for name in ("rows", "path"))
    files = _list_files(written, table)
    parsing.require_same(len(read), job.tasks, "tasks that ended", "were started")
    parsing.require_same(
        sum(one["rows"] for one in read), sum(f.rows for f in files), "records that tasks decoded", "the files hold"
    )
    return files


def _make_writer(
    kind: "StructType", table: str, folder: str, once: int | None, origins: on_executors.Origins | None
) -> Callable[[on_executors.Batches], Iterator[pa.RecordBatch]]:
    """Return the function of `on_executors.make_writer` for rows of this type."""
    from pyspark import cloudpickle

    hide_credentials()
    for module in (on_executors, names, stores, parquet):
        cloudpickle.register_pickle_by_value(module)
    return on_executors.make_writer(
        name_inside(join(table, folder)),
        partial(open_executors_files, describe_to_executors(table)),
        {footers.SPARK.decode(): kind.json(), **footers.CALENDAR},  # as Spark's own writer has it
        kind.names,
        PARTITION,
        names.split,
        once,
        origins,
    )


def _collect(
    rows: "DataFrame", make: Callable[[on_executors.Batches], Iterator[pa.RecordBatch]]
) -> list[dict[str, Any]]:
    """Run the job, and return the reports of its tasks."""
    from pyspark.sql import types as T  # noqa: N812

    reports = rows.mapInArrow(make, T.StructType([T.StructField(on_executors.SAID, T.BinaryType())])).collect()
    return [on_executors.read_said(row[on_executors.SAID]) for row in reports]


def _list_files(said: Iterable[Mapping[str, Any]], table: str) -> tuple[DataFile, ...]:
    """Return the reported files. Raises EnvironmentFailed if this process does not see one."""
    files = tuple(_describe(one, table) for one in sorted(said, key=lambda one: one["path"]))
    footers.check_there(table, files)
    return files


def _number_origins(frame: "DataFrame", ranges: Ranges, named: Mapping[str, Origin]) -> on_executors.Origins | None:
    """Return the hashes of all origins of the ranges; None for no origins or too many, or if two hashes are equal."""
    count = sum(end - start for start, end in ranges.values())
    if not 0 < count <= NUMBERED:
        return None
    numbers = {zlib.crc32(name.encode()): origin for name, origin in named.items()} or {
        number(p, offset): (p, offset) for p, (start, end) in ranges.items() for offset in range(start, end)
    }
    nullable = (frame.schema[PARTITION].nullable, frame.schema[OFFSET].nullable)
    return on_executors.Origins(OFFSET, numbers, nullable) if len(numbers) == count else None


def number(partition: str, offset: int) -> int:
    """Return Spark's `xxhash64` of both."""
    made = xxhash.xxh64_intdigest(struct.pack("<q", offset), xxhash.xxh64_intdigest(partition.encode(), 42))
    return made - (1 << 64) if made >> 63 else made


def find_wide(frame: "DataFrame", without: Collection[str]) -> "Column | None":
    """Return the condition that the texts of a row, but for these columns, exceed its share. None if texts may be nested,
    or the frame has more than `COUNTED_COLUMNS`."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    kinds = {f"c{n}": one.dataType for n, one in enumerate(frame.schema) if one.name not in without}
    texts = [name for name, kind in kinds.items() if isinstance(kind, T.StringType | T.BinaryType)]
    fixed = T.NumericType | T.BooleanType | T.DatetimeType
    if len(kinds) > COUNTED_COLUMNS or not all(isinstance(kinds[name], fixed) for name in kinds.keys() - texts):
        return None
    sizes = [F.coalesce(F.octet_length(name), F.lit(0)).cast("bigint") for name in texts]
    return add_sizes(sizes or [F.lit(0)]) > AT_ONCE // ROWS


def add_sizes(terms: "list[Column]") -> "Column":
    """Return the sum of the terms, by halves: Spark Connect refuses an expression that is nested 100 levels deep."""
    middle = len(terms) // 2
    return add_sizes(terms[:middle]) + add_sizes(terms[middle:]) if middle else terms[0]


def _select(frame: "DataFrame", numbered: bool, named: bool, wide: "Column | None") -> "DataFrame":
    """Return the frame with renamed columns, since Spark reads the name `a.b` as a path. A row that is `wide` fails the
    job. `numbered`: the offset is replaced by a hash of partition and offset, or of the file's name if `named`; the
    partition is left out."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = {name: F.col(f"c{n}") for n, name in enumerate(frame.columns)}
    plain = frame.toDF(*(f"c{n}" for n in range(len(columns))))
    last = columns[OFFSET]  # always read
    if numbered:
        both = columns.pop(PARTITION), last
        last = F.crc32(F.input_file_name().cast("binary")) if named else F.xxhash64(*both)
    if wide is not None:
        last = F.when(wide, F.raise_error(F.lit(WIDE)).cast("bigint")).otherwise(last)
    return plain.select(*{**columns, OFFSET: last.alias(OFFSET)}.values())


def _limit_reader(columns: int) -> dict[str, str]:
    """Return the setting that limits a batch of Spark's Parquet reader to `READ_AT_ONCE` values; none if its own 4096 rows
    have no more. 9,000 columns of texts would take 500 MB before the first row."""
    return {READER: str(max(1, READ_AT_ONCE // columns))} if columns * 4096 > READ_AT_ONCE else {}


@contextmanager
def _set(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Set these settings of the session while the context lasts. Then unset them, so that two threads of one session leave
    none behind, and Python that a transform calls has the server's settings."""
    from pyspark.errors import PySparkException

    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with suppress(PySparkException):  # Spark died: the caller reports the cause
            for name in settings:
                spark.conf.unset(name)


def _describe(said: Mapping[str, Any], table: str) -> DataFile:
    path = said["path"].removeprefix(name_inside(join(table, "")))
    return footers.describe_file(path, pq.read_metadata(io.BytesIO(said["footer"])), said["size"], said["modified"])
