"""Records for a run with keys in its config what Dagster records by itself for a partitioned run."""

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
    """Makes Dagster show the partitions as in progress, and as failed if the run fails."""
    step = context.op_execution_context.get_step_execution_context().step.key
    listed = tuple(partitions)
    for asset in assets:
        for partition in listed:
            planned = AssetMaterializationPlannedData(asset, partition=partition)
            event = DagsterEvent.build_asset_materialization_planned_event(context.run.job_name, step, planned)
            context.instance.report_dagster_event(event, context.run.run_id)


def aim(said: dg.AssetCheckEvaluation, made: dg.EventLogRecord | None) -> dg.AssetCheckEvaluation:
    """The evaluation as one of this materialization: SQLite has only the second in which one was stored, and Dagster counts
    none of the same second else."""
    if made is None:
        return said
    target = AssetCheckEvaluationTargetMaterializationData(
        storage_id=made.storage_id, run_id=made.run_id, timestamp=made.timestamp
    )
    aimed: dg.AssetCheckEvaluation = copy(said, target_materialization_data=target)
    return aimed


def read_lineage_tags(instance: dg.DagsterInstance, parent: dg.AssetKey) -> Mapping[str, str]:
    """The tags that say from which materialization of the parent another one is made. Without them Dagster shows
    "unsynced"."""
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
