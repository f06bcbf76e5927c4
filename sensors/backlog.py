"""`<pipeline>__backlog`: launches a run for each worker that owns partitions with lag."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.assets import names
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors import runs
from rota.dagster.sensors.polling import poll
from rota.ids import dagster_name
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState


def make_backlog_sensor(pipeline: Pipeline) -> dg.SensorDefinition:
    """The sensor. Law: an incarnation of a worker has at most one unfinished run, and a worker that is gone has none."""

    @dg.sensor(
        name=dagster_name(pipeline.name, "backlog"),
        job_name=names.consume_job(pipeline.name),
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Watches the lag of pipeline {pipeline.name} and launches a run for each worker with lag.",
    )
    def look(context: dg.SensorEvaluationContext, zookeeper: ZooKeeperResource) -> dg.SensorResult | dg.SkipReason:
        with zookeeper.tree(pipeline.group) as tree:
            requests = poll(lambda: list(find_launches(context.instance, tree, pipeline)), bool)
        if not requests:
            return dg.SkipReason(f"no worker without a run has lag in {pipeline.name}")
        return dg.SensorResult(run_requests=requests)

    return look


def find_launches(instance: dg.DagsterInstance, tree: "GroupState", pipeline: Pipeline) -> Iterator[dg.RunRequest]:
    """Yields a run for each live incarnation with lag and without a run. Cancels the runs of incarnations that are gone.

    A run has no run_key: Dagster never launches a key again, even if its run failed.
    """
    from rota.backlog import backlog as lagging
    from rota.registry import open_source

    if not tree.there():
        return  # the membership sensor founds the group
    job = names.consume_job(pipeline.name)
    open_runs = runs.list_unfinished(instance, job)
    live = {one.incarnation for one in tree.live()}  # read after the runs: a new worker is not taken for gone
    for run in open_runs:
        if (whose := run.tags.get("incarnation")) and whose not in live:
            runs.cancel(instance, run)
    busy = {run.tags.get("incarnation") for run in open_runs}
    for work in lagging(tree, pipeline, open_source(pipeline)):
        if work.incarnation not in busy and not runs.read_pause(instance, job, incarnation=work.incarnation):
            yield make_run_request(pipeline, work.incarnation, work.worker, tuple(work.lags))


def make_run_request(pipeline: Pipeline, incarnation: str, worker: str, partitions: tuple[str, ...]) -> dg.RunRequest:
    """The launch of one batch for one incarnation; its partitions stand in the config, not in a partition tag."""
    config = {"incarnation": incarnation, "partitions": list(partitions)}
    return dg.RunRequest(
        run_config={"ops": {names.consume_op(pipeline.name): {"config": config}}},
        tags={"incarnation": incarnation, "worker": worker},
    )
