"""What Dagster's run storage says about runs of ours. Law: read the runs first, then ZooKeeper; never the reverse."""

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

import dagster as dg
from dagster._core.storage.tags import GRPC_INFO_TAG  # private: where the server that holds a run's process listens

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
SETTLING = 5.0  # seconds in which a run's server may still be about to listen


def unfinished(instance: dg.DagsterInstance, job: str) -> list[dg.DagsterRun]:
    """The job's runs that are not over, however they were launched.

    A run whose process went down with its code server would say "started" for ever, and nothing would be launched
    beside it: Dagster's default launcher does not look. Such a run is reported as failed.
    """
    going: list[dg.DagsterRun] = []
    for record in instance.get_run_records(dg.RunsFilter(job_name=job, statuses=UNFINISHED)):
        age = abs(time.time() - record.update_timestamp.timestamp())  # of a clock that went back, too
        if age > SETTLING and _orphaned(record.dagster_run.tags):
            instance.report_run_failed(record.dagster_run, "Its process went down with Dagster's code server.")
        else:
            going.append(record.dagster_run)
    return going


def _orphaned(tags: Mapping[str, str]) -> bool:
    """Whether the server that launched the run is not there any more; a queued run has none yet, and one whose host has
    no address now is not known to be gone."""
    where = json.loads(tags.get(GRPC_INFO_TAG, "{}"))
    if not where:
        return False
    family = socket.AF_UNIX if where.get("socket") else socket.AF_INET
    address = where.get("socket") or (where.get("host") or "localhost", int(where.get("port") or 0))
    with socket.socket(family) as probe, suppress(TimeoutError, socket.gaierror, UnicodeError):  # a slow one is there
        probe.settimeout(1.0)
        return probe.connect_ex(address) != 0
    return False


def cancel(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Asks the run to end; whether it hears is a matter of speed only, the token in the table refuses its write."""
    if run.status == dg.DagsterRunStatus.CANCELING:
        return False
    return bool(instance.run_coordinator.cancel_run(run.run_id))


def rest(instance: dg.DagsterInstance, job: str, **tags: str) -> float:
    """Seconds until a job that failed is launched again: 2, 4, ... 60 after as many failures in a row, 0 otherwise. Never
    more than that, whatever the clock did since."""
    over = dg.RunsFilter(job_name=job, tags=tags, statuses=[dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE])
    records = instance.get_run_records(over, limit=6)
    failures = 0
    while failures < len(records) and records[failures].dagster_run.status == dg.DagsterRunStatus.FAILURE:
        failures += 1
    if not failures:
        return 0.0
    pause = min(60.0, 2.0**failures)
    return max(0.0, min(pause, (records[0].end_time or 0.0) + pause - time.time()))
