"""Samples of batches and replays for Dagster's page: where the records came from, some rows, and a row count.

Laws:
1. No function fails a run or starts Spark. Unreadable data is left out.
2. If more than `MAX_SAMPLED_BATCHES` batches are reported together, only counts and columns are read.
3. The rows are those that the batch or replay itself added, never older rows of the table.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rota.dataplane.ports import Ports, Source
from rota.errors import RotaError
from rota.ledger import samples
from rota.ledger.ledger import Ledger
from rota.run.consume import CommittedBatch
from rota.run.replay import ReplayedRange

MAX_SAMPLED_BATCHES = 100
ROWS_PER_SAMPLE = 5
WrittenRange = CommittedBatch | ReplayedRange


@dataclass(frozen=True, slots=True)
class BatchSample:
    """The sample of one batch.

    `sources` are the places of the first and last record. `rows` are the first rows, column -> value. `count` is the
    number of rows that the partition has in the table. Empty or None: unknown.
    """

    sources: tuple[str, ...] = ()
    rows: Sequence[Mapping[str, object]] = ()
    count: int | None = None


def take_samples(ports: Ports, batches: Sequence[WrittenRange], counted: Iterable[str]) -> Iterator[BatchSample]:
    """Yield the sample of each batch, in order. Count the rows of the `counted` partitions."""
    few, asked = len(batches) <= MAX_SAMPLED_BATCHES, tuple(counted)
    newest = {one.partition: one.table_version for one in batches}
    rows = samples.read_samples(ports.main, newest, ROWS_PER_SAMPLE) if few else {}
    counts = samples.count_rows(ports.main, asked) if asked else {}
    for one in batches:
        mine = rows.get(one.partition, ()) if one.table_version == newest[one.partition] else ()
        yield BatchSample(_locate(ports.source, one) if few else (), mine, counts.get(one.partition))


def _locate(source: Source, batch: WrittenRange) -> tuple[str, ...]:
    with suppress(RotaError, OSError, LookupError):
        ends = dict.fromkeys((batch.start, batch.end - 1))
        return tuple(f"{source.locate(batch.partition, at)} (offset {at})" for at in ends)
    return ()


def read_columns(main: Ledger) -> Mapping[str, str]:
    """Return the table's columns, name -> type as Delta names it; empty if they cannot be read."""
    with suppress(RotaError, OSError):
        fields = json.loads(main.read_schema() or "{}").get("fields", ())
        return {one["name"]: one["type"] if isinstance(one["type"], str) else one["type"]["type"] for one in fields}
    return {}
