"""Reads rota's runs from Dagster's run storage. Invariant: a caller reads the runs first and ZooKeeper afterwards."""

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import dagster as dg

from rota.dagster.assets.liveness import make_liveness_tag
from rota.dagster.assets.names import LIVENESS_TAG
from rota.dagster.assets.page_keys import ERROR
from rota.dagster.private import GRPC_INFO_TAG, LOCATION_TAG
from rota.face.dagster_state import RUNS, FailedRuns, RunRow, judge_runs

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
SETTLING = 5.0  # seconds in which the server of a new run may not listen yet
SUBMITTED = 60.0  # seconds in which the process that made a run submits it
LONGEST_START = 300.0  # seconds between the start of a run's process and its liveness znode


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a job that have these tags.

    Law: a code location never reads the runs of another code location of the instance, even if their jobs have one name.
    """

    instance: dg.DagsterInstance
    job: str
    tags: Mapping[str, str]

    @classmethod
    def of(cls, context: dg.SensorEvaluationContext, job: str) -> Self:
        """Return the runs of the job of the sensor's own code location."""
        origin = context.code_location_origin  # none without a code server
        here = {LOCATION_TAG: f"{context.repository_name}@{origin.location_name}"} if origin else {}
        return cls(context.instance, job, here)

    def list_unfinished(self, tree: "GroupState") -> list[dg.DagsterRun]:
        """Return the runs that have not finished, also those of a click; `tree` is the group that they work for.

        A run whose process ended, for example with its code server, is reported as failed: Dagster's default launcher does
        not detect that, and the run would be "started" for ever. So is a run that was created and never submitted.
        """
        records = self.instance.get_run_records(
            dg.RunsFilter(job_name=self.job, tags=dict(self.tags), statuses=UNFINISHED)
        )
        alive = tree.live_runs() if records else frozenset[str]()  # after the runs: a run with the tag has its node
        unfinished: list[dg.DagsterRun] = []
        for record in records:
            run, age = record.dagster_run, time.time() - record.update_timestamp.timestamp()
            # the clock may have been set back
            if abs(age) > SETTLING and (why := _find_end(run, tree.group, alive, age)):
                self.instance.report_run_failed(run, why)
            else:
                unfinished.append(run)
        return unfinished

    def cancel(self, run: dg.DagsterRun) -> bool:
        """Request the end of the run. If it continues, the token in the table refuses its write."""
        if run.status == dg.DagsterRunStatus.CANCELING:
            return False
        return bool(self.instance.run_coordinator.cancel_run(run.run_id))

    def read_pause(self, tags: Mapping[str, str] = MappingProxyType({})) -> float:
        """Return the seconds until another run with these tags may be launched: 2, 4, ... 60 after as many failures in a
        row; 0 if the last run succeeded.
        """
        failed = list(takewhile(lambda row: row.failed, self._list_ended(tags, 6)))
        if not failed:
            return 0.0
        pause = min(60.0, 2.0 ** len(failed))
        return max(0.0, min(pause, failed[0].ended + pause - time.time()))

    def read_failures(self, tag: str) -> list[FailedRuns]:
        """Return the newest runs with this tag that failed in a row; see `judge_runs`."""
        return judge_runs(self._list_ended({}, RUNS), tag, partial(explain_failure, self.instance), time.time())

    def _list_ended(self, tags: Mapping[str, str], most: int) -> list[RunRow]:
        over = dg.RunsFilter(job_name=self.job, tags={**self.tags, **tags}, statuses=ENDED)
        records = self.instance.get_run_records(over, limit=most)
        return [
            RunRow(run.run_id, run.tags, run.status == dg.DagsterRunStatus.FAILURE, one.end_time or 0.0)
            for one in records
            for run in [one.dagster_run]
        ]


def explain_failure(instance: dg.DagsterInstance, run_id: str) -> tuple[str, str]:
    """Return why the run's steps failed, in one line, and the kind of an expected error; both empty if none failed."""
    steps = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE).records
    found = [_explain(one.event_log_entry.dagster_event) for one in steps if one.event_log_entry.dagster_event]
    return "; ".join(why for why, _ in found), next((kind for _, kind in found if kind), "")


def _explain(failure: dg.DagsterEvent) -> tuple[str, str]:
    given = failure.step_failure_data.user_failure_data
    kind = getattr(given.metadata.get(ERROR), "value", None) if given and given.metadata else None
    why = (given.description if given else None) or shorten(failure.step_failure_data.error) or failure.message
    return why or "", str(kind or "")


def shorten(error: Any) -> str:
    """Return the error in one line; empty if there is none."""
    cause = error.cause or error if error else None  # the outer error is Dagster's
    return " ".join(cause.message.split()) if cause else ""


def _find_end(run: dg.DagsterRun, group: str, alive: frozenset[str], age: float) -> str:
    """Return why a run that Dagster's storage has as unfinished is over; empty if it is not, or if that is unknown.

    Args:
        run: the run.
        group: the group that it works for.
        alive: the runs that have a liveness znode.
        age: seconds since the storage last changed the run.
    """
    if run.tags.get(LIVENESS_TAG) == make_liveness_tag(group, run.run_id):
        return "" if run.run_id in alive else "Its process ended, or lost its session with ZooKeeper."
    if run.status == dg.DagsterRunStatus.NOT_STARTED and abs(age) > SUBMITTED:
        return "It was never submitted: the process that launched it died before."
    where = json.loads(run.tags.get(GRPC_INFO_TAG, "{}"))  # Dagster's default launcher alone stores the address
    if not where:
        return ""
    if (answers := _answers(where)) is False:
        return "Its process ended with Dagster's code server."
    started = run.status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
    return "Its process ended before its work began, or after." if answers and started and age > LONGEST_START else ""


def _answers(where: Mapping[str, str]) -> bool | None:
    """Return whether a process listens at the address of a code server; None if the server is slow or its host cannot be
    reached.
    """
    try:
        if where.get("socket"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(1.0)
                probe.connect(where["socket"])
        else:
            socket.create_connection((where.get("host") or "localhost", int(where.get("port") or 0)), 1.0).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except (OSError, UnicodeError):
        return None
    return True
