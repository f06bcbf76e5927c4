"""Reads rota's runs from Dagster's run storage. Law: a caller reads the runs first and ZooKeeper afterwards."""

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

import dagster as dg
from dagster._core.storage.tags import GRPC_INFO_TAG  # private: the address of the code server that started a run

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
SETTLING = 5.0  # seconds in which the server of a new run may not listen yet


def list_unfinished(instance: dg.DagsterInstance, job: str) -> list[dg.DagsterRun]:
    """The job's runs that have not finished, whoever launched them.

    Reports a run as failed whose process ended with its code server: Dagster's default launcher does not notice, and the run
    would be "started" for ever.
    """
    going: list[dg.DagsterRun] = []
    for record in instance.get_run_records(dg.RunsFilter(job_name=job, statuses=UNFINISHED)):
        age = abs(time.time() - record.update_timestamp.timestamp())  # the clock may have gone back
        if age > SETTLING and _orphaned(record.dagster_run.tags):
            instance.report_run_failed(record.dagster_run, "Its process ended with Dagster's code server.")
        else:
            going.append(record.dagster_run)
    return going


def _orphaned(tags: Mapping[str, str]) -> bool:
    """Whether the server that launched the run is gone. False for a queued run, which has none yet, and for a host without
    an address now."""
    where = json.loads(tags.get(GRPC_INFO_TAG, "{}"))
    if not where:
        return False
    family = socket.AF_UNIX if where.get("socket") else socket.AF_INET
    address = where.get("socket") or (where.get("host") or "localhost", int(where.get("port") or 0))
    with (
        socket.socket(family) as probe,
        suppress(TimeoutError, socket.gaierror, UnicodeError),
    ):  # a slow server is not gone
        probe.settimeout(1.0)
        return probe.connect_ex(address) != 0
    return False


def cancel(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Asks the run to end. It need not obey: the token in the table refuses its write."""
    if run.status == dg.DagsterRunStatus.CANCELING:
        return False
    return bool(instance.run_coordinator.cancel_run(run.run_id))


def read_pause(instance: dg.DagsterInstance, job: str, **tags: str) -> float:
    """Seconds until the job may be launched again: 2, 4, ... 60 after as many failures in a row, at most, else 0."""
    over = dg.RunsFilter(job_name=job, tags=tags, statuses=[dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE])
    records = instance.get_run_records(over, limit=6)
    failures = 0
    while failures < len(records) and records[failures].dagster_run.status == dg.DagsterRunStatus.FAILURE:
        failures += 1
    if not failures:
        return 0.0
    pause = min(60.0, 2.0**failures)
    return max(0.0, min(pause, (records[0].end_time or 0.0) + pause - time.time()))
