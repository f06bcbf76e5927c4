"""How a task of Spark writes its rows into a bucket. It runs where Spark's workers do and is sent there as code: it needs
pyarrow there, and nothing of rota.

Law: a task writes one file at a time, each under a name that nobody else has; its rows come sorted, so that one file has all
rows of one partition. A file is there as a whole or not at all. Only what the tasks that went through say of their files is
ever used: what a task wrote that failed, or ran a second time, is named by nobody.
"""

import io
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

SAID = "path string, partition string, size bigint, modified bigint, footer binary"  # what a task says of each of its files
GROUP = 64 << 20  # bytes in memory of a row group
NOBODYS = "none"  # the folder of rows without a partition: no store has one without a name
Batches = Iterable[pa.RecordBatch]


def make_writer(
    folder: str,
    open_files: Callable[[], fs.FileSystem],
    metadata: Mapping[str, str],
    columns: Sequence[str],
    by: str,
    partition: str,
    name: Callable[[str], str],
    once: int | None,
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` runs: of rows that are sorted by the number `by` it makes files below `folder` (bucket and prefix),
    each in the folder that `name` makes of its partition, and gives what `SAID` says of them. `open_files` opens the store,
    `metadata` goes into each footer; `columns` is what the columns are called that come. `once`: bytes of texts of a column
    that are each stored once."""

    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        with _as_environment():
            files = open_files()
        one: _File | None = None
        for batch in batches:
            for number, rows in _part(batch.rename_columns(columns), by):
                if one is None or one.number != number:
                    if one is not None:
                        yield one.close()
                    of = rows.column(partition)[0].as_py()
                    within = name(of) if of else NOBODYS  # whoever reads what is said refuses it
                    path = f"{folder}/{within}/{uuid.uuid4().hex}.parquet"
                    one = _File(files, path, number, of, rows.schema.remove_metadata(), metadata, once)
                one.add(rows)
        if one is not None:
            yield one.close()

    return write


def _part(batch: pa.RecordBatch, by: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch in its runs of one number, without the column of it."""
    numbers = batch.column(by)
    rest = batch.drop_columns([by])
    ends = pc.run_end_encode(numbers)
    start = 0
    for number, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        yield number, rest.slice(start, end - start)
        start = end


@contextmanager
def _as_environment() -> Iterator[None]:
    """What the store says is nobody's data and no transform's fault: it is said in the words of a disk that fails. Of Azure
    Arrow says some as an unknown error, which has no class of its own; what it says of data has."""
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
        path: str,
        number: int,
        of: str | None,
        schema: pa.Schema,
        metadata: Mapping[str, str],
        once: int | None,
    ) -> None:
        self.path, self.number, self._of, self._schema = path, number, of, schema
        self._footer: list[Any] = []
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0
        with _as_environment():
            self._file = files.open_output_stream(path)
        # As Spark's own writer does it: no schema of Arrow's, and a decimal is an integer where it fits into one.
        more = {} if once is None else {"dictionary_pagesize_limit": once}
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            store_schema=False,
            store_decimal_as_integer=True,
            metadata_collector=self._footer,
            **more,
        )
        self._writer.add_key_value_metadata(dict(metadata))

    def add(self, rows: pa.RecordBatch) -> None:
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= GROUP:
            self._flush()

    def close(self) -> pa.RecordBatch:
        """Publishes the file, and says it."""
        self._flush()
        with _as_environment():
            self._writer.close()
            size = self._file.tell()
            self._file.close()
        kept = io.BytesIO()
        self._footer[0].write_metadata_file(kept)
        said = [[self.path], [self._of], [size], [int(time.time() * 1000)], [kept.getvalue()]]
        kinds = [pa.string(), pa.string(), pa.int64(), pa.int64(), pa.binary()]
        columns = [pa.array(one, kind) for one, kind in zip(said, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=["path", "partition", "size", "modified", "footer"])

    def _flush(self) -> None:
        if self._rows:
            table = pa.Table.from_batches([one.replace_schema_metadata(None) for one in self._rows], self._schema)
            with _as_environment():
                self._writer.write_table(table, row_group_size=table.num_rows)
            self._rows, self._bytes = [], 0
