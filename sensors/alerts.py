"""Calls a person: `make_alert_sensor(tell)` in a pipeline file is a sensor that calls `tell` for each alert.

Law: an alert is an asset check of this code location that fails as an error, a run of it that failed, or a sensor of it
whose ticks have failed for a while; nothing else is one. Each is told at least once, and a check or a sensor again only when
it says something else. What was there before the sensor's first tick is told of checks and sensors, because they still fail,
and not of runs.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from typing import Any, Literal

import dagster as dg

from rota.dagster.assets.checks import read_said

MOST = 100  # failed runs that one tick tells of
TICKS = 20  # of a sensor that are looked at
PATIENCE = 60.0  # seconds in which ticks may fail: an election of ZooKeeper's leader takes less


@dataclass(frozen=True, slots=True)
class Alert:
    """What a person is told. `title` is one line. `path` is where to look, below the address of Dagster's page."""

    title: str
    text: str
    path: str


def make_alert_sensor(tell: Callable[[Alert], object], name: str = "alerts") -> dg.SensorDefinition:
    """The sensor. `tell` sends one alert: a message by dagster-slack, a mail. If it raises, the tick fails, and the next one
    tells of everything again that this one would have told."""

    @dg.sensor(
        name=name,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells a person of asset checks that fail as errors, of runs that failed and of sensors that fail.",
    )
    def call(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        before = json.loads(context.cursor or "{}")
        told: dict[str, str] = before.get("told", {})
        failing, unsaid = find_failing_checks(context)
        failing |= find_failing_sensors(context)
        run, alerts = find_failed_runs(context, before.get("run"))
        alerts += [alert for key, alert in failing.items() if told.get(key) != digest(alert)]
        for alert in alerts:
            context.log.info(alert.title)
            tell(alert)
        kept = {key: told[key] for key in unsaid if key in told}
        kept |= {key: digest(alert) for key, alert in failing.items()}
        context.update_cursor(json.dumps({"run": run, "told": kept}))
        return dg.SkipReason("; ".join(alert.title for alert in alerts) or "no new alert")

    return call


def digest(alert: Alert) -> str:
    """What tells one alert of a check or a sensor from another."""
    return sha256(f"{alert.title}\n{alert.text}".encode()).hexdigest()[:16]


def find_failing_checks(context: dg.SensorEvaluationContext) -> tuple[dict[str, Alert], list[str]]:
    """The checks of this code location whose newest evaluation failed as an error, by name; and those that say nothing now,
    because a run of them has not finished or was skipped."""
    failing: dict[str, Alert] = {}
    unsaid: list[str] = []
    for key in sorted(_repository(context).asset_graph.asset_check_keys, key=str):
        last, asset = read_said(context.instance, key), key.asset_key.to_user_string()
        if last is None:
            unsaid.append(f"{asset}:{key.name}")
        elif not (said := last[0]).passed and said.severity == dg.AssetCheckSeverity.ERROR:
            title = f"{asset}: {key.name} failed"
            failing[f"{asset}:{key.name}"] = Alert(title, said.description or title, f"/assets/{asset}?view=checks")
    return failing, unsaid


def find_failing_sensors(context: dg.SensorEvaluationContext) -> dict[str, Alert]:
    """The sensors of this code location that are on and whose ticks have failed for `PATIENCE` seconds, by name."""
    failing: dict[str, Alert] = {}
    for state in context.instance.all_instigator_state():
        name, location = state.name, state.repository_selector.location_name
        if not (state.is_running and _is_here(context, location) and _repository(context).has_sensor_def(name)):
            continue
        ticks = context.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=TICKS)
        failed = list(takewhile(lambda tick: tick.is_failure, (tick for tick in ticks if tick.is_completed)))
        if failed and failed[0].timestamp - failed[-1].timestamp >= PATIENCE:
            why = _shorten(failed[0].error) or "its ticks fail"
            failing[f"sensor {name}"] = Alert(f"sensor {name} fails", why, f"/locations/{location}/sensors/{name}")
    return failing


def _is_here(context: dg.SensorEvaluationContext, location: str) -> bool:
    """Whether that is the code location of this sensor."""
    here = context.code_location_origin  # none without a code server
    return here is None or here.location_name == location


def find_failed_runs(context: dg.SensorEvaluationContext, after: int | None) -> tuple[int, list[Alert]]:
    """The newest failure of a run, and an alert for each of this code location after `after`; none without it."""
    failed: Literal[dg.DagsterEventType.RUN_FAILURE] = dg.DagsterEventType.RUN_FAILURE
    if after is None:
        newest = context.instance.fetch_run_status_changes(failed, limit=1).records
        return (newest[0].storage_id if newest else 0), []
    since = dg.RunStatusChangeRecordsFilter(failed, after_storage_id=after)
    records = context.instance.fetch_run_status_changes(since, limit=MOST, ascending=True).records
    found = [_describe_run(context, one.event_log_entry) for one in records]
    return (records[-1].storage_id if records else after), [alert for alert in found if alert]


def _describe_run(context: dg.SensorEvaluationContext, failure: dg.EventLogEntry) -> Alert | None:
    """The alert of a failed run; None for one of another code location or one that is gone."""
    run = context.instance.get_run_by_id(failure.run_id)
    if run is None or not _repository(context).has_job(run.job_name):
        return None
    origin = run.remote_job_origin
    if origin and not _is_here(context, origin.repository_origin.code_location_origin.location_name):
        return None
    steps = context.instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE).records
    whys = [_explain(one.event_log_entry.dagster_event) for one in steps if one.event_log_entry.dagster_event]
    return Alert(f"a run of {run.job_name} failed", "; ".join(whys) or failure.message, f"/runs/{run.run_id}")


def _explain(failure: dg.DagsterEvent) -> str:
    """Why a step failed, in one line: what it was told to say, else its error."""
    data = failure.step_failure_data
    if data.user_failure_data and data.user_failure_data.description:
        return data.user_failure_data.description
    return _shorten(data.error) or failure.message or ""


def _shorten(error: Any) -> str:
    """The error in one line; empty without one."""
    cause = error.cause or error if error else None  # the first is Dagster's, around what it called
    return " ".join(cause.message.split()) if cause else ""


def _repository(context: dg.SensorEvaluationContext) -> dg.RepositoryDefinition:
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError("The sensor of alerts needs its code location: use it in Definitions")
    return context.repository_def
