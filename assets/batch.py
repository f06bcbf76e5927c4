"""Converts the events of a consuming run into Dagster's: materializations of each asset for each partition."""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from rota.dagster.assets import metadata, page_keys, provenance
from rota.dagster.assets.check_results import repeat
from rota.dagster.assets.checks import list_checks
from rota.dagster.assets.failure import ExpectedFailure
from rota.dagster.assets.names import Names
from rota.errors import counted, printable
from rota.ids import PARKED_TAG
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.dataplane.ports import Ports
    from rota.run.consume import CommittedBatch, Event, IdlePartition
    from rota.run.progress import ProgressReport, ReportedOffset
    from rota.run.replay import RefusedReplay, ReplayedRange
    from rota.run.samples import BatchSample
    from rota.run.serve import Rest, RunEnd

NAMED = 5  # parked partitions whose reasons the error of a run quotes
REPLAYS = 5  # materializations of a partition in which the newest batch is searched: the others are replays
Output = dg.AssetMaterialization | dg.AssetObservation


class RunOutput:
    """The output of one run.

    Invariants: each commit is reported, even if the run fails later, and nothing else counts as a batch. A click or a
    backfill gets a result for each of its partitions. A partition that was not consumed is red, with the reason.
    """

    def __init__(self, context: dg.AssetExecutionContext, pipeline: Pipeline, names: Names) -> None:
        self.context, self.pipeline, self.names = context, pipeline, names
        self.assets = names.consumed(pipeline.name)
        self.checks = list_checks(pipeline, names)
        self.is_asked = False  # a user waits for an answer; a run of a sensor reports no partition without news
        self.replayed: dict[str, int] = {}  # offsets by partition
        self.refused: dict[str, str] = {}  # partitions of a click that were not consumed -> reason
        self.announced: set[str] = set()  # partitions that are planned on the page, and not materialized since
        self.parked: dict[str, str] = {}  # partitions that a run for a worker left parked -> reason
        self.idle: dict[str, tuple[str, IdlePartition]] = {}  # partitions without new records -> incarnation and event
        self.shown_owners: dict[str, tuple[str, int, int]] = {}  # partition -> incarnation, token, epoch
        self.epoch = -1
        self.counts: dict[str, int | None] = {}  # rows by partition: counted once, then the rows of this run are added
        self.read_lineage()

    def read_lineage(self) -> None:
        """Read the materialization of the epoch from which the next `ownership` is made."""
        assignment = self.names.assignment(self.pipeline.group)
        self.seen = provenance.read_lineage_tags(self.context.instance, assignment)

    def choose_keys(self, partitions: Sequence[str], incarnation: str) -> tuple[str, ...]:
        """Return the partitions of this run: those in its config, else those selected on the page, else all; none for an
        incarnation that owns nothing yet."""
        self.is_asked = not incarnation
        if partitions or incarnation:
            for partition in partitions:
                self.pipeline.key(partition)  # raises if it is another pipeline's
            self.announce(partitions)
            return tuple(partitions)
        if self.context.has_partition_key or self.context.has_partition_key_range:
            return tuple(self.context.partition_keys)
        return tuple(
            self.context.instance.get_dynamic_partitions(str(self.names.partition_set(self.pipeline.name).name))
        )

    def announce(self, partitions: Iterable[str]) -> None:
        """Make the page show the partitions as in progress, and as failed if the run fails, unless that was done before."""
        new = [partition for partition in partitions if partition not in self.announced]
        provenance.announce(self.context, self.assets, new)
        self.announced.update(new)

    def materialize(self, partition: str, version: str, shown: Sequence[Mapping[str, Any]]) -> Iterator[Output]:
        """Yield a materialization of each of the three assets, with the tags that Dagster itself would add."""
        self.announced.discard(partition)
        for asset, entries in zip(self.assets, shown, strict=True):
            tags = {"dagster/data_version": version, **(self.seen if asset == self.assets[0] else {})}
            yield dg.AssetMaterialization(asset, partition=partition, metadata=dict(entries), tags=tags)

    def show_work(
        self, events: "Iterable[tuple[str, Event | Rest | RunEnd]]", ports: "Ports", seconds: float
    ) -> Iterator[Output]:
        """Yield the events of a run's work.

        A partition has at most one materialization in `seconds`, and always its last one, also if the run fails or is
        cancelled. The materializations of a commit come together, because each call costs.
        """
        from rota.run.consume import CommittedBatch
        from rota.run.progress import ProgressReport
        from rota.run.serve import Rest, RunEnd

        report = ProgressReport(self.read_reported, ports.main, seconds, time.monotonic)
        try:
            for incarnation, event in events:
                if isinstance(event, RunEnd):
                    self.context.log.info(f"the run ends: {event.reason}")
                elif not isinstance(event, Rest):
                    yield from self.show_event(event, incarnation, report)
                if not (isinstance(event, CommittedBatch) and event.more):
                    yield from self.report_batches(report.take_due(), ports)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self.report_batches(report.take_all(), ports)
            raise
        yield from self.report_batches(report.take_all(), ports)

    def show_event(self, event: "Event", incarnation: str, report: "ProgressReport") -> Iterator[Output]:
        """Yield the events for one event of `rota.run.consume`; a batch goes into the report."""
        from rota.run import consume
        from rota.run.progress import find_unreported_before

        partition = event.partition
        if not isinstance(event, consume.DroppedPartition):
            self.parked.pop(partition, None)
            self.idle.pop(partition, None)
        if isinstance(event, consume.CommittedBatch):
            report.add(incarnation, event)
        elif isinstance(event, consume.IdlePartition):
            if unreported := find_unreported_before(event, self.read_reported(partition), report.main):
                report.add(incarnation, unreported)
            elif self.is_asked:
                yield from self.show_idle(incarnation, event)
            else:
                self.idle[partition] = incarnation, event
        else:
            parked = isinstance(event, consume.ParkedPartition)
            reason = f"parked: {event.reason}" if parked else event.reason
            if self.is_asked:
                self.refused[partition] = f"{partition} was not consumed: {reason}"
            elif parked:
                self.parked[partition] = event.reason
            yield from self.show_skipped(partition, reason, self.assets[1] if parked else self.assets[0])

    def show_idle(self, incarnation: str, event: "IdlePartition") -> Iterator[Output]:
        """Yield a materialization of a partition without new records, with the numbers of its last batch."""
        last = [self.read_last(asset, event.partition) for asset in self.assets]
        shown = metadata.describe_idle(event, incarnation, last)
        yield from self.materialize(event.partition, str(event.offset), shown)

    def report_batches(self, due: "Iterable[tuple[str, CommittedBatch]]", ports: "Ports") -> Iterator[Output]:
        """Yield the materializations of batches, or of their sums.

        An owner is reported once, and again if the owner, its token or the epoch changed. The columns of the table are
        reported once, as each takes 200 bytes. The last evaluations of the checks are repeated for each new materialization.
        """
        from rota.run.samples import read_columns

        if not (batches := list(due)):
            return
        columns = {} if self.counts else read_columns(ports.main)
        made: list[Output] = []
        samples = self.sample([batch for _, batch in batches], ports)
        for (incarnation, batch), sample in zip(batches, samples, strict=True):
            if batch.epoch != self.epoch:
                self.epoch = batch.epoch
                self.read_lineage()
            owner = incarnation, batch.token, batch.epoch
            known = self.shown_owners.get(batch.partition) == owner
            self.shown_owners[batch.partition] = owner
            shown = metadata.describe_batch(batch, incarnation, sample, columns)
            columns = {}
            made += itertools.islice(self.materialize(batch.partition, str(batch.end), shown), int(known), None)
        for asset in self.assets:  # the page counts no check of an asset until it is evaluated again
            mine = [one for one in made if one.asset_key == asset]
            yield from mine
            for again in repeat(self.context.instance, [one for one in self.checks if mine and one.asset_key == asset]):
                self.context.instance.report_runless_asset_event(again)

    def sample(self, batches: "Sequence[CommittedBatch]", ports: "Ports") -> "Iterator[BatchSample]":
        """Yield the sample of each batch, with the number of rows that its partition has now."""
        from rota.run.samples import take_samples

        new = {batch.partition for batch in batches} - self.counts.keys()
        for batch, sample in zip(batches, take_samples(ports, batches, new), strict=True):
            count = self.counts.get(batch.partition)
            now = sample.count if batch.partition in new else count + batch.rows if count is not None else None
            self.counts[batch.partition] = now
            yield replace(sample, count=now)

    def read_last(self, asset: dg.AssetKey, partition: str) -> Mapping[str, Any]:
        """Return the metadata of the newest materialization of a batch; empty if there is none."""
        filters = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition])
        for record in self.context.instance.fetch_materializations(filters, limit=REPLAYS).records:
            made = record.asset_materialization
            if made and page_keys.is_of_batch(made):
                return dict(made.metadata)
        return {}

    def read_reported(self, partition: str) -> "ReportedOffset | None":
        """Return the offset and the token of the newest batch on the page."""
        from rota.run.progress import ReportedOffset

        last = self.read_last(self.assets[-1], partition)
        offset, token = (getattr(last.get(name), "value", None) for name in (page_keys.OFFSET, page_keys.TOKEN))
        return ReportedOffset(offset, token) if isinstance(offset, int) and isinstance(token, int) else None

    def show_skipped(self, partition: str, reason: str, asset: dg.AssetKey) -> Iterator[Output]:
        """Yield the reason why a partition was not consumed: on `records` if its data or transform failed, on `ownership` if
        this run has no right to it."""
        self.context.log.warning(f"{partition} skipped: {reason}")
        yield dg.AssetObservation(asset, partition=partition, description=reason, metadata={"skipped": reason})

    def show_replay(
        self, event: "ReplayedRange | RefusedReplay", tree: "GroupState", ports: "Ports"
    ) -> Iterator[Output]:
        """Yield the events for one event of a replay. Owner and offset stay. Only the first partitions have sample rows."""
        from rota.run import replay
        from rota.run.samples import MAX_SAMPLED_BATCHES, BatchSample, take_samples

        partition = event.partition
        if isinstance(event, replay.RefusedReplay):
            self.refused[partition] = f"{partition} was not replayed: {event.reason}"
            yield from self.show_skipped(partition, event.reason, self.assets[1])
            return
        self.replayed[partition] = self.replayed.get(partition, 0) + event.end - event.start
        own, at = tree.owned((partition,)), tree.checkpoints((partition,))
        offset = str(at[partition].record.offset) if partition in at else "0"
        few = len(self.replayed) <= MAX_SAMPLED_BATCHES
        seen = next(take_samples(ports, [event], ())) if few else BatchSample()
        shown = metadata.describe_replay(event, own.get(partition), offset, seen)
        for made in self.materialize(partition, offset, shown):
            fresh = {"dagster/data_version": f"{offset}, replayed in version {event.table_version}"}
            yield made if made.asset_key != self.assets[1] else made._replace(tags={**(made.tags or {}), **fresh})

    def show_unreplayed(self, partitions: Iterable[str]) -> Iterator[Output]:
        """Log how much was replayed. Yield the newest materialization of a partition without anything to replay again, so
        that a click on it succeeds."""
        nothing = tuple(partitions)
        for partition in nothing if self.is_asked else ():
            for asset in self.assets:
                filters = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition])
                for record in self.context.instance.fetch_materializations(filters, limit=1).records:
                    if made := record.asset_materialization:
                        yield made.with_metadata({**made.metadata, page_keys.NOTHING_TO_REPLAY: True})
        line = ", ".join(
            f"{partition}: {counted(count, 'offset')} replayed" for partition, count in self.replayed.items()
        )
        self.context.log.info(printable(line or f"nothing to replay in {', '.join(nothing)}"))

    def raise_refused(self) -> None:
        """Fail the run of a click that could not consume all its partitions, so that the page shows the others as failed."""
        if self.refused:
            self.announced -= self.refused.keys()
            self.announce(self.refused)
            raise ExpectedFailure("; ".join(self.refused.values()), "Refused")

    def settle_idle(self) -> Iterator[Output]:
        """Keep the page from showing partitions without new records as failed, by an earlier run or by this one's end."""
        for incarnation, event in self.idle.values() if self.parked else ():
            yield from self.show_idle(incarnation, event)
        if not self.parked:
            self.announce(self.idle)

    def raise_parked(self) -> None:
        """Fail a run for a worker that leaves partitions parked, so that the page shows each of them as failed.

        The run has the tag `rota/parked`, so no streak of failures counts it: Dagster does not retry it, and no launch waits
        after it. Its commits stay.
        """
        if not self.parked:
            return
        self.announce(self.parked)
        count = len(self.parked)
        self.context.instance.add_run_tags(self.context.run.run_id, {PARKED_TAG: str(count)})
        why = [f"{partition}: {reason}" for partition, reason in sorted(self.parked.items())]
        more = f"; and {count - NAMED:,} more" if count > NAMED else ""
        raise ExpectedFailure(f"{counted(count, 'partition')} parked. {'; '.join(why[:NAMED])}{more}", "Parked")
