"""Reads a consumed range again and replaces its rows: a Dagster backfill with `replay` in its config.

Laws:
1. A replay needs no ownership and moves no token, offset or checkpoint. It may run beside live consumption.
2. Before it writes, a replay refuses a range that was not consumed, or of which the source lost a part.
3. A file that was corrected in place is read as it is now. The replay first commits the rows of the file to the table,
   then writes the file's size and time to the index. If it dies in between, the file is still listed as changed.
4. A replay has the deadline of a run.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rota.coordination.group_state import GroupState
from rota.dataplane.ports import ASSIGN, FailedPartition, HasFiles, Holds, Ports, Replays, Source, WrittenFiles
from rota.errors import ConfigError, DataError
from rota.ledger.replacing import replace_rows
from rota.ledger.values import Batch, Ranges
from rota.run.spans import Choice, choose_spans, list_rounds, require_files

ONCE = "its source gives each record once: nothing of it can be read again. Publish again what should come again"


@dataclass(frozen=True, slots=True)
class ReplayedRange:
    """The rows of [start, end) are now those of this replay."""

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
class RefusedReplay:
    """The partition is unchanged, for `reason`."""

    partition: str
    reason: str


def replay(tree: GroupState, ports: Ports, ranges: Ranges, run_id: str) -> Iterator[ReplayedRange | RefusedReplay]:
    """Replay the ranges, and yield one event per partition after its rows are committed.

    Raises:
        EnvironmentFailed: Spark, the source or the table does not answer.
        ForeignTable: the table belongs to another pipeline or group; nothing was written.
    """
    refused = find_refused(ports, ranges)
    yield from (RefusedReplay(p, reason) for p, reason in refused.items())
    wanted = {p: r for p, r in ranges.items() if p not in refused}
    if not wanted:
        return
    again = ports.reread(wanted)
    try:
        yield from _replay(tree, again, wanted, run_id)
    finally:
        if isinstance(again.source, Holds):
            again.source.close()


def _replay(tree: GroupState, ports: Ports, ranges: Ranges, run_id: str) -> Iterator[ReplayedRange | RefusedReplay]:
    """Replay ranges that `find_refused` accepted."""
    broken = ports.source.find_broken(ranges)
    yield from (RefusedReplay(p, f"the source no longer has the whole range: {why}") for p, why in broken.items())
    wanted = {p: r for p, r in ranges.items() if p not in broken}
    if not wanted:
        return
    endpoint, schema = _endpoint(tree, wanted), ports.main.read_schema()
    for piece in ports.job.run(
        _plan_jobs(ports.source, wanted), endpoint=endpoint, run_id=run_id, schema=schema, whole=True
    ):
        if isinstance(piece, FailedPartition):
            yield RefusedReplay(piece.partition, str(piece.error))
            continue
        yield from (RefusedReplay(p, str(error)) for p, error in piece.refused.items())
        yield from _publish(ports, piece, run_id)


def plan_replay(ports: Ports, partitions: Sequence[str], choice: Choice) -> tuple[Ranges, ...]:
    """Return the ranges of a replay, as rounds with at most one range per partition.

    Raises:
        ConfigError: the source or the table has nothing that fits the choice.
    """
    return tuple(list_rounds(choose_spans(ports, partitions, choice)))


def check_replay(ports: Ports, partition: str, choice: Choice) -> None:
    """Raise ConfigError if a run would refuse the replay. Only the run compares files."""
    if choice.changed:
        require_files(ports.source, partition)
        return
    for ranges in plan_replay(ports, (partition,), choice):
        for reason in find_refused(ports, ranges).values():
            raise ConfigError(f"{partition} was not replayed: {reason}")


def find_refused(ports: Ports, ranges: Ranges) -> dict[str, str]:
    """Return partition -> why its range cannot be replayed, for reasons other than missing data."""
    if not isinstance(ports.source, Replays):
        return dict.fromkeys(ranges, ONCE)
    positions = ports.main.read_positions(tuple(ranges))
    refused: dict[str, str] = {}
    for p, (start, end) in ranges.items():
        offset = positions[p].offset or 0
        if not 0 <= start < end:
            refused[p] = f"[{start}, {end}) is no range. Give 0 <= from < to"
        elif end > offset:
            refused[p] = f"only offsets below {offset} were consumed. Give a range that ends there or before"
    return refused


def _find_index(source: Source) -> str:
    """Return the id of the index that assigned the source's offsets; empty if the source has no index."""
    return source.observe(()).index if isinstance(source, HasFiles) else ""


def _plan_jobs(source: Source, ranges: Ranges) -> list[Ranges]:
    """Return the jobs, with the partitions grouped as in a run, and with undivided ranges."""
    starts, ends = ({p: r[at] for p, r in ranges.items()} for at in (0, 1))
    return [{p: ranges[p] for p in job} for job in source.plan_jobs(starts, ends)]


def _endpoint(tree: GroupState, ranges: Ranges) -> str | None:
    """Return the Spark of an owner of one of the partitions, else of any live worker; None if no worker has one."""
    own = tree.owned(ranges)
    live = {one.incarnation: one.record.endpoint for one in tree.live() if one.record}
    owners = [own[p].incarnation for p in ranges if p in own]
    return next((e for i in (*owners, *live) if i and (e := live.get(i))), None)


def _publish(ports: Ports, piece: WrittenFiles, run_id: str) -> Iterator[ReplayedRange | RefusedReplay]:
    kept = {p: r for p, r in piece.ranges.items() if p not in piece.refused}
    if not kept:
        return
    rows, bad = ({p: n for p, n in counts.items() if p in kept} for counts in (piece.count_rows(), piece.bad))
    files, index = tuple(f for f in piece.files if f.partition in kept), _find_index(ports.source)
    batch = Batch(uuid.uuid4().hex, run_id, "", piece.attempt, 0, kept, files, rows, bad, piece.seconds, index=index)
    try:
        if bad:
            aside = tuple(f for f in piece.bad_files if f.partition in kept)
            ranges = {p: kept[p] for p in bad}
            ports.quarantine.append(replace(batch, id=uuid.uuid4().hex, ranges=ranges, files=aside, rows=bad, bad={}))
        version = replace_rows(ports.main, batch).version
        if isinstance(ports.source, HasFiles):
            ports.source.observe(tuple(kept), ASSIGN)
    except DataError as error:
        yield from (RefusedReplay(p, str(error)) for p in kept)
        return
    for p, (start, end) in kept.items():
        yield ReplayedRange(p, start, end, rows[p], bad.get(p, 0), version, piece.seconds, run_id, batch.id)
