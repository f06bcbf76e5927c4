"""Calls a person: `make_alert_sensor(tell)` in a pipeline file is a sensor that calls `tell` for each alert.

Laws:
1. An alert is a need of `rota.face.needs`, which a check of this code location quotes or which its sensors are themselves;
   another check of it that fails as an error; or a run of it that failed and is not tried again by itself.
2. One cause is told once, at least, and once when it is over; how often a run, a partition or a sensor meets it does not
   count. What was there before the sensor's first tick is told of all but runs, because it still is so.
3. Dagster stores with the tick what was told, so after it was told. Where it cannot (SQLite gives it 5 s on a busy machine)
   the next tick tells again. The other order could call nobody.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Literal

import dagster as dg

from rota.dagster.assets.checks import describe_need, read_said
from rota.dagster.assets.names import INCARNATION, REBALANCE
from rota.dagster.assets.page_keys import NEEDS
from rota.dagster.sensors.runs import ENDED, explain_failure
from rota.dagster.sensors.seen import find_location, is_here, see_sensors
from rota.ids import pipeline_of, quote

TICK = 30  # seconds between two ticks
MOST = 100  # failed runs that one tick tells of
NAMED = 3  # needs of one cause that an alert quotes
AGAIN = {INCARNATION, REBALANCE}  # tags of runs that a sensor launches again: a need says where it does so in vain


@dataclass(frozen=True, slots=True)
class Alert:
    """What a person is told. `title` is one line. `path` is where to look, below the address of Dagster's page."""

    title: str
    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is told once, by the name of its cause. `source`: the check that says so, or the job whose run failed;
    empty for sensors."""

    alert: Alert
    source: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """A need as a check quotes it; who says so, and where to look."""

    need: Mapping[str, str]
    source: str
    path: str


def make_alert_sensor(tell: Callable[[Alert], object], name: str = "alerts") -> dg.SensorDefinition:
    """The sensor. `tell` sends one alert: a message by dagster-slack, a mail. If it raises, the tick fails, and the next one
    tells of everything again that this one would have told."""

    @dg.sensor(
        name=name,
        minimum_interval_seconds=TICK,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells a person what needs one, once for each cause, and when it is over.",
    )
    def call(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        before = json.loads(context.cursor or "{}")
        told: dict[str, list[str]] = before.get("told", {})
        needs, found, unsaid = read_checks(context)
        found |= join_needs([*needs, *read_sensors(context)])
        run, failed = find_failed_runs(context, before.get("run"))
        found |= failed
        kept = {key: one for key, one in told.items() if key not in found and _still_stands(context, one[0], unsaid)}
        alerts = [one.alert for key, one in found.items() if key not in told]
        over = [one for key, one in told.items() if key not in found and key not in kept]
        alerts += [Alert(f"over: {title}", "It is well again.", path) for _, title, path in over]
        for alert in alerts:
            context.log.info(alert.title)
            tell(alert)
        new = {key: [one.source, one.alert.title, one.alert.path] for key, one in found.items()}
        kept |= {key: told.get(key, one) for key, one in new.items()}  # what is over is called what it was
        context.update_cursor(json.dumps({"run": run, "told": kept}))
        return dg.SkipReason("; ".join(alert.title for alert in alerts) or "no new alert")

    return call


def _still_stands(context: dg.SensorEvaluationContext, source: str, unsaid: list[str]) -> bool:
    """Whether what was told may still be so, although nothing says it now: its check says nothing, because a run of it has
    not finished or was skipped, or no run of its job has succeeded since."""
    if not source.startswith("job "):
        return source in unsaid
    last = context.instance.get_runs(dg.RunsFilter(job_name=source.removeprefix("job "), statuses=ENDED), limit=1)
    return bool(last) and last[0].status == dg.DagsterRunStatus.FAILURE


def digest(text: str) -> str:
    """What tells one cause from another: the text but for its numbers and ids."""
    return sha256(re.sub(r"[0-9a-f]{8,}|\d+", "#", text).encode()).hexdigest()[:16]


def read_checks(context: dg.SensorEvaluationContext) -> tuple[list[Told], dict[str, Trouble], list[str]]:
    """The needs that the checks of this code location quote, what others of them say that fail as errors, and those checks
    that say nothing now."""
    needs: list[Told] = []
    failing: dict[str, Trouble] = {}
    unsaid: list[str] = []
    for key in sorted(_repository(context).asset_graph.asset_check_keys, key=str):
        last, asset = read_said(context.instance, key), key.asset_key.to_user_string()
        source, path = f"{asset}:{key.name}", f"/assets/{asset}?view=checks"
        if last is None:
            unsaid.append(source)
        elif not (said := last[0]).passed and said.severity == dg.AssetCheckSeverity.ERROR:
            if quoted := getattr(said.metadata.get(NEEDS), "value", None):
                needs += [Told(need, source, path) for need in quoted]
            else:
                text = said.description or "it says no reason"
                failing[f"{source} {digest(text)}"] = Trouble(Alert(f"{asset}: {key.name} failed", text, path), source)
    return needs, failing, unsaid


def read_sensors(context: dg.SensorEvaluationContext) -> Iterator[Told]:
    """The needs of this code location's sensors: ticks that fail, and one that is off of those that look at a pipeline, of
    which no check can tell."""
    from rota.face.needs import find_needs
    from rota.face.seen import DagsterSeen, Seen
    from rota.run.eligibility import Facts

    names = {one.name for one in _repository(context).sensor_defs}
    seen = [one for one in see_sensors(context, names) if one.on or one.name.endswith("__checks")]
    nothing = Facts((), {}, 0, {}, {}, (), {}, (now := time.time()), {}, {})
    needs, _ = find_needs(Seen("", now, nothing, dagster=DagsterSeen(sensors=seen)))
    here = find_location(context)
    for need in (one for one in needs if one.person):
        sensor = need.name.removeprefix("sensor ")
        yield Told(describe_need(need), "", f"/locations/{here}/sensors/{sensor}")


def join_needs(needs: Iterable[Told]) -> dict[str, Trouble]:
    """The alert of each cause among the needs, by what tells it from others."""

    def find_cause(told: Told) -> tuple[str, str, str]:
        need = told.need
        about, which = need["name"], need.get("which", "")
        if need["kind"] == "partition":  # the reasons of several name each its own
            about, which = pipeline_of(about), which.replace(quote(about), "").replace(about, "")
        of = "" if need["cause"] == "fails" else about  # many sensors fail for one reason
        return of, need["cause"], which and digest(which)

    found: dict[str, Trouble] = {}
    for (about, cause, which), alike in groupby(sorted(needs, key=find_cause), key=find_cause):
        of = list(alike)
        lines = list(dict.fromkeys(one.need["line"] for one in of))
        more = f" And {len(lines) - NAMED} more." if len(lines) > NAMED else ""
        who = about or ", ".join(sorted({one.need["name"] for one in of}))
        alert = Alert(f"{who}: {cause}", "; ".join(lines[:NAMED]) + more, of[0].path)
        found[f"{cause} {about} {which}".strip()] = Trouble(alert, of[0].source)
    return found


def find_failed_runs(context: dg.SensorEvaluationContext, after: int | None) -> tuple[int, dict[str, Trouble]]:
    """The newest failure of a run, and what failed of this code location after `after`, by job and reason; nothing without
    it."""
    failed: Literal[dg.DagsterEventType.RUN_FAILURE] = dg.DagsterEventType.RUN_FAILURE
    if after is None:
        newest = context.instance.fetch_run_status_changes(failed, limit=1).records
        return (newest[0].storage_id if newest else 0), {}
    since = dg.RunStatusChangeRecordsFilter(failed, after_storage_id=after)
    records = context.instance.fetch_run_status_changes(since, limit=MOST, ascending=True).records
    found: dict[str, Trouble] = {}
    for one in records:
        run = context.instance.get_run_by_id(one.event_log_entry.run_id)
        if run is not None and _is_mine(context, run) and not AGAIN & run.tags.keys():
            alert = _describe_run(context, run, one.event_log_entry)
            found.setdefault(f"run {run.job_name} {digest(alert.text)}", Trouble(alert, f"job {run.job_name}"))
    return (records[-1].storage_id if records else after), found


def _is_mine(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Whether the run is of this code location."""
    origin = run.remote_job_origin
    here = not origin or is_here(context, origin.repository_origin.code_location_origin.location_name)
    return here and _repository(context).has_job(run.job_name)


def _describe_run(context: dg.SensorEvaluationContext, run: dg.DagsterRun, failure: dg.EventLogEntry) -> Alert:
    what = run.job_name
    if what.startswith("__"):  # Dagster's own name for what a click makes
        what = ", ".join(sorted(key.to_user_string() for key in run.asset_selection or ())) or "a click"
    return Alert(
        f"a run of {what} failed",
        explain_failure(context.instance, run.run_id)[0] or failure.message,
        f"/runs/{run.run_id}",
    )


def _repository(context: dg.SensorEvaluationContext) -> dg.RepositoryDefinition:
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError("The sensor of alerts needs its code location: use it in Definitions")
    return context.repository_def
