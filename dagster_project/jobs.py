"""The jobs: `<group>__rebalance` publishes an epoch, `<pipeline>__consume` consumes a batch of each of its partitions."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition as Job

from rota.dagster.assets import names
from rota.pipeline import Group, Pipeline


def make_rebalance_job(group: Group) -> Job:
    """The job that publishes the group's next epoch. One runs at a time, before all consuming runs."""
    return dg.define_asset_job(
        names.rebalance_job(group.name),
        selection=[names.assignment(group.name)],
        tags={"rota/rebalance": group.name, "dagster/priority": "10"},
        description=f"Decides which worker of group `{group.name}` owns which partition, and publishes the epoch.",
    )


MAX_RUNTIME = 3600  # seconds after which Dagster ends a run whose Spark hangs


def make_consume_job(pipeline: Pipeline) -> Job:
    """The job that consumes what is new in the partitions of its config, for one worker."""
    return dg.define_asset_job(
        names.consume_job(pipeline.name),
        selection=dg.AssetSelection.assets(*names.consumed(pipeline.name)).without_checks(),
        tags={"rota/consume": pipeline.name, "dagster/max_runtime": str(MAX_RUNTIME)},
        description=f"Consumes what is new in pipeline `{pipeline.name}`.",
    )
