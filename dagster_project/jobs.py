"""The jobs: `<group>__rebalance` makes an epoch, `<pipeline>__consume` a batch of each partition it is given."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition as Job

from assets import names
from rota.pipeline import Group, Pipeline


def rebalance(group: Group) -> Job:
    """Publishes the group's next epoch; one at a time, before all consuming."""
    return dg.define_asset_job(
        names.rebalance_job(group.name),
        selection=[names.assignment(group.name)],
        tags={"rota/rebalance": group.name, "dagster/priority": "10"},
        description=f"Looks at who is live in group `{group.name}`, decides, publishes the epoch.",
    )


MAX_RUNTIME = 3600  # seconds; a Spark that hangs without dying holds a run, and its partitions, no longer than this


def consume(pipeline: Pipeline) -> Job:
    """Consumes what is new of the partitions in its config, for one worker."""
    return dg.define_asset_job(
        names.consume_job(pipeline.name),
        selection=list(names.consumed(pipeline.name)),
        tags={"rota/consume": pipeline.name, "dagster/max_runtime": str(MAX_RUNTIME)},
        description=f"Consumes what is new in pipeline `{pipeline.name}`.",
    )
