"""The names of assets, sensors, jobs and tags. Law: each depends only on the prefix and the id of a group or pipeline, and
two ids never have the same name; `rota.ids` has the grammar.
"""

from dataclasses import dataclass

import dagster as dg

from rota import ids
from rota.dagster.private import HIDDEN_TAG

LIVENESS_TAG = f"{HIDDEN_TAG}rota_going"  # a tag of a run that has a node in ZooKeeper: the group and its own id
CONSUME, INCARNATION = "rota/consume", f"{HIDDEN_TAG}rota_incarnation"  # tags of consuming runs: pipeline, incarnation


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one `rota.dagster.definitions`. `prefix` begins each, and differs between two deployments of the same
    pipelines on one instance of Dagster."""

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
        """The next offset of a partition."""
        return self._asset_key(pipeline, "checkpoints")

    def consumed(self, pipeline: str) -> tuple[dg.AssetKey, dg.AssetKey, dg.AssetKey]:
        """The three assets of a pipeline, upstream first."""
        return self.ownership(pipeline), self.records(pipeline), self.checkpoints(pipeline)

    def partition_set(self, pipeline: str) -> dg.DynamicPartitionsDefinition:
        """The partition ids of a pipeline, as Dagster's partition keys."""
        return dg.DynamicPartitionsDefinition(name="/".join((*self.prefix, ids.partition_set(pipeline))))

    def name(self, of: str, kind: str) -> str:
        """The sensor, job or op `<of>__<kind>`."""
        return ids.dagster_name(*self.prefix, of, kind)

    def membership_sensor(self, group: str) -> str:
        """The sensor that requests a rebalance."""
        return self.name(group, "membership")

    def backlog_sensor(self, pipeline: str) -> str:
        """The sensor that launches runs for new records."""
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
        """The one step of the jobs that consume and replay; a run's config is the config of this step."""
        return self.name(pipeline, "batch")

    def picture(self, group: str, epoch: int) -> tuple[str, ...]:
        """The key of an epoch's picture, among the keys of Dagster's logs of runs."""
        return "rota", *self.prefix, group, f"epoch-{epoch}"

    def tags(self, kind: str, of: str) -> dict[str, str]:
        """The tag of the runs of `<of>__<kind>`, for the limits of an instance, and for commands that look for the job."""
        return {f"rota/{kind}": self._path(of)}

    def epoch_tags(self, group: str, epoch: int) -> dict[str, str]:
        """The tag of the run that published an epoch, and of each consuming run that was launched under it."""
        return {"rota/epoch": f"{self._path(group)}/{epoch}"}

    def _asset_key(self, of: str, kind: str) -> dg.AssetKey:
        return dg.AssetKey([*self.prefix, *ids.asset_key(of, kind)])

    def _path(self, of: str) -> str:
        return "/".join((*self.prefix, of))
