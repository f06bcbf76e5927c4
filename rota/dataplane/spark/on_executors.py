"""Write the rows of a Spark task to a disk or into a bucket. Spark's executors receive this code and
`rota.deltalog.parquet`; both need pyarrow there, and no installed rota.

Law: a file has rows of one partition alone, in the order in which they came, and a unique name. A commit uses only the
files that successful tasks report. It never names a file of a task that failed or ran a second time.

Law: no file has a text that is not UTF-8, or a map with a null key or with one key twice, at any depth: such a value makes
its column unreadable for all readers. The task fails with UnreadableError, which names the column. The check takes 7 to 9
ns a text (200,000 texts of 26 bytes); a row of Parquet takes some 340 ns from file to table.

Law: a task holds at most `HELD` bytes of rows, besides the last batch, and `OPEN` files. At `HELD` bytes it writes all
rows: a row that stayed would keep its whole batch in memory. A partition whose file was closed gets another one.
"""

import io
import json
import struct
import time
import uuid
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from rota.deltalog.parquet import ParquetWriter

SAID = "said"  # the column with the report of each file; see `read_said`
HELD = 64 << 20
OPEN = 16  # files; each buffers up to 10 MB for a bucket
FIRST = 20_000  # rows of the first page of Parquet for Java
SLICE = 256  # bytes of overhead for a column of a run
NOBODYS = "none"  # the folder of rows without a partition: a folder needs a name
Batches = Iterable[pa.RecordBatch]


class UnreadableError(ValueError):
    """A column has a value that readers of the table could not read."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Restores partition and offset of rows that come with one number for both, in the column `offset`. `numbers`: number
    -> partition, offset. `nullable`: whether the schema of the file allows null for them."""

    offset: str
    numbers: Mapping[int, tuple[str, int]]
    nullable: tuple[bool, bool]

    def part(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yield each partition with its rows of the batch and their offsets; None with the rows of unknown numbers."""
        runs = pc.run_end_encode(batch.column(self.offset))
        found = [self.numbers.get(one, (None, 0)) for one in runs.values.to_pylist()]
        offsets = _spread(runs.run_ends, "q", (offset for _, offset in found))
        at, field = batch.schema.get_field_index(self.offset), pa.field(self.offset, offsets.type, self.nullable[1])
        yield from _gather(batch.set_column(at, field, offsets), runs.run_ends, [of for of, _ in found])

    def add_partition(self, rows: pa.Table, at: int, name: str, partition: str | None) -> pa.Table:
        """Return the rows, with the partition as a column at this place."""
        column = _repeat(partition or "", len(rows))
        return rows.add_column(at, pa.field(name, column.type, self.nullable[0]), column)


def make_writer(
    folder: str,
    open_files: Callable[[], fs.FileSystem],
    metadata: Mapping[str, str],
    columns: Sequence[str],
    partition: str,
    name: Callable[[str], str],
    once: int | None,
    origins: Origins | None = None,
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow`: it writes rows into files below `folder` and yields a report of each as `SAID`.

    Args:
        folder: where the files go, each in the folder that `name` returns for its partition.
        open_files: opens the store.
        metadata: is written into each footer.
        columns: the names of the columns.
        partition: the name of the column with the partition.
        name: returns the folder's name for a partition.
        once: bytes of a column's texts that are each stored once; None: the writer chooses the columns with a dictionary.
        origins: restores the origins of rows that come with one number for partition and offset; None: rows have both.
    """

    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        with as_environment():
            files = open_files()
        opened: dict[str | None, _File] = {}  # in the order of the last write
        held: dict[str | None, list[pa.RecordBatch]] = {}
        size, repeated = 0, Repeated()
        coming = [one for one in columns if origins is None or one != partition]

        def flush() -> Iterator[pa.RecordBatch]:
            for of, rows in held.items():
                table, one = pa.Table.from_batches(rows), opened.pop(of, None)
                if origins is not None:
                    table = origins.add_partition(table, columns.index(partition), partition, of)
                if one is None:
                    within = name(of) if of else NOBODYS  # the reader of the report refuses it
                    kept: dict[str, Any] = (
                        {"use_dictionary": repeated.choose(table)}
                        if once is None
                        else {"dictionary_pagesize_limit": once}
                    )
                    one = _File(files, f"{folder}/{within}", of, table.schema, metadata, kept)
                opened[of] = one
                one.write(table)
                if len(opened) > OPEN:
                    yield opened.pop(next(iter(opened))).close()

        for batch in batches:
            rows = batch.rename_columns(coming).replace_schema_metadata(None)
            check_readable(rows)
            for of, run in _part(rows, partition) if origins is None else origins.part(rows):
                held.setdefault(of, []).append(run)
                size += SLICE * len(columns)
            size += batch.nbytes
            if size >= HELD:
                yield from flush()
                held, size = {}, 0
        yield from flush()
        for one in opened.values():
            yield one.close()

    return write


def write_directly(
    read: Callable[[Batches], Batches],
    write: Callable[[Batches], Batches],
    refused: type[Exception],
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that passes the batches of `read` to `write`.

    At its end it reports how many rows it passed, or why, if `read` raised `refused`.
    """

    def work(shares: Batches) -> Iterator[pa.RecordBatch]:
        rows = 0

        def pass_on() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in read(shares):
                rows += len(batch)
                yield batch

        try:
            yield from write(pass_on())
        except refused as error:
            yield _tell(json.dumps({"refused": str(error)}).encode())
        else:
            yield _tell(json.dumps({"rows": rows}).encode())

    return work


def check_readable(batch: pa.RecordBatch) -> None:
    """Raise UnreadableError for a text that is not UTF-8, and for a map with a null key or a key that occurs twice."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not _holds_texts(column.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            raise UnreadableError(
                f"column {name} has a text that is not UTF-8, and no reader of the table could read the column. Write it "
                f"as UTF-8, or declare it as binary"
            ) from None
        if pa.types.is_nested(column.type) and (why := _explain_keys(column)):
            raise UnreadableError(
                f"column {name} has a map with {why}, which readers of the table refuse. Write each key once"
            )


def _holds_texts(kind: pa.DataType) -> bool:
    """Whether the type is, or contains, a text or a map."""
    if pa.types.is_nested(kind):
        return pa.types.is_map(kind) or any(_holds_texts(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _explain_keys(column: pa.Array) -> str:
    """Return the fault in the keys of a map, at any depth; empty without a fault."""
    kind = column.type
    if pa.types.is_struct(kind):
        return next(filter(None, map(_explain_keys, column.flatten())), "")
    if pa.types.is_map(kind):
        keys = pa.ListArray.from_arrays(column.offsets, column.keys)
        items = pa.ListArray.from_arrays(column.offsets, column.items)
        return _explain_repeated(keys) or _explain_keys(keys.flatten()) or _explain_keys(items.flatten())
    return _explain_keys(column.flatten()) if pa.types.is_nested(kind) else ""


def _explain_repeated(lists: pa.Array) -> str:
    keys = lists.flatten()
    if keys.null_count:
        return "a null key"
    if pa.types.is_nested(keys.type):  # Arrow compares no nested values
        return (
            "one key twice" if any(len(set(map(repr, one or ()))) < len(one or ()) for one in lists.to_pylist()) else ""
        )
    known = keys.dictionary_encode()
    place = pc.multiply(pc.list_parent_indices(lists).cast(pa.int64()), max(1, len(known.dictionary)))
    found = pc.count_distinct(pc.add(place, known.indices.cast(pa.int64())))
    return "one key twice" if found.as_py() < len(keys) else ""


def _part(batch: pa.RecordBatch, by: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield each value of the column `by` with its rows."""
    runs = pc.run_end_encode(batch.column(by))
    yield from _gather(batch, runs.run_ends, runs.values.to_pylist())


def _gather(batch: pa.RecordBatch, ends: pa.Array, values: Sequence[Any]) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield each value with its rows of the batch. `values` and `ends`: value and end of each run of rows."""
    places: dict[Any, int] = {}
    order = [places.setdefault(one, len(places)) for one in values]
    sizes, start = dict.fromkeys(places, 0), 0
    for value, end in zip(values, ends.to_pylist(), strict=True):
        sizes[value], start = sizes[value] + end - start, end
    if order != sorted(order):
        batch = batch.take(pc.sort_indices(_spread(ends, "i", order)))
    start = 0
    for value, size in sizes.items():
        yield value, batch.slice(start, size)
        start += size


def _spread(ends: pa.Array, code: str, values: Iterable[int]) -> pa.Array:
    """Return an array that repeats each value up to the end of its run."""
    kept = array(code, values)
    one = pa.Array.from_buffers({"i": pa.int32(), "q": pa.int64()}[code], len(kept), [None, pa.py_buffer(kept)])
    kind, rows = pa.run_end_encoded(ends.type, one.type), ends[-1].as_py() if len(ends) else 0
    # `from_arrays` would import pandas: see `_hold`.
    return pc.run_end_decode(pa.RunEndEncodedArray.from_buffers(kind, rows, [None], 0, 0, [ends, one]))


@contextmanager
def as_environment() -> Iterator[None]:
    """Raise an error of the store as that of a disk that fails: neither the data nor the transform is at fault.

    Arrow reports some errors of Azure as an unknown error, which has no class of its own; its errors of data have one.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if not isinstance(error, OSError) and type(error) is not pa.ArrowException:
            raise
        raise OSError(f"Input/output error: {error}") from None


class _File:
    """A file that is being written."""

    def __init__(
        self,
        files: fs.FileSystem,
        folder: str,
        of: str | None,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        kept: Mapping[str, Any],
    ) -> None:
        """`kept`: the arguments of Arrow's writer that choose dictionaries."""
        self._path, self._of = f"{folder}/{uuid.uuid4().hex}.parquet", of
        with as_environment():
            if isinstance(files, fs.LocalFileSystem):  # a bucket has no folders
                files.create_dir(folder, recursive=True)
            # As Spark's own writer does it: no schema of Arrow's, and a decimal is an integer where it fits into one.
            spark = {"store_schema": False, "store_decimal_as_integer": True}
            self._writer = ParquetWriter(files, self._path, schema, metadata, **spark, **kept)

    def write(self, rows: pa.Table) -> None:
        """Write a row group."""
        with as_environment():
            self._writer.write(rows, len(rows))

    def close(self) -> pa.RecordBatch:
        """Publish the file, and return its report."""
        with as_environment():
            footer, size = self._writer.close()
        kept = io.BytesIO()
        footer.write_metadata_file(kept)
        said = {"path": self._path, "partition": self._of, "size": size, "modified": int(time.time() * 1000)}
        return _tell(json.dumps({**said, "footer": kept.getvalue().hex()}).encode())


class Repeated:
    """Chooses the columns that a dictionary makes smaller, as Parquet for Java does after a first page. Otherwise Arrow
    would look up each value of a row group until the dictionary has 1 MB: two fifths of the time of a task's Python, if few
    values repeat. The choice is made once a task, or for each file while files are small. With a nested column, all columns
    have a dictionary."""

    def __init__(self) -> None:
        self.chosen: bool | list[str] | None = None

    def choose(self, rows: pa.Table) -> bool | list[str]:
        """Return the argument of Arrow's writer for a file with these first rows."""
        if self.chosen is not None:
            return self.chosen
        if any(pa.types.is_nested(one.type) for one in rows.schema):
            return True
        first = rows.slice(0, FIRST)
        found = [name for name, one in zip(first.column_names, first.columns, strict=True) if _is_repeated(one)]
        self.chosen = found if len(first) == FIRST else None
        return found


def _is_repeated(column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type):
        return True
    distinct, size, rows = pc.count_distinct(column, "all").as_py(), column.nbytes, len(column)
    return bool(distinct * size / rows + rows * distinct.bit_length() / 8 < size)


def _tell(said: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_hold(said, pa.binary())], names=[SAID])


def _repeat(text: str, count: int) -> pa.DictionaryArray:
    """Return the text in so many rows, as Parquet stores it, without a comparison of each row."""
    zeros = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])
    return pa.DictionaryArray.from_arrays(zeros, _hold(text.encode(), pa.string()))


def _hold(data: bytes, kind: pa.DataType) -> pa.Array:
    """Return an array of one value. `pa.array` would import pandas: 0.3 of the 0.7 CPU seconds of a new Python."""
    ends = pa.py_buffer(struct.pack("=ii", 0, len(data)))
    return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(data)])


def read_said(said: bytes) -> dict[str, Any]:
    """Return a file's report: `path` in the store, `partition`, `size`, `modified` in ms, and the Parquet `footer`.

    At the end of a task of `write_directly` it is `rows` or `refused`.
    """
    found: dict[str, Any] = json.loads(said)
    return {**found, "footer": bytes.fromhex(found["footer"])} if "footer" in found else found
