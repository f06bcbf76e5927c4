"""Records what Dagster itself records only for a partitioned run, for runs that have their partitions in the config."""

from collections.abc import Iterable, Mapping

import dagster as dg

from rota.dagster.private import (
    AssetCheckEvaluationTargetMaterializationData,
    AssetMaterializationPlannedData,
    DagsterEvent,
    copy,
)

CODE_VERSION = "1"


def announce(context: dg.AssetExecutionContext, assets: Iterable[dg.AssetKey], partitions: Iterable[str]) -> None:
    """Make Dagster show the partitions as in progress, and as failed if the run fails."""
    step = context.op_execution_context.get_step_execution_context().step.key
    listed = tuple(partitions)
    for asset in assets:
        for partition in listed:
            planned = AssetMaterializationPlannedData(asset, partition=partition)
            event = DagsterEvent.build_asset_materialization_planned_event(context.run.job_name, step, planned)
            context.instance.report_dagster_event(event, context.run.run_id)


def aim(evaluation: dg.AssetCheckEvaluation, made: dg.EventLogRecord | None) -> dg.AssetCheckEvaluation:
    """Return the evaluation with this materialization as its target. Without a target, Dagster counts no evaluation that was
    stored in the same second as the materialization, because SQLite stores only the second."""
    if made is None:
        return evaluation
    target = AssetCheckEvaluationTargetMaterializationData(
        storage_id=made.storage_id, run_id=made.run_id, timestamp=made.timestamp
    )
    aimed: dg.AssetCheckEvaluation = copy(evaluation, target_materialization_data=target)
    return aimed


def read_lineage_tags(instance: dg.DagsterInstance, parent: dg.AssetKey) -> Mapping[str, str]:
    """Return the tags that name the materialization of the parent from which another one is made. Without them Dagster
    shows "unsynced"."""
    latest = instance.fetch_materializations(parent, limit=1).records
    if not latest or not latest[0].asset_materialization:
        return {"dagster/code_version": CODE_VERSION}
    version = (latest[0].asset_materialization.tags or {}).get("dagster/data_version", "")
    name = parent.to_user_string()
    return {
        "dagster/code_version": CODE_VERSION,
        f"dagster/input_data_version/{name}": version,
        f"dagster/input_event_pointer/{name}": str(latest[0].storage_id),
    }
