"""`<pipeline>__backlog_every_minute`: what the sensor does, by the clock; off unless somebody turns it on."""

import dagster as dg

from assets import names
from resources.zookeeper import ZooKeeperResource
from rota.ids import dagster_name
from rota.pipeline import Pipeline
from sensors.backlog import launches


def backlog(pipeline: Pipeline) -> dg.ScheduleDefinition:
    """For those who stop the sensor: a batch a minute instead of as soon as there is something new."""

    @dg.schedule(
        name=dagster_name(pipeline.name, "backlog_every_minute"),
        job_name=names.consume_job(pipeline.name),
        cron_schedule="* * * * *",
        description=f"Launches what the sensor {dagster_name(pipeline.name, 'backlog')} would, once a minute.",
    )
    def look(
        context: dg.ScheduleEvaluationContext, zookeeper: ZooKeeperResource
    ) -> list[dg.RunRequest] | dg.SkipReason:
        with zookeeper.tree(pipeline.group) as tree:
            requests = list(launches(context.instance, tree, pipeline))
        return requests or dg.SkipReason(f"nothing new in {pipeline.name} for a worker without a run")

    return look
