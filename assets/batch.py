"""Turns the events of a consuming run into Dagster's: for each committed partition a materialization of each asset."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from rota.dagster.assets import metadata, names, provenance
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.backlog import Owners
    from rota.consume import Event
    from rota.coordination.group_state import GroupState
    from rota.replay import RefusedReplay, ReplayedRange

Output = dg.AssetMaterialization | dg.AssetObservation


class RunOutput:
    """The output of one run. Law: a commit is shown even if the run fails later, and only commits are shown."""

    def __init__(self, context: dg.AssetExecutionContext, pipeline: Pipeline) -> None:
        self.context, self.pipeline = context, pipeline
        self.assets = names.consumed(pipeline.name)
        self.clicked = False
        self.refused: dict[str, str] = {}  # the partitions that a replay left as they were
        self.seen = provenance.read_lineage_tags(context.instance, names.assignment(pipeline.group))

    def choose_keys(self, partitions: Sequence[str]) -> tuple[str, ...]:
        """The partitions of this run: those in its config, else those selected on the page, else all there are."""
        if partitions:
            for partition in partitions:
                self.pipeline.key(partition)  # raises where it is another pipeline's
            provenance.announce(self.context, self.assets, partitions)
            return tuple(partitions)
        self.clicked = True
        if self.context.has_partition_key or self.context.has_partition_key_range:
            return tuple(self.context.partition_keys)
        return tuple(self.context.instance.get_dynamic_partitions(str(names.partition_set(self.pipeline.name).name)))

    def materialize(self, partition: str, version: str, shown: Sequence[Mapping[str, Any]]) -> Iterator[Output]:
        """Yields a materialization of each of the three assets, with the tags that Dagster itself would add."""
        for asset, entries in zip(self.assets, shown, strict=True):
            tags = {"dagster/data_version": version, **(self.seen if asset == self.assets[0] else {})}
            yield dg.AssetMaterialization(asset, partition=partition, metadata=dict(entries), tags=tags)

    def show_event(self, event: "Event", incarnation: str) -> Iterator[Output]:
        """Yields what Dagster shows for one event of `rota.consume`."""
        from rota import consume

        partition = event.partition
        if isinstance(event, consume.CommittedBatch):
            yield from self.materialize(partition, str(event.end), metadata.describe_batch(event, incarnation))
        elif isinstance(event, consume.IdlePartition):
            # Whoever asked for this partition on the page gets an answer; a sensor's run says nothing of nothing.
            if self.clicked:
                yield from self.materialize(partition, str(event.offset), metadata.describe_idle(event, incarnation))
        elif isinstance(event, consume.ParkedPartition):
            yield from self.show_skipped(partition, f"parked: {event.reason}")
        else:
            yield from self.show_skipped(partition, event.reason)

    def show_skipped(self, partition: str, reason: str) -> Iterator[Output]:
        """A partition that was not consumed, with its reason on the page."""
        self.context.log.warning(f"{partition} skipped: {reason}")
        yield dg.AssetObservation(self.assets[0], partition=partition, description=reason, metadata={"skipped": reason})

    def show_replay(self, event: "ReplayedRange | RefusedReplay", tree: "GroupState") -> Iterator[Output]:
        """Yields what Dagster shows for one event of a replay. The owner and the offset are those that were there before."""
        from rota import replay

        partition = event.partition
        if isinstance(event, replay.RefusedReplay):
            self.refused[partition] = event.reason
            yield from self.show_skipped(partition, event.reason)
            return
        own, at = tree.owned((partition,)), tree.checkpoints((partition,))
        offset = str(at[partition].record.offset) if partition in at else "0"
        yield from self.materialize(partition, offset, metadata.describe_replay(event, own.get(partition), offset))

    def raise_refused(self) -> None:
        """Whoever asks for a replay is told when it could not be: the run fails. Nothing of those partitions was changed."""
        if self.refused:
            raise dg.Failure(
                "; ".join(f"{one} was not replayed: {why}" for one, why in self.refused.items()), allow_retries=False
            )

    def divide_among_owners(self, tree: "GroupState", incarnation: str, partitions: Sequence[str]) -> "Owners":
        """The partitions of this run by incarnation, and those to skip. Without `incarnation`: by their present owners."""
        from rota.backlog import Owners, owners

        if incarnation:
            return Owners({incarnation: tuple(partitions)}, {})
        return owners(tree, self.pipeline, partitions)
