"""`<pipeline>__backlog`: launches a run for each worker that owns partitions with something new."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from assets import names
from resources.zookeeper import ZooKeeperResource
from rota.ids import dagster_name
from rota.pipeline import Pipeline
from sensors import runs
from sensors.polling import poll

if TYPE_CHECKING:
    from rota.coordination.tree import Tree


def backlog(pipeline: Pipeline) -> dg.SensorDefinition:
    """Law: one unfinished run at most for an incarnation of a worker; none for a worker that is gone."""

    @dg.sensor(
        name=dagster_name(pipeline.name, "backlog"),
        job_name=names.consume_job(pipeline.name),
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Watches how far pipeline {pipeline.name} is behind, and launches a run for each worker with lag.",
    )
    def look(context: dg.SensorEvaluationContext, zookeeper: ZooKeeperResource) -> dg.SensorResult | dg.SkipReason:
        with zookeeper.tree(pipeline.group) as tree:
            requests = poll(lambda: list(launches(context.instance, tree, pipeline)), bool)
        if not requests:
            return dg.SkipReason(f"nothing new in {pipeline.name} for a worker without a run")
        return dg.SensorResult(run_requests=requests)

    return look


def launches(instance: dg.DagsterInstance, tree: "Tree", pipeline: Pipeline) -> Iterator[dg.RunRequest]:
    """A run for each live incarnation with lag and without a run; runs of incarnations that are gone are cancelled.

    No run_key and no cursor: a key once used is never launched again, even if its run failed.
    """
    from rota.backlog import backlog as lagging
    from rota.registry import open_source

    if not tree.there():
        return  # the membership sensor founds it
    job = names.consume_job(pipeline.name)
    open_runs = runs.unfinished(instance, job)
    live = {one.incarnation for one in tree.live()}  # read after the runs: nobody new is taken for gone
    for run in open_runs:
        if (whose := run.tags.get("incarnation")) and whose not in live:
            runs.cancel(instance, run)
    busy = {run.tags.get("incarnation") for run in open_runs}
    for work in lagging(tree, pipeline, open_source(pipeline)):
        if work.incarnation not in busy and not runs.rest(instance, job, incarnation=work.incarnation):
            yield request(pipeline, work.incarnation, work.worker, tuple(work.lags))


def request(pipeline: Pipeline, incarnation: str, worker: str, partitions: tuple[str, ...]) -> dg.RunRequest:
    """The launch of one batch for one incarnation; its partitions stand in the config, not in a partition tag."""
    config = {"incarnation": incarnation, "partitions": list(partitions)}
    return dg.RunRequest(
        run_config={"ops": {names.consume_op(pipeline.name): {"config": config}}},
        tags={"incarnation": incarnation, "worker": worker},
    )
