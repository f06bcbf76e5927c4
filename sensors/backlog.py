"""`<pipeline>__backlog`: launches a run for each worker that owns partitions with lag."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.assets.failure import in_one_line
from rota.dagster.assets.names import INCARNATION, Names
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors import runs
from rota.dagster.sensors.polling import count_places, poll
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState


def make_backlog_sensor(pipeline: Pipeline, names: Names) -> dg.SensorDefinition:
    """The sensor. Law: an incarnation of a worker has at most one unfinished run, and a worker that is gone has none."""

    @dg.sensor(
        name=names.backlog_sensor(pipeline.name),
        job_name=names.consume_job(pipeline.name),
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Watches the lag of pipeline {pipeline.name} and launches a run for each worker with lag.",
    )
    def look(context: dg.SensorEvaluationContext, rota_zookeeper: ZooKeeperResource) -> dg.SensorResult | dg.SkipReason:
        mine = runs.Runs.of(context, names.consume_job(pipeline.name))
        with in_one_line(), rota_zookeeper.tree(pipeline.group) as tree:
            places = count_places(context.instance)
            requests = poll(lambda: list(find_launches(mine, tree, pipeline, names)), bool, places)
        if not requests:
            return dg.SkipReason(f"no worker without a run has lag in {pipeline.name}")
        return dg.SensorResult(run_requests=requests)

    return look


def find_launches(mine: runs.Runs, tree: "GroupState", pipeline: Pipeline, names: Names) -> Iterator[dg.RunRequest]:
    """Yields a run for each live incarnation with lag and without a run. Cancels the runs of incarnations that are gone.

    A run has no run_key: Dagster never launches a key again, even if its run failed.
    """
    from rota.backlog import find_work
    from rota.registry import open_source

    if not tree.exists():
        return  # the membership sensor founds the group
    open_runs = mine.list_unfinished()
    live = {one.incarnation for one in tree.live()}  # read after the runs: a new worker is not taken for gone
    for run in open_runs:
        if (whose := run.tags.get(INCARNATION)) and whose not in live:
            mine.cancel(run)
    busy = {run.tags.get(INCARNATION) for run in open_runs}
    if live <= busy:
        return  # each looks for itself, twice a second
    for work in find_work(tree, pipeline, open_source(pipeline)):
        if work.incarnation not in busy and not mine.read_pause({INCARNATION: work.incarnation}):
            yield make_run_request(pipeline, names, work.incarnation, work.worker, tuple(work.lags))


def make_run_request(
    pipeline: Pipeline, names: Names, incarnation: str, worker: str, partitions: tuple[str, ...]
) -> dg.RunRequest:
    """The launch of one batch for one incarnation; its partitions stand in the config, not in a partition tag."""
    config = {"incarnation": incarnation, "partitions": list(partitions)}
    return dg.RunRequest(
        run_config={"ops": {names.consume_op(pipeline.name): {"config": config}}},
        tags={INCARNATION: incarnation, "rota/worker": worker},
    )
