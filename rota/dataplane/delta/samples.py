"""What a person is shown of the table: the first rows of a commit, and how many a partition has.

Laws:
1. Nothing here starts Spark, and nothing raises: what cannot be read is left out.
2. What is read is bounded. Of a commit it is the first rows of one file, and at most `COLUMNS` columns of them. A file of
   one partition is counted by what the log says of it; of the others the column `_partition` is read, unless they hold more
   than `MOST` rows together.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from rota.dataplane import names
from rota.errors import RotaError
from rota.ledger.delta_log import DeltaLog
from rota.ledger.schema import PARTITION

COLUMNS = 30
MOST = 5_000_000
UNREADABLE = (RotaError, DeltaError, OSError, ValueError, OverflowError, LookupError, pa.ArrowException)
Rows = tuple[Mapping[str, object], ...]


def read_samples(table: Path, versions: Mapping[str, int], most: int) -> dict[str, Rows]:
    """See `Table.read_samples`."""
    files: dict[tuple[int, str], Path] = {}
    for version in set(versions.values()):
        try:
            actions = DeltaLog(str(table)).read_actions(version)
            added = [body["path"] for kind, body in actions if kind == "add"]
        except UNREADABLE:
            continue
        for file in sorted((table / unquote(path) for path in added), reverse=True):  # the first one wins
            files[version, file.parent.name] = file
    found: dict[str, Rows] = {}
    for partition, version in versions.items():
        if path := files.get((version, names.split(partition))):
            try:
                found[partition] = _read_first(path, most)
            except UNREADABLE:
                continue
    return found


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
    except UNREADABLE:
        return str(scalar.cast(pa.string()))


def count_rows(table: Path, partitions: Iterable[str]) -> dict[str, int]:
    """See `Table.count_rows`."""
    try:
        opened = DeltaLog(str(table)).open()
        return _count(table, opened.files(), sorted(partitions)) if opened else {}
    except UNREADABLE:
        return {}


def _count(table: Path, files: pa.Table, partitions: list[str]) -> dict[str, int]:
    counts = dict.fromkeys(partitions, 0)
    mixed: list[str] = []
    rows = 0
    for file in files.to_pylist():
        low, high, held = file.get(f"min.{PARTITION}"), file.get(f"max.{PARTITION}"), file.get("num_records")
        if isinstance(low, str) and low == high and isinstance(held, int):
            if low in counts:
                counts[low] += held
        elif low is None or high is None or bisect_left(partitions, low) < bisect_right(partitions, high):
            mixed.append(str(file["path"]))
            rows += held or 0
    if rows > MOST:
        return {}
    for path in mixed:
        column = pq.ParquetFile(table / path).read(columns=[PARTITION])[PARTITION]
        for one in pc.value_counts(column).to_pylist():
            if one["values"] in counts:
                counts[one["values"]] += one["counts"]
    return counts
