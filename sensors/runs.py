"""What Dagster's run storage says about runs of ours. Law: read the runs first, then ZooKeeper; never the reverse."""

import time

import dagster as dg

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def unfinished(instance: dg.DagsterInstance, job: str) -> list[dg.DagsterRun]:
    """The job's runs that are not over, however they were launched."""
    return list(instance.get_runs(dg.RunsFilter(job_name=job, statuses=UNFINISHED)))


def cancel(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Asks the run to end; whether it hears is a matter of speed only, the token in the table refuses its write."""
    if run.status == dg.DagsterRunStatus.CANCELING:
        return False
    return bool(instance.run_coordinator.cancel_run(run.run_id))


def rest(instance: dg.DagsterInstance, job: str, **tags: str) -> float:
    """Seconds until a job that failed is launched again: 2, 4, ... 60 after as many failures in a row, 0 otherwise."""
    over = dg.RunsFilter(job_name=job, tags=tags, statuses=[dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE])
    records = instance.get_run_records(over, limit=6)
    failures = 0
    while failures < len(records) and records[failures].dagster_run.status == dg.DagsterRunStatus.FAILURE:
        failures += 1
    if not failures:
        return 0.0
    return max(0.0, (records[0].end_time or 0.0) + min(60.0, 2.0**failures) - time.time())
