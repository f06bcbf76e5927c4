"""Sends alerts: `make_alert_sensor(tell)` in a pipeline file is a sensor that calls `tell` for each alert.

Laws:
1. A cause is a need of `rota.face.needs`, quoted by a check of this code location or found in its sensors; another check of
   it that fails as an error; or a run of it that failed and is not retried automatically.
2. A cause is sent once, and once more when it is over, however many runs, partitions or sensors have it. The first tick
   also sends causes that are older than the sensor, except failed runs.
3. The cause of a failed run is over when all that failed in the run succeeded later: see `has_recovered`.
4. Dagster stores the sent causes with the tick, after they were sent. If it cannot store them (SQLite waits 5 s on a busy
   machine), the next tick sends them again. In the other order an alert could be lost.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, Self

import dagster as dg

from rota.dagster.assets.checks import read_evaluation
from rota.dagster.assets.names import INCARNATION
from rota.dagster.assets.page_keys import NEEDS
from rota.dagster.sensors.runs import explain_failure
from rota.dagster.sensors.seen import find_location, is_here, read_sensors
from rota.face.dagster_state import DagsterSeen
from rota.face.need import Need, digest, join_needs
from rota.ids import REBALANCE_TAG

TICK = 30  # seconds between two ticks
MAX_RUNS = 100  # failed runs that one tick reads, and that the cursor keeps of a cause
PARTITION, RANGE = "dagster/partition", ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
PARTITION_TAGS = (PARTITION, *RANGE)
RETRIED = {INCARNATION, REBALANCE_TAG}  # tags of runs that a sensor launches again: a need reports repeated failures


@dataclass(frozen=True, slots=True)
class Alert:
    """A message to an operator. `title` is one line. `path` is where to look, below the address of Dagster's page."""

    title: str
    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cause is reported. `check` is the check that reports it, empty for sensors and runs; `path`: see `Alert`."""

    check: str
    path: str


@dataclass(frozen=True, slots=True)
class AlertCause:
    """A cause that is sent once. The cursor keeps all of it but the text.

    Args:
        title: see `Alert`.
        place: where the cause is reported first.
        text: see `Alert`.
        runs: the ids of the runs that failed for it and have not recovered.
    """

    title: str
    place: Place
    text: str = ""
    runs: tuple[str, ...] = ()

    @classmethod
    def read(cls, stored: Sequence[str]) -> Self:
        """Return the cause of a cursor's row."""
        check, title, path, *runs = stored
        return cls(title, Place(check, path), runs=tuple(runs))

    def store(self) -> list[str]:
        """Return the cursor's row."""
        return [self.place.check, self.title, self.place.path, *self.runs]


def make_alert_sensor(tell: Callable[[Alert], object], name: str = "alerts") -> dg.SensorDefinition:
    """Return the sensor.

    Args:
        tell: sends one alert, for example a message by dagster-slack or a mail. If it raises, the tick fails, and the next
            tick sends all alerts of this one again.
        name: the name of the sensor.

    Example:
        >>> alerts = make_alert_sensor(lambda alert: print(alert.title))
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=TICK,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Sends an alert once for each cause that needs an operator, and when the cause is over.",
    )
    def send_alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        before = json.loads(context.cursor or "{}")
        sent = {key: AlertCause.read(row) for key, row in before.get("told", {}).items()}
        needs, found, unknown = read_checks(context)
        found |= join_causes(needs | read_needs_of_sensors(context))
        run, failed = find_failed_runs(context, before.get("run"))
        found |= failed
        kept = {key: still for key, one in sent.items() if (still := _keep(context, one, found.get(key), unknown))}
        alerts = [Alert(one.title, one.text, one.place.path) for key, one in found.items() if key not in sent]
        over = [one for key, one in sent.items() if key not in kept]
        alerts += [Alert(f"over: {one.title}", "The cause is gone.", one.place.path) for one in over]
        for alert in alerts:
            context.log.info(alert.title)
            tell(alert)
        kept = {**found, **kept}
        context.update_cursor(json.dumps({"run": run, "told": {key: one.store() for key, one in kept.items()}}))
        return dg.SkipReason("; ".join(alert.title for alert in alerts) or "no new alert")

    return send_alerts


def _keep(
    context: dg.SensorEvaluationContext, sent: AlertCause, found: AlertCause | None, unknown: Sequence[str]
) -> AlertCause | None:
    """Return the sent cause while it lasts; None once it is over.

    A check that has no result now (its run has not finished, or was skipped) ends no cause.
    """
    if sent.runs:
        failed = dict.fromkeys((*sent.runs, *(found.runs if found else ())))
        still = tuple(run for run in failed if not has_recovered(context, run))[-MAX_RUNS:]
        return replace(sent, runs=still) if still else None
    if found:
        return replace(sent, place=replace(sent.place, check=found.place.check))
    return sent if sent.place.check in unknown else None


def has_recovered(context: dg.SensorEvaluationContext, run_id: str) -> bool:
    """Return whether all that failed in the run succeeded later, or the run was deleted.

    For a run of assets: each of its assets that the run did not materialize was materialized after it, in the run's
    partition if it has one, by any job. For each run: a later run of the same job, assets and partition succeeded. A
    success of other assets proves nothing, although Dagster runs all clicks in one job.
    """
    record = context.instance.get_run_record_by_id(run_id)
    if record is None:
        return True
    run = record.dagster_run
    ended = record.end_time or record.update_timestamp.timestamp()
    later = dg.RunsFilter(
        job_name=run.job_name,
        statuses=[dg.DagsterRunStatus.SUCCESS],
        created_after=datetime.fromtimestamp(ended, UTC),
    )
    if any(_find_work(one) == _find_work(run) for one in context.instance.get_runs(later)):
        return True
    assets = run.asset_selection or _repository(context).get_job(run.job_name).asset_layer.selected_asset_keys
    if not assets or any(tag in run.tags for tag in RANGE):
        return False
    partition = run.tags.get(PARTITION)

    def materialized(asset: dg.AssetKey) -> bool:
        since = dg.AssetRecordsFilter(asset, asset_partitions=[partition] if partition else None, after_timestamp=ended)
        return bool(context.instance.fetch_materializations(since, limit=1).records)

    done = context.instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION).records
    return all(materialized(asset) for asset in set(assets) - {one.asset_key for one in done})


def _find_work(run: dg.DagsterRun) -> tuple[object, ...]:
    """Return what a run of a job works on: its assets (None: all of the job) and its partition or range."""
    return run.asset_selection, *(run.tags.get(tag) for tag in PARTITION_TAGS)


def read_checks(
    context: dg.SensorEvaluationContext,
) -> tuple[dict[Need, Place], dict[str, AlertCause], list[str]]:
    """Read the checks of this code location.

    Returns:
        the needs in their results, each with the first check that contains it; the errors of the other checks; and the
        checks without a result.
    """
    needs: dict[Need, Place] = {}
    failing: dict[str, AlertCause] = {}
    unknown: list[str] = []
    for key in sorted(_repository(context).asset_graph.asset_check_keys, key=str):
        last, asset = read_evaluation(context.instance, key), key.asset_key.to_user_string()
        place = Place(f"{asset}:{key.name}", f"/assets/{asset}?view=checks")
        if last is None:
            unknown.append(place.check)
        elif not (evaluation := last[0]).passed and evaluation.severity == dg.AssetCheckSeverity.ERROR:
            if quoted := getattr(evaluation.metadata.get(NEEDS), "value", None):
                needs = {Need.read(need): place for need in quoted} | needs
            else:
                text = evaluation.description or "the check gives no reason"
                failing[f"{place.check} {digest(text)}"] = AlertCause(f"{asset}: {key.name} failed", place, text)
    return needs, failing, unknown


def read_needs_of_sensors(context: dg.SensorEvaluationContext) -> dict[Need, Place]:
    """Return the needs of this code location's sensors: ticks that fail, and a sensor of checks that is turned off. No check
    reports these.
    """
    from rota.face.needs import find_needs
    from rota.face.seen import Seen
    from rota.run.eligibility import Facts

    names = {one.name for one in _repository(context).sensor_defs}
    sensors = [one for one in read_sensors(context, names) if one.on or one.name.endswith("__checks")]
    needs, _ = find_needs(Seen("", now := time.time(), Facts(now=now), dagster=DagsterSeen(sensors=sensors)))
    here = f"/locations/{find_location(context)}/sensors"
    return {need: Place("", f"{here}/{need.name.removeprefix('sensor ')}") for need in needs if need.person}


def join_causes(needs: Mapping[Need, Place]) -> dict[str, AlertCause]:
    """Return key -> the cause of needs that have one cause, at the place of the first of them."""
    return {one.key: AlertCause(one.title, needs[one.needs[0]], one.line) for one in join_needs(needs)}


def find_failed_runs(context: dg.SensorEvaluationContext, after: int | None) -> tuple[int, dict[str, AlertCause]]:
    """Return the newest failure of a run, and the runs of this code location that failed after `after`, by title and reason.

    Without `after` no run is returned: failures before the sensor's first tick send no alert.
    """
    failed: Literal[dg.DagsterEventType.RUN_FAILURE] = dg.DagsterEventType.RUN_FAILURE
    if after is None:
        newest = context.instance.fetch_run_status_changes(failed, limit=1).records
        return (newest[0].storage_id if newest else 0), {}
    since = dg.RunStatusChangeRecordsFilter(failed, after_storage_id=after)
    records = context.instance.fetch_run_status_changes(since, limit=MAX_RUNS, ascending=True).records
    found: dict[str, AlertCause] = {}
    for one in records:
        run = context.instance.get_run_by_id(one.event_log_entry.run_id)
        if run is not None and _is_here(context, run) and not RETRIED & run.tags.keys():
            cause = _describe_run(context, run, one.event_log_entry)
            key = f"{cause.title} {digest(cause.text)}"
            first = found.setdefault(key, cause)
            found[key] = replace(first, runs=(*first.runs, run.run_id))
    return (records[-1].storage_id if records else after), found


def _is_here(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Return whether the run is of this code location."""
    origin = run.remote_job_origin
    mine = not origin or is_here(context, origin.repository_origin.code_location_origin.location_name)
    return mine and _repository(context).has_job(run.job_name)


def _describe_run(context: dg.SensorEvaluationContext, run: dg.DagsterRun, failure: dg.EventLogEntry) -> AlertCause:
    what = run.job_name
    if what.startswith("__"):  # Dagster's own name for the job of a click
        what = ", ".join(sorted(key.to_user_string() for key in run.asset_selection or ())) or "a click"
    why = explain_failure(context.instance, run.run_id)[0] or failure.message
    return AlertCause(f"a run of {what} failed", Place("", f"/runs/{run.run_id}"), why)


def _repository(context: dg.SensorEvaluationContext) -> dg.RepositoryDefinition:
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError("The sensor of alerts needs its code location: use it in Definitions")
    return context.repository_def
