"""`rota__purge`: removes old consuming runs from Dagster's storage.

Invariants: the newest materialization of each partition stays, and the newest of a batch, with its run. Only finished
consuming runs of these pipelines in this code location are removed.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
from pydantic import Field

from rota.dagster.assets.names import Names
from rota.dagster.assets.page_keys import is_of_batch
from rota.dagster.private import EVENTS, LOCATION_TAG
from rota.errors import counted
from rota.pipeline import Pipeline

FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
PAGE = 1000  # records in one read of the storage


class Purge(dg.Config):
    """Which runs are removed: those that ended more than `older_than_days` ago. `dry_run` only counts them."""

    older_than_days: float = Field(default=7.0, ge=0)
    dry_run: bool = False


def make_purge_job(pipelines: Iterable[Pipeline], names: Names) -> dg.JobDefinition:
    """Return the job, for the launchpad, for a schedule of yours and for `rota purge`."""
    served = tuple(pipelines)

    @dg.op(name=names.name("rota", "remove"))
    def purge(context: dg.OpExecutionContext, config: Purge) -> None:
        before = datetime.now(UTC) - timedelta(days=config.older_than_days)
        # a run without a code server has no location
        here = {LOCATION_TAG: place} if (place := context.run.tags.get(LOCATION_TAG)) else {}
        removed = kept = 0
        for pipeline in served:
            needed = find_needed_runs(context.instance, pipeline, names)
            for run in tuple(list_old_runs(context.instance, names.tags("consume", pipeline.name) | here, before)):
                if run in needed:
                    kept += 1
                    continue
                removed += 1
                if not config.dry_run:
                    remove_run(context.instance, run)
        can = "can be removed" if config.dry_run else "removed"
        context.log.info(
            f"{counted(removed, 'run')} {can}, {kept} stay: they made the newest materialization of a partition"
        )

    @dg.job(
        name=names.name("rota", "purge"),
        tags=names.tags("purge", "rota"),
        executor_def=dg.in_process_executor,
        description="Removes old consuming runs. The newest materialization of each partition stays.",
    )
    def job() -> None:
        purge()

    return job


def list_old_runs(instance: dg.DagsterInstance, tags: Mapping[str, str], before: datetime) -> Iterator[str]:
    """Yield the ids of the runs with these tags that ended before that time. List all before you remove one: the storage
    continues after the last one by its id."""
    old = dg.RunsFilter(tags=dict(tags), statuses=FINISHED, updated_before=before)
    cursor: str | None = None
    while found := instance.get_run_records(old, limit=PAGE, cursor=cursor):
        cursor = found[-1].dagster_run.run_id
        yield from (record.dagster_run.run_id for record in found)


def find_needed_runs(instance: dg.DagsterInstance, pipeline: Pipeline, names: Names) -> set[str]:
    """Return the runs that made a partition's newest materialization, or its newest materialization of a batch."""
    everything = len(instance.get_dynamic_partitions(str(names.partition_set(pipeline.name).name)))
    needed: set[str] = set()
    for asset in names.consumed(pipeline.name):
        seen: set[str] = set()
        with_batch: set[str] = set()
        cursor: str | None = None
        while len(with_batch) < everything:
            page = instance.fetch_materializations(asset, limit=PAGE, cursor=cursor)
            for record in page.records:
                partition, batch = record.partition_key or "", is_of_batch(record.asset_materialization)
                if partition not in seen or (batch and partition not in with_batch):
                    needed.add(record.run_id)
                seen.add(partition)
                if batch:
                    with_batch.add(partition)
            cursor = page.cursor
            if not page.has_more:
                break
    return needed


def remove_run(instance: dg.DagsterInstance, run: str) -> None:
    """Remove the run, its logs and its events, with the file of the events, which Dagster's SQLite leaves at full size."""
    instance.delete_run(run)
    instance.compute_log_manager.delete_logs(prefix=[run])
    for file in Path(instance.root_directory, *EVENTS).glob(f"{run}.db*"):
        file.unlink(missing_ok=True)
