"""`<pipeline>__maintain`: a job that maintains a pipeline's tables, and the schedule that launches it each night.

Invariants: a run rewrites a bounded amount, and has the lowest priority in the queue. An observation of `<pipeline>/records`
lists what the run did and what it left to the next one. If a step fails, the run does the others, and then fails.
"""

from zlib import crc32

import dagster as dg

from rota.dagster.assets import page_keys as keys
from rota.dagster.assets.failure import in_one_line
from rota.dagster.assets.metadata import describe_maintenance
from rota.dagster.assets.names import Names
from rota.dagster.jobs import MAX_RUNTIME
from rota.errors import EnvironmentFailed, counted
from rota.pipeline import Pipeline

HOUR = 3  # of the day, in UTC; the minute depends on the pipeline's name, so that the pipelines do not start together


def make_maintain_job(pipeline: Pipeline, names: Names) -> dg.JobDefinition:
    """Return the job, for the schedule, for the launchpad and for a schedule of yours."""

    @dg.op(name=names.name(pipeline.name, "tidy"))
    def tidy(context: dg.OpExecutionContext) -> None:
        from rota.run.maintain import maintain

        with in_one_line():
            done = maintain(pipeline)
            metadata = describe_maintenance(done)
            put, into, left = (metadata[key] for key in (keys.MERGED, keys.MERGED_INTO, keys.FILES_LEFT))
            line = (
                f"{counted(put, 'file')} put together into {into:,}, {left:,} left to the next run; "
                f"{counted(done.packed, 'commit')} packed; {counted(done.vacuumed, 'unused file')} deleted"
            )
            context.log_event(dg.AssetObservation(names.records(pipeline.name), description=line, metadata=metadata))
            context.log.info(line)
            if done.failed:
                raise EnvironmentFailed(". ".join(done.failed))

    @dg.job(
        name=names.maintain_job(pipeline.name),
        tags={
            **names.tags("maintain", pipeline.name),
            "dagster/max_runtime": str(MAX_RUNTIME),
            "dagster/priority": "-10",
        },
        executor_def=dg.in_process_executor,
        description=f"Puts files of the tables of `{pipeline.name}` together, packs old commits of their logs, and "
        f"deletes unused files.",
    )
    def job() -> None:
        tidy()

    return job


def make_maintain_schedule(pipeline: Pipeline, names: Names) -> dg.ScheduleDefinition:
    """Return the schedule that launches the job each night. It is on by default, as the sensors are."""
    minute = crc32(pipeline.name.encode()) % 60
    return dg.ScheduleDefinition(
        name=names.maintain_job(pipeline.name),
        job_name=names.maintain_job(pipeline.name),
        cron_schedule=f"{minute} {HOUR} * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        tags=names.tags("maintain", pipeline.name),
    )
