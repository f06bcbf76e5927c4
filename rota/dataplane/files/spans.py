"""Read the files of the index: the spans of each file, and its rows within requested ranges.

Law: `read_between` returns exactly the rows of a file that are in the ranges, in any order of the file. The order by
partition and ordinal only saves reads. A file never changes under its name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rota.deltalog.parquet import write_parquet
from rota.ledger.overlap import may_hold
from rota.stores import open_files

SCHEMA = pa.schema(
    [
        ("partition", pa.string()),
        ("ordinal", pa.int64()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modified", pa.int64()),
    ]
)
KEPT = 10_000  # rows of a row group; a file with at most so many is cached


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of the index at `location`. `spans`: for each partition the `count` of its rows, and the `first` and `last`
    ordinal. `kept`: the rows of the file, if they are few."""

    location: str
    path: str
    rows: int
    spans: pa.Table
    kept: pa.Table | None


def write_file(location: str, path: str, rows: pa.Table) -> int:
    """Write a file of the index, and return its bytes. Raises OSError."""
    return write_parquet(open_files(location), path, [rows], rows.schema, group=KEPT)[1]


def read_file(location: str, path: str) -> IndexFile:
    """Read a file's spans, and its rows if they are few. Raises OSError, ArrowInvalid."""
    with _open(location, path) as file:
        few = file.metadata.num_rows <= KEPT
        rows = file.read(SCHEMA.names if few else ["partition", "ordinal"])
    spans = rows.group_by("partition").aggregate([("ordinal", "count"), ("ordinal", "min"), ("ordinal", "max")])
    names = {"partition": "partition", "ordinal_count": "count", "ordinal_min": "first", "ordinal_max": "last"}
    spans = spans.select(list(names)).rename_columns(list(names.values()))
    return IndexFile(location, path, rows.num_rows, spans, rows if few else None)


def read_between(file: IndexFile, ranges: Mapping[str, tuple[int, int]], names: Sequence[str]) -> pa.Table | None:
    """Return columns of the rows whose ordinal is in the range [start, end) of their partition; None if the spans hold
    none. Raises OSError, ArrowInvalid."""
    wanted = _Wanted(ranges)
    overlap = wanted.mask(file.spans["partition"], file.spans["first"], file.spans["last"])
    here = file.spans["partition"].filter(overlap).to_pylist()
    if not here:
        return None
    columns = list(dict.fromkeys(["partition", "ordinal", *names]))
    if file.kept is not None:
        rows = file.kept.select(columns)
    else:
        with _open(file.location, file.path) as parquet:
            groups = _groups(parquet.metadata, {p: ranges[p] for p in here})
            rows = parquet.read_row_groups(groups, columns)
    return rows.filter(wanted.mask(rows["partition"], rows["ordinal"], rows["ordinal"])).select(list(names))


def find_times(file: IndexFile, times: pa.Array) -> Iterator[pa.RecordBatch]:
    """Yield the rows with one of these times. Raises OSError, ArrowInvalid."""
    if file.kept is not None:
        yield from _with_times(file.kept, times)
        return
    first, last = pc.min_max(times).as_py().values()
    with _open(file.location, file.path) as parquet:
        column = parquet.schema_arrow.get_field_index("modified")
        for number in range(parquet.metadata.num_row_groups):
            said = parquet.metadata.row_group(number).column(column).statistics
            if not (said and said.has_min_max) or (said.min <= last and said.max >= first):
                yield from _with_times(parquet.read_row_group(number, SCHEMA.names), times)


def _open(location: str, path: str) -> pq.ParquetFile:
    return pq.ParquetFile(path, filesystem=open_files(location))


def _with_times(rows: pa.Table, times: pa.Array) -> list[pa.RecordBatch]:
    return rows.filter(pc.is_in(rows["modified"], times)).to_batches()  # type: ignore[no-any-return]


def name_files(partitions: Sequence[str], pieces: Iterable[pa.Table]) -> dict[str, list[list[str]]]:
    """Return the paths of all rows by partition; each run of adjacent rows of a partition is one list."""
    found: dict[str, list[list[str]]] = {p: [] for p in partitions}
    wanted = pa.array(partitions, pa.string())
    for rows in pieces:
        for batch in rows.to_batches():
            runs = pc.run_end_encode(pc.index_in(batch["partition"], wanted))
            paths, first = batch["path"].to_pylist(), 0
            for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
                found[partitions[number]].append(paths[first:end])
                first = end
    return found


class _Wanted:
    """The ranges as arrays of Arrow."""

    def __init__(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        self._partitions = pa.array(ranges, pa.string())
        self._starts = pa.array([start for start, _ in ranges.values()], pa.int64())
        self._ends = pa.array([end for _, end in ranges.values()], pa.int64())

    def mask(self, partitions: pa.ChunkedArray, first: pa.ChunkedArray, last: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return which of the spans [first, last] overlap the range of their partition."""
        at = pc.index_in(partitions, self._partitions)
        begun = pc.less(first, pc.take(self._ends, at))
        return pc.fill_null(pc.and_(begun, pc.greater_equal(last, pc.take(self._starts, at))), False)


def _groups(metadata: pq.FileMetaData, ranges: Mapping[str, tuple[int, int]]) -> list[int]:
    """Return the row groups that may hold rows of the ranges, by their statistics."""
    at = {metadata.schema.column(i).name: i for i in range(metadata.num_columns)}
    asked, found = sorted(ranges), []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        known = [group.column(at[name]).statistics for name in ("partition", "ordinal")]
        bounds = [bound for one in known for bound in ((one.min, one.max) if one and one.has_min_max else (None, None))]
        if may_hold(asked, ranges, *bounds):
            found.append(number)
    return found
