"""Read a past range again and put its rows in place of the old ones: a Dagster backfill with `replay` in its config.

Law: a replay needs no ownership and moves no token, offset or checkpoint; it may run beside live consumption. It refuses a
range that was not consumed yet, or that the source no longer has as a whole, before it writes anything. A file that was
corrected in place is read as it is now, and counts as that from then on: first the table has its rows, then the index its
size and time, so that whoever dies in between leaves a file that still shows as changed.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rota.coordination.tree import Tree
from rota.dataplane import replacing
from rota.dataplane.job import Failed, Job, Ranges, Written
from rota.dataplane.landing import Landing
from rota.dataplane.ledger import Tables
from rota.dataplane.table import Batch
from rota.errors import DataError
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.dataplane.session import Connect


@dataclass(frozen=True, slots=True)
class Replayed:
    """The rows of [start, end) are those of this replay now."""

    partition: str
    start: int
    end: int
    rows: int
    bad_rows: int
    table_version: int
    seconds: float
    run_id: str
    commit_id: str


@dataclass(frozen=True, slots=True)
class NotReplayed:
    """Nothing of the partition was changed, for `reason`."""

    partition: str
    reason: str


def replay(
    tree: Tree,
    pipeline: Pipeline,
    ranges: Mapping[str, tuple[int, int]],
    run_id: str,
    connect: "Connect",
    settings: Mapping[str, str] | None = None,
) -> Iterator[Replayed | NotReplayed]:
    """One event for each partition, after the table has its rows. `ranges` maps partitions to half-open ranges.

    Raises EnvironmentFailed, ForeignTable (nothing was written).
    """
    source, tables = Landing.of(pipeline), Tables.of(pipeline, tree.group, tree.meta().id)
    refused = _early(tables, ranges)
    source = source.as_now({p: r for p, r in ranges.items() if p not in refused})
    refused |= _not_whole(source, {p: r for p, r in ranges.items() if p not in refused})
    yield from (NotReplayed(p, reason) for p, reason in refused.items())
    wanted = {p: r for p, r in ranges.items() if p not in refused}
    if not wanted:
        return
    from rota.dataplane.session import joined

    spark = joined(connect, _endpoint(tree, wanted), pipeline.module, settings)
    table = tables.main.open()
    schema = table.schema().to_json() if table else None
    for piece in Job(pipeline, source, tables.folder, spark, schema, run_id).run(wanted):
        if isinstance(piece, Failed):
            yield NotReplayed(piece.partition, str(piece.error))
            continue
        yield from (NotReplayed(p, str(error)) for p, error in piece.refused.items())
        yield from _published(source, tables, piece, run_id)


def _early(tables: Tables, ranges: Ranges) -> dict[str, str]:
    """The partitions whose range is none, or was not consumed yet, with the reason."""
    standing = tables.main.standing(tuple(ranges))
    refused: dict[str, str] = {}
    for p, (start, end) in ranges.items():
        offset = standing[p].offset or 0
        if not 0 <= start < end:
            refused[p] = f"[{start}, {end}) is no range. Give 0 <= from < to"
        elif end > offset:
            refused[p] = f"only offsets below {offset} were consumed. Give a range that ends there or before"
    return refused


def _not_whole(source: Landing, ranges: Ranges) -> dict[str, str]:
    return {p: f"the source no longer has the whole range: {why}" for p, why in source.broken(ranges).items()}


def _endpoint(tree: Tree, ranges: Ranges) -> str | None:
    """The Spark of an owner of one of the partitions, else of any live worker, else of this process."""
    own = tree.owned(ranges)
    live = {one.incarnation: one.record.endpoint for one in tree.live() if one.record}
    owners = [own[p].incarnation for p in ranges if p in own]
    return next((e for i in (*owners, *live) if i and (e := live.get(i))), None)


def _published(source: Landing, tables: Tables, piece: Written, run_id: str) -> Iterator[Replayed | NotReplayed]:
    kept = {p: r for p, r in piece.ranges.items() if p not in piece.refused}
    if not kept:
        return
    rows, bad = ({p: n for p, n in counts.items() if p in kept} for counts in (piece.rows(), piece.bad))
    files = tuple(f for f in piece.files if f.partition in kept)
    batch = Batch(uuid.uuid4().hex, run_id, "", piece.attempt, 0, kept, files, rows, bad, piece.seconds)
    try:
        if bad:
            aside = tuple(f for f in piece.bad_files if f.partition in kept)
            ranges = {p: kept[p] for p in bad}
            replacing.append(
                tables.quarantine, replace(batch, id=uuid.uuid4().hex, ranges=ranges, files=aside, rows=bad, bad={})
            )
        version = replacing.replace(tables.main, batch)
        source.index.keep(tuple(kept))
    except DataError as error:
        yield from (NotReplayed(p, str(error)) for p in kept)
        return
    for p, (start, end) in kept.items():
        yield Replayed(p, start, end, rows[p], bad.get(p, 0), version, piece.seconds, run_id, batch.id)
