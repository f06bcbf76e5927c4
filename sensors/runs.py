"""What Dagster's run storage says about runs of ours. Law: read the runs first, then ZooKeeper; never the reverse."""

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
