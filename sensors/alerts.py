"""Calls a person: `make_alert_sensor(tell)` in a pipeline file is a sensor that calls `tell` for each alert.

Laws:
1. An alert is a need of `rota.face.needs` on a check of this code location, another check of it that fails as an error, a
   run of it that failed and is not tried again by itself, or sensors of it whose ticks have failed for a while.
2. One cause is told once, at least, and once when it is over; how often a run, a partition or a sensor meets it does not
   count. What was there before the sensor's first tick is told of all but runs, because it still is so.
"""

import json
import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby, takewhile
from typing import Literal

import dagster as dg

from rota.dagster.assets.checks import NEEDS, read_said
from rota.dagster.assets.names import INCARNATION, REBALANCE
from rota.dagster.sensors.runs import ENDED, explain_failure, shorten
from rota.ids import pipeline_of, quote

MOST = 100  # failed runs that one tick tells of
NAMED = 3  # needs of one cause that an alert quotes
TICKS = 20  # of a sensor that are looked at
ELECTION = 60.0  # seconds in which ticks may fail: an election of ZooKeeper's leader takes less
TIMES = re.compile(r" \(failed \d+x\)")  # in a line: another number is no other cause
AGAIN = 3  # failures in a row of runs that are launched again by themselves


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


def make_alert_sensor(tell: Callable[[Alert], object], name: str = "alerts") -> dg.SensorDefinition:
    """The sensor. `tell` sends one alert: a message by dagster-slack, a mail. If it raises, the tick fails, and the next one
    tells of everything again that this one would have told."""

    @dg.sensor(
        name=name,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells a person what needs one, once for each cause, and when it is over.",
    )
    def call(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        before = json.loads(context.cursor or "{}")
        told: dict[str, list[str]] = before.get("told", {})
        found, unsaid = find_failing_checks(context)
        found = join(found, find_failing_sensors(context), told)
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


def join(checks: dict[str, Trouble], sensors: dict[str, Trouble], told: Container[str]) -> dict[str, Trouble]:
    """What checks and sensors say; of what both say one: the check where that alone was told before, else the sensors."""
    both = [
        (c, s) for c, one in checks.items() for s, other in sensors.items() if _says(one.alert.text, other.alert.text)
    ]
    left_out = {s if c in told and s not in told else c for c, s in both}
    return {key: one for key, one in (checks | sensors).items() if key not in left_out}


def _says(text: str, why: str) -> bool:
    """Whether the text of a check holds what a sensor said. A check shows names as code."""
    return why.replace("`", "") in text.replace("`", "")


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


def find_failing_checks(context: dg.SensorEvaluationContext) -> tuple[dict[str, Trouble], list[str]]:
    """What the checks of this code location say that fail as errors, by cause; and those checks that say nothing now."""
    failing: dict[str, Trouble] = {}
    unsaid: list[str] = []
    for key in sorted(_repository(context).asset_graph.asset_check_keys, key=str):
        last, asset = read_said(context.instance, key), key.asset_key.to_user_string()
        source, path = f"{asset}:{key.name}", f"/assets/{asset}?view=checks"
        if last is None:
            unsaid.append(source)
        elif not (said := last[0]).passed and said.severity == dg.AssetCheckSeverity.ERROR:
            if needs := getattr(said.metadata.get(NEEDS), "value", None):
                failing |= {k: Trouble(alert, source) for k, alert in _explain_needs(needs, path) if k not in failing}
            else:
                text = said.description or "it says no reason"
                failing[f"{source} {digest(text)}"] = Trouble(Alert(f"{asset}: {key.name} failed", text, path), source)
    return failing, unsaid


def _explain_needs(needs: list[dict[str, str]], path: str) -> Iterator[tuple[str, Alert]]:
    """Each cause among the needs of a check, with its alert."""

    def find_cause(need: dict[str, str]) -> tuple[str, str, str]:
        partition = need["kind"] == "partition"
        about = pipeline_of(need["name"]) if partition else need["name"]
        plain = TIMES.sub("", need["line"]).replace(quote(need["name"]), "").replace(need["name"], "")
        return about, need["cause"], digest(plain) if need["cause"] == "parked" else ""

    for (about, cause, which), alike in groupby(sorted(needs, key=find_cause), key=find_cause):
        lines = [need["line"] for need in alike]
        more = f" And {len(lines) - NAMED} more." if len(lines) > NAMED else ""
        yield f"{cause} {about} {which}".strip(), Alert(f"{about}: {cause}", "; ".join(lines[:NAMED]) + more, path)


def find_failing_sensors(context: dg.SensorEvaluationContext) -> dict[str, Trouble]:
    """Why the ticks of sensors of this code location that are on have failed for `ELECTION` seconds; and those of rota's
    checks that are off, of which no check can tell."""
    of: dict[str, tuple[str, list[str], str]] = {}
    off: dict[str, Trouble] = {}
    for state in context.instance.all_instigator_state():
        name, location = state.name, state.repository_selector.location_name
        if not (_is_here(context, location) and _repository(context).has_sensor_def(name)):
            continue
        path = f"/locations/{location}/sensors/{name}"
        if not state.is_running:
            if name.endswith("__checks"):
                text = "Nobody looks at its pipeline until it is turned on, on Dagster's page."
                off[f"off {name}"] = Trouble(Alert(f"sensor {name} is turned off", text, path))
            continue
        ticks = context.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=TICKS)
        failed = list(takewhile(lambda tick: tick.is_failure, (tick for tick in ticks if tick.is_completed)))
        if failed and failed[0].timestamp - failed[-1].timestamp >= ELECTION:
            why = shorten(failed[0].error) or "its ticks fail"
            of.setdefault(digest(why), (why, [], path))[1].append(name)
    return off | {
        f"sensors {which}": Trouble(
            Alert(f"sensor{'s' if len(names) > 1 else ''} {', '.join(sorted(names))}: every tick fails", why, path)
        )
        for which, (why, names, path) in of.items()
    }


def _is_here(context: dg.SensorEvaluationContext, location: str) -> bool:
    """Whether that is the code location of this sensor."""
    here = context.code_location_origin  # none without a code server
    return here is None or here.location_name == location


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
        if run is not None and _is_mine(context, run) and not _is_tried_again(context, run):
            alert = _describe_run(context, run, one.event_log_entry)
            found.setdefault(f"run {run.job_name} {digest(alert.text)}", Trouble(alert, f"job {run.job_name}"))
    return (records[-1].storage_id if records else after), found


def _is_mine(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Whether the run is of this code location."""
    origin = run.remote_job_origin
    here = not origin or _is_here(context, origin.repository_origin.code_location_origin.location_name)
    return here and _repository(context).has_job(run.job_name)


def _is_tried_again(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Whether a sensor launches such a run again, and has not done so in vain yet. Of runs for a worker a check says it."""
    if INCARNATION in run.tags:
        return True
    if REBALANCE not in run.tags:
        return False
    last = context.instance.get_runs(dg.RunsFilter(job_name=run.job_name, statuses=ENDED), limit=AGAIN)
    return len(last) < AGAIN or any(one.status == dg.DagsterRunStatus.SUCCESS for one in last)


def _describe_run(context: dg.SensorEvaluationContext, run: dg.DagsterRun, failure: dg.EventLogEntry) -> Alert:
    what = run.job_name
    if what.startswith("__"):  # Dagster's own name for what a click makes
        what = ", ".join(sorted(key.to_user_string() for key in run.asset_selection or ())) or "a click"
    return Alert(
        f"a run of {what} failed",
        explain_failure(context.instance, run.run_id) or failure.message,
        f"/runs/{run.run_id}",
    )


def _repository(context: dg.SensorEvaluationContext) -> dg.RepositoryDefinition:
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError("The sensor of alerts needs its code location: use it in Definitions")
    return context.repository_def
