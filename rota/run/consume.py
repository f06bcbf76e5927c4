"""Consumes the new records of the partitions of one incarnation: own, claim, range, Spark, commit, checkpoint. Steps 1
to 6 are those of docs/architecture.md.

Laws:
1. A batch is in the table once or not at all, whichever process dies between two steps.
2. The checkpoint is a cache of the table. The next run updates a checkpoint that is behind.
3. A run works only on partitions whose own records name its incarnation. The table refuses commits for all others.
4. A batch is reported before its checkpoint is written. So each batch is reported at least once: if a run committed a
   batch and did not report it, the next run reports it as `healed`.
5. A run works in jobs of bounded size, with a commit each. So a backlog of any length drains, however early runs end.
"""

import logging
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from rota.coordination.checkpoint import Entry, carry_load, write_checkpoints
from rota.coordination.group_state import GroupState
from rota.coordination.membership import end_run, narrow_run, portions, register_run
from rota.coordination.parking import note_refusal, park, tell_park, unpark
from rota.coordination.records import Checkpoint, Refusal
from rota.coordination.store import Check
from rota.dataplane.ports import Consumed, FailedPartition, Holds, Observation, Ports, Query, WrittenFiles
from rota.errors import (
    BadTransform,
    Conflict,
    CoordinationError,
    DataError,
    EnvironmentFailed,
    Fenced,
    OffsetGap,
    RotaError,
)
from rota.ledger.merging import is_due, merge_beside_run
from rota.ledger.values import Batch, LogEntry, Position, Ranges, TableClaim
from rota.pipeline import Pipeline
from rota.run.eligibility import Rights, holds, read_rights
from rota.run.job_gate import JobGate, sort_by_turn
from rota.run.restored import explain_lost, explain_older_table, explain_older_zookeeper
from rota.run.tidy import find_present, tidy_batch, tidy_ranges

log = logging.getLogger(__name__)
BACKOFF = 5.0  # seconds until a partition whose transform failed is retried; doubles with each failure


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch in the table. `healed`: an earlier run committed it. `more`: further events of the same commit that follow."""

    partition: str
    start: int
    end: int
    rows: int
    bad_rows: int
    lag: int
    token: int
    epoch: int
    table_version: int
    seconds: float
    run_id: str
    commit_id: str
    healed: bool = False
    more: int = 0


@dataclass(frozen=True, slots=True)
class IdlePartition:
    """The partition has no records from `offset` on."""

    partition: str
    offset: int
    token: int
    epoch: int


@dataclass(frozen=True, slots=True)
class DroppedPartition:
    """This run does not work on the partition, for `reason`."""

    partition: str
    reason: str


@dataclass(frozen=True, slots=True)
class ParkedPartition:
    """The partition failed on its own data, file or transform. It waits until `retry_at` (server seconds), or for an
    operator if that is None.
    """

    partition: str
    reason: str
    failures: int
    retry_at: float | None
    restored: bool = False  # the table or ZooKeeper is older than this group's records


Event = CommittedBatch | IdlePartition | DroppedPartition | ParkedPartition


def consume(
    tree: GroupState,
    pipeline: Pipeline,
    incarnation: str,
    partitions: Sequence[str],
    run_id: str,
    ports: Ports,
    seconds: float = math.inf,
) -> Iterator[Event]:
    """Consume the new records of these partitions, one batch per job. After `seconds` the run begins no further job.

    Yields:
        one event or more per partition, after the table holds what the event reports.

    Raises:
        EnvironmentFailed: Spark, the source or the table does not answer; no partition is parked.
        ForeignTable: the table belongs to another pipeline or group; nothing was written.
        Unavailable: ZooKeeper does not answer.
    """
    for some in portions(partitions):
        node = register_run(tree, run_id, incarnation, some)
        try:
            held = read_rights(tree, incarnation, node, some)
            if held.dropped:
                with suppress(CoordinationError):  # if this fails, a handover waits a little longer
                    narrow_run(tree, node, held.held)
            yield from (DroppedPartition(p, reason) for p, reason in held.dropped.items())
            if held.held:
                yield from ConsumingRun(tree, pipeline, ports, held, run_id, node, incarnation, seconds).run()
        finally:
            if isinstance(ports.source, Holds):
                ports.source.close()
            with suppress(CoordinationError):
                end_run(tree, node)


@dataclass(frozen=True, slots=True)
class ConsumingRun:
    """Steps 2 to 6 for the partitions that a run holds."""

    tree: GroupState
    pipeline: Pipeline
    ports: Ports
    rights: Rights
    run_id: str
    node: str
    incarnation: str
    seconds: float = math.inf

    def run(self) -> Iterator[Event]:
        """Yield an event for each partition."""
        positions = self.ports.main.read_positions(tuple(self.rights.held))
        absent = not any(one.table for one in positions.values())
        known = not absent or self._was_consumed()
        if absent and known:
            self.ports.main.open_existing()  # raises: the table is gone
        stopped = list(self._find_restored(positions))
        yield from stopped
        held = {p: o for p, o in self.rights.held.items() if p not in {s.partition for s in stopped}}
        if not held:
            return
        seen = self._assign(tuple(held), positions)
        for p, why in explain_lost(seen, self.ports.main, positions).items():
            yield self._park(p, RotaError(why), positions[p].offset or 0, final=True)
        held = {p: o for p, o in held.items() if p not in seen.lost}
        for p in sorted(held.keys() - seen.ends):
            if reason := seen.unreadable.get(p):
                yield self._park(p, RotaError(reason), positions[p].offset or 0, final=False)
            else:
                yield DroppedPartition(p, "it could not be read a moment ago; the next run tries again")
        held = {p: o for p, o in held.items() if p in seen.ends}
        if not held:
            return
        claimed = self.ports.main.claim({p: o.token for p, o in held.items()}, seen.starts, known=known)
        for partition, token in claimed.newer.items():
            yield DroppedPartition(
                partition, f"the table has seen token {token} of a newer owner; mine is {held[partition].token}"
            )
        yield from self._heal(claimed, seen)
        self._acknowledge(claimed.offsets)
        jobs = self.ports.source.plan_jobs(sort_by_turn(self.rights, claimed.offsets), seen.ends)
        for p in sorted(claimed.offsets.keys() - {p for ranges in jobs for p in ranges}):
            if p in self.rights.parked:
                self._unpark(p)  # the fault is repaired
            yield IdlePartition(p, claimed.offsets[p], held[p].token, self.rights.epoch)
        if jobs:
            yield from self._work(jobs, claimed, seen)

    def _assign(self, held: tuple[str, ...], positions: Mapping[str, Position]) -> Observation:
        """Observe the source once, and give new data their offsets."""
        founding = self._list_founding(positions)
        asked = tuple(dict.fromkeys((*held, *founding)))
        query = Query(starts=asked, founding=founding, consumed=Consumed(positions, self.ports.main), assign=True)
        return self.ports.source.observe(asked, query)

    def _list_founding(self, positions: Mapping[str, Position]) -> frozenset[str]:
        """Return all partitions, to start together, if the source starts at "latest" and the table was never claimed."""
        known = all(one.offset is not None for one in positions.values())
        if known or self.pipeline.source.start != "latest" or self.ports.main.read_log():
            return frozenset()
        return frozenset(map(self.pipeline.partition, self.ports.source.list_keys()))

    def _was_consumed(self) -> bool:
        """Return whether the checkpoint of any partition of the pipeline names a table."""
        record = self.tree.partitions().get(self.pipeline.name)
        keys = record.keys if record else ()
        return any(one.record.table for one in self.tree.checkpoints(map(self.pipeline.partition, keys)).values())

    def _find_restored(self, positions: Mapping[str, Position]) -> Iterator[ParkedPartition | DroppedPartition]:
        """Park partitions if the table was restored, replaced or changed. Raises ForeignTable if ZooKeeper was restored."""
        main = self.ports.main
        touched = main.find_foreign_commits(positions)
        for p, own in self.rights.held.items():
            offset = positions[p].offset or 0
            if (older := explain_older_zookeeper(own.token, positions[p], f"{p}: {main.location}")) and holds(
                self.tree, own
            ):
                raise older
            was = self.rights.checkpoints.get(p)
            if restored := explain_older_table(was.record if was else None, positions[p], main.location):
                yield self._park(p, restored, offset, final=True, restored=True)
            elif reason := touched.get(p, ""):
                yield self._park(p, RotaError(reason), offset, final=True)

    def _acknowledge(self, offsets: Mapping[str, int]) -> None:
        if isinstance(self.ports.source, Holds):
            self.ports.source.acknowledge(offsets)

    def _heal(self, claimed: TableClaim, observed: Observation) -> Iterator[CommittedBatch]:
        """Write checkpoints that are behind the table. Yield the batches after each; without a checkpoint, the last one."""
        seen = {p: read.record.offset for p, read in self.rights.checkpoints.items()}
        known = {p: seen.get(p, max(0, at - 1)) for p, at in claimed.offsets.items() if p not in seen or seen[p] < at}
        past = self.ports.main.read_log_back_to({p: at for p, at in known.items() if at < claimed.offsets[p]})
        unreported = {p: [one for one in past if one.goes_beyond(p, at)] for p, at in sorted(known.items())}
        for p, batches in unreported.items():
            if batches:
                yield from (make_event(one, p, observed.ends[p]) for one in reversed(batches))
                self._write_checkpoints({p: claimed.offsets[p]}, batches[0], claimed.table)
                tidy_batch(self.ports.source, self.ports.main, claimed.table, partial(find_present, batches, only=p))
        if new := {p: claimed.offsets[p] for p, batches in unreported.items() if not batches}:
            self._write_checkpoints(new, None, claimed.table)

    def _work(self, jobs: tuple[Ranges, ...], claimed: TableClaim, seen: Observation) -> Iterator[Event]:
        """Steps 3 to 6, one piece of work at a time."""
        gate = JobGate(self.tree, self.node, self.incarnation, self.rights, jobs, self.ports.clock, self.seconds)
        pieces = self.ports.job.run(
            jobs, endpoint=self.rights.endpoint, run_id=self.run_id, schema=claimed.columns, recheck=gate.recheck
        )
        for piece in pieces:
            for event in self._report(piece, claimed, seen):
                gate.finish(event.partition)
                yield event
        yield from (DroppedPartition(p, reason) for p, reason in gate.lost.items())

    def _report(self, piece: WrittenFiles | FailedPartition, claimed: TableClaim, seen: Observation) -> Iterator[Event]:
        """Yield the events of one piece of work."""
        if isinstance(piece, FailedPartition):
            final = not (isinstance(piece.error, BadTransform | EnvironmentFailed) or piece.error.facts.get("heals"))
            at, person = claimed.offsets[piece.partition], bool(piece.error.facts.get("person"))
            yield self._park(piece.partition, piece.error, at, final=final, person=person)
            return
        for partition, error in piece.refused.items():
            yield self._park(partition, error, claimed.offsets[partition], final=True)
        yield from self._publish(piece, claimed, seen)

    def _publish(self, piece: WrittenFiles, claimed: TableClaim, seen: Observation) -> Iterator[Event]:
        """Steps 4 to 6 for one piece. Partitions that a newer owner claimed are left out; the others are committed."""
        kept = {p: r for p, r in piece.ranges.items() if p not in piece.refused}
        while kept:
            try:
                committed = self.commit(piece, kept, claimed, seen)
            except (Fenced, OffsetGap) as error:
                out = {p for p in kept if p in tuple(error.facts["partitions"])}  # type: ignore[arg-type]
                yield from (DroppedPartition(p, str(error)) for p in sorted(out))
                if isinstance(error, Fenced):
                    self._note_refusals(out)
                kept = {p: r for p, r in kept.items() if p not in out}
            except BadTransform as error:
                yield from (self._park(p, error, r[0], final=False) for p, r in kept.items())
                return
            else:
                for more, p in zip(reversed(range(len(kept))), kept, strict=True):
                    if p in self.rights.parked:
                        self._unpark(p)
                    yield replace(make_event(committed, p, seen.ends[p], healed=False), more=more)
                ends = {p: end for p, (_, end) in kept.items()}
                self._write_checkpoints(ends, committed, claimed.table)
                self._acknowledge(ends)
                tidy_ranges(self.ports.source, self.ports.main, claimed.table, kept)
                for table in (self.ports.main, self.ports.quarantine) if is_due(committed.version) else ():
                    merge_beside_run(table)
                return

    def commit(self, piece: WrittenFiles, kept: Ranges, claimed: TableClaim, seen: Observation) -> LogEntry:
        """Step 4. Commit bad records first, under ids of their own. They count once main's log names their attempt."""
        files = tuple(f for f in piece.files if f.partition in kept)
        rows, bad = ({p: n for p, n in counts.items() if p in kept} for counts in (piece.count_rows(), piece.bad))
        batch = Batch(
            uuid.uuid4().hex, self.run_id, self.incarnation, piece.attempt, self.rights.epoch, kept, files, rows, bad,
            piece.seconds, index=seen.index, leader_epochs={p: e for p, e in seen.leader_epochs.items() if p in kept},
        )  # fmt: skip
        if bad:
            self._set_aside(piece, replace(batch, ranges={p: kept[p] for p in bad}), claimed)
        return self.ports.main.commit(claimed, batch)

    def _set_aside(self, piece: WrittenFiles, batch: Batch, base: TableClaim) -> None:
        table, ranges = self.ports.quarantine, batch.ranges
        side = table.claim({p: base.tokens[p] for p in ranges}, {p: r[0] for p, r in ranges.items()})
        if side.newer:
            names = ", ".join(side.newer)
            raise Fenced(
                f"Bad records of {names} refused: {table.location} has seen a newer owner. Nothing was written; it goes on",
                partitions=tuple(side.newer),
            )
        files = tuple(f for f in piece.bad_files if f.partition in ranges)
        aside = replace(
            batch, id=uuid.uuid4().hex, files=files, rows=batch.bad, bad={}, op="quarantine", leader_epochs={}
        )
        table.commit(side, aside, follows=False)

    def _write_checkpoints(self, offsets: Mapping[str, int], last: LogEntry | None, table: str) -> None:
        """Step 5. A failure is only logged: the table has the batch, and the next run reads the table."""
        try:
            seen = self.tree.checkpoints(offsets)
            described = {p: carry_load(seen.get(p), self._describe(p, at, last, table)) for p, at in offsets.items()}
            entries = [Entry(self.rights.held[p], one, seen.get(p)) for p, one in described.items()]
            for partition, refusal in write_checkpoints(self.tree, self.node, entries).items():
                if refusal:
                    log.warning("checkpoint=%s not_written=%s", partition, refusal)
        except CoordinationError as error:
            log.warning("checkpoints=%s left_to=the next run reason=%s", ",".join(offsets), error)

    def _describe(self, partition: str, offset: int, last: LogEntry | None, table: str) -> Checkpoint:
        return Checkpoint(
            offset=offset,
            token=self.rights.held[partition].token,
            run_id=last.run if last else self.run_id,
            rows=last.rows.get(partition, 0) if last else 0,
            seconds=last.seconds_of(partition) if last else 0.0,
            epoch=last.epoch if last else self.rights.epoch,
            table=table,
        )

    def _park(
        self, partition: str, error: RotaError, at: int, *, final: bool, person: bool = False, restored: bool = False
    ) -> ParkedPartition | DroppedPartition:
        """Park the partition for an operator (`final`) or for a retry; not if another run has consumed the offset."""
        if self.was_overtaken(partition, at):
            return DroppedPartition(partition, f"it failed ({error}), but another run has consumed it meanwhile")
        wait = None if final else BACKOFF
        try:
            record = park(
                self.tree, partition, error.what, step=error.step, retry_after=wait, offset=at, person=person,
                error="" if type(error) in (RotaError, DataError) else type(error).__name__, checks=self.prove(partition),
            )  # fmt: skip
        except Conflict as lost:
            return DroppedPartition(partition, f"it failed ({error}), but is this run's no more: {lost}")
        return ParkedPartition(partition, tell_park(partition, record), record.failures, record.retry_at, restored)

    def was_overtaken(self, partition: str, offset: int) -> bool:
        """Return whether the table is past this offset by now."""
        return (self.ports.main.read_positions((partition,))[partition].offset or 0) > offset

    def prove(self, partition: str) -> tuple[Check, Check]:
        """Return the checks that fail once this run has lost its right to the partition."""
        return Check(self.tree.paths.own(partition), self.rights.held[partition].version), Check(self.node)

    def _unpark(self, partition: str) -> None:
        """Remove the parked record. If that fails, the next run tries again, because the retry is due."""
        with suppress(CoordinationError):
            unpark(self.tree, partition, self.prove(partition))

    def _note_refusals(self, partitions: Iterable[str]) -> None:
        """Record refused writes for `rota history`; best effort."""
        for p, position in self.ports.main.read_positions(tuple(partitions)).items():
            token, newer = self.rights.held[p].token, position.token or 0
            note_refusal(self.tree, Refusal(partition=p, token=token, newer=newer, run_id=self.run_id))


def make_event(batch: LogEntry, partition: str, latest: int, *, healed: bool = True) -> CommittedBatch:
    """Return the event of a commit for one partition, which now ends at `latest` in the source."""
    start, end = batch.ranges[partition]
    return CommittedBatch(
        partition=partition,
        start=start,
        end=end,
        rows=batch.rows.get(partition, 0),
        bad_rows=batch.bad.get(partition, 0),
        lag=latest - end,
        token=batch.tokens[partition],
        epoch=batch.epoch,
        table_version=batch.version,
        seconds=batch.seconds_of(partition),
        run_id=batch.run,
        commit_id=batch.commit,
        healed=healed,
    )
