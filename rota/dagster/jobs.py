"""The jobs: `<group>__rebalance` publishes an epoch, `<pipeline>__consume` consumes new records, `<pipeline>__replay` reads
consumed offsets again."""

from typing import Any

import dagster as dg

from rota.dagster.assets.names import Names
from rota.pipeline import Group, Pipeline

Job = Any  # Dagster does not export the type
MAX_RUNTIME = 3600  # seconds after which Dagster ends a run whose Spark hangs


def make_rebalance_job(group: Group, names: Names) -> Job:
    """Return the job that publishes the group's next epoch. It has priority over consuming runs."""
    return dg.define_asset_job(
        names.rebalance_job(group.name),
        selection=[names.assignment(group.name)],
        tags={**names.tags("rebalance", group.name), "dagster/priority": "10"},
        executor_def=dg.in_process_executor,  # a run is a process already; one for each step would connect again
        description=f"Decides which worker of group `{group.name}` owns which partition, and publishes the epoch.",
    )


def make_consume_job(pipeline: Pipeline, names: Names) -> Job:
    """Return the job that consumes new records: for one worker until its run ends, for a click once."""
    return dg.define_asset_job(
        names.consume_job(pipeline.name),
        selection=dg.AssetSelection.assets(*names.consumed(pipeline.name)).without_checks(),
        tags={**names.tags("consume", pipeline.name), "dagster/max_runtime": str(MAX_RUNTIME)},
        executor_def=dg.in_process_executor,  # a run is a process already; one for each step would connect again
        description=f"Consumes new records of pipeline `{pipeline.name}`.",
    )


def make_replay_job(pipeline: Pipeline, names: Names) -> Job:
    """Return the job that reads consumed offsets again and replaces their rows. By default, as in a backfill, it replays the
    files that changed after they were consumed."""
    return dg.define_asset_job(
        names.replay_job(pipeline.name),
        selection=dg.AssetSelection.assets(*names.consumed(pipeline.name)).without_checks(),
        config={"ops": {names.consume_op(pipeline.name): {"config": {"replay": {"changed": True}}}}},
        tags={**names.tags("replay", pipeline.name), "dagster/max_runtime": str(MAX_RUNTIME)},
        executor_def=dg.in_process_executor,
        description=f"Reads consumed offsets of pipeline `{pipeline.name}` again and replaces their rows.",
    )
