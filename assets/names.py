"""The names of the face, as Dagster's objects. Law: each comes from the prefix and the id of a group or pipeline alone, and
no two ids share one; `rota.ids` has the grammar.
"""

from dataclasses import dataclass

import dagster as dg

from rota import ids
from rota.dagster.private import HIDDEN_TAG

LIVENESS_TAG = f"{HIDDEN_TAG}rota_going"  # a tag of a run that has a node in ZooKeeper: the group and its own id
CONSUME, INCARNATION = "rota/consume", f"{HIDDEN_TAG}rota_incarnation"  # tags of consuming runs: pipeline, incarnation


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one `rota.dagster.definitions`. `prefix` begins all of them: two deployments of the same pipelines on one
    instance of Dagster differ in it."""

    prefix: tuple[str, ...] = ()

    def membership(self, group: str) -> dg.AssetKey:
        """The live workers; the sensor of that name materializes it."""
        return self._asset_key(group, "membership")

    def assignment(self, group: str) -> dg.AssetKey:
        """The target: the partitions of each worker. Its history holds the epochs."""
        return self._asset_key(group, "assignment")

    def ownership(self, pipeline: str) -> dg.AssetKey:
        """Which worker owns a partition, under which token."""
        return self._asset_key(pipeline, "ownership")

    def records(self, pipeline: str) -> dg.AssetKey:
        """The rows that a batch put into the table."""
        return self._asset_key(pipeline, "records")

    def checkpoints(self, pipeline: str) -> dg.AssetKey:
        """How far a partition got."""
        return self._asset_key(pipeline, "checkpoints")

    def consumed(self, pipeline: str) -> tuple[dg.AssetKey, dg.AssetKey, dg.AssetKey]:
        """The three assets of a pipeline, in the order of the line."""
        return self.ownership(pipeline), self.records(pipeline), self.checkpoints(pipeline)

    def partition_set(self, pipeline: str) -> dg.DynamicPartitionsDefinition:
        """The partition ids of a pipeline, as Dagster's partition keys."""
        return dg.DynamicPartitionsDefinition(name="/".join((*self.prefix, ids.partition_set(pipeline))))

    def name(self, of: str, kind: str) -> str:
        """The sensor, job or op `<of>__<kind>`."""
        return ids.dagster_name(*self.prefix, of, kind)

    def membership_sensor(self, group: str) -> str:
        """The sensor that asks for a rebalance."""
        return self.name(group, "membership")

    def backlog_sensor(self, pipeline: str) -> str:
        """The sensor that launches runs for what is new."""
        return self.name(pipeline, "backlog")

    def checks(self, pipeline: str) -> str:
        """The sensor that reports the pipeline's checks, and the op that evaluates them for a click."""
        return self.name(pipeline, "checks")

    def rebalance_job(self, group: str) -> str:
        """The job that makes `<group>/assignment`."""
        return self.name(group, "rebalance")

    def consume_job(self, pipeline: str) -> str:
        """The job that makes the pipeline's three assets."""
        return self.name(pipeline, "consume")

    def replay_job(self, pipeline: str) -> str:
        """The job that reads consumed offsets again."""
        return self.name(pipeline, "replay")

    def maintain_job(self, pipeline: str) -> str:
        """The job that maintains the pipeline's tables, and its schedule."""
        return self.name(pipeline, "maintain")

    def consume_op(self, pipeline: str) -> str:
        """The one step of the jobs that consume and replay, whose config a run carries."""
        return self.name(pipeline, "batch")

    def picture(self, group: str, epoch: int) -> tuple[str, ...]:
        """The picture of an epoch, among the keys of Dagster's logs of runs."""
        return "rota", *self.prefix, group, f"epoch-{epoch}"

    def tags(self, kind: str, of: str) -> dict[str, str]:
        """What a run of the job `<of>__<kind>` carries: by it the limits of an instance count, and commands find the job."""
        return {f"rota/{kind}": self._path(of)}

    def epoch_tags(self, group: str, epoch: int) -> dict[str, str]:
        """What the run that published an epoch carries, and each consuming run that was launched under it."""
        return {"rota/epoch": f"{self._path(group)}/{epoch}"}

    def _asset_key(self, of: str, kind: str) -> dg.AssetKey:
        return dg.AssetKey([*self.prefix, *ids.asset_key(of, kind)])

    def _path(self, of: str) -> str:
        return "/".join((*self.prefix, of))
