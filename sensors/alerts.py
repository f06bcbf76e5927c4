"""Sends alerts: `make_alert_sensor(tell)` in a pipeline file is a sensor that calls `tell` for each alert.

Laws:
1. An alert is a need of `rota.face.needs` that a check of this code location quotes or that one of its sensors is; another
   check of it that fails as an error; or a run of it that failed and is not retried automatically.
2. One cause is sent once, and once more when it is over, however many runs, partitions or sensors meet it. The first tick
   also sends causes that are older than the sensor, except failed runs.
3. A failed run is over when all that failed in it succeeded later: see `is_mended`.
4. Dagster stores the sent alerts with the tick, after they were sent. If it cannot store them (SQLite waits 5 s on a busy
   machine), the next tick sends them again. In the other order an alert could be lost.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self

import dagster as dg

from rota.dagster.assets.checks import read_said
from rota.dagster.assets.names import INCARNATION, REBALANCE
from rota.dagster.assets.page_keys import NEEDS
from rota.dagster.sensors.runs import explain_failure
from rota.dagster.sensors.seen import find_location, is_here, see_sensors
from rota.face.need import Need, digest, join_needs

TICK = 30  # seconds between two ticks
MOST = 100  # failed runs that one tick tells of
PARTITION, RANGE = "dagster/partition", ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
PARTITION_TAGS = (PARTITION, *RANGE)
AGAIN = {INCARNATION, REBALANCE}  # tags of runs that a sensor launches again: a need says where it does so in vain


@dataclass(frozen=True, slots=True)
class Alert:
    """What a person is told. `title` is one line. `path` is where to look, below the address of Dagster's page."""

    title: str
    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A cause that is sent once. `source`: the check that reports it; empty for sensors and runs.

    `runs`: the ids of the runs that failed for it.
    """

    alert: Alert
    source: str = ""
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SentAlert:
    """What the cursor keeps of a sent alert: what reports its cause, its title, and the failed runs that are not mended."""

    source: str
    title: str
    path: str
    runs: tuple[str, ...] = ()

    @classmethod
    def read(cls, stored: Sequence[Any]) -> Self:
        """The alert of a cursor's row."""
        source, title, path, *runs = stored
        return cls(source, title, path, tuple(runs))

    def store(self) -> list[str]:
        """The cursor's row."""
        return [self.source, self.title, self.path, *self.runs]


@dataclass(frozen=True, slots=True)
class Quoted:
    """A need, the check that quotes it (empty: a sensor has it), and where to look."""

    need: Need
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
        sent = {key: SentAlert.read(row) for key, row in before.get("told", {}).items()}
        needs, found, silent = read_checks(context)
        found |= make_troubles([*needs, *read_sensors(context)])
        run, failed = find_failed_runs(context, before.get("run"))
        found |= failed
        kept = {key: still for key, one in sent.items() if (still := _keep(context, one, found.get(key), silent))}
        alerts = [one.alert for key, one in found.items() if key not in sent]
        over = [one for key, one in sent.items() if key not in kept]
        alerts += [Alert(f"over: {one.title}", "It is well again.", one.path) for one in over]
        for alert in alerts:
            context.log.info(alert.title)
            tell(alert)
        for key, one in found.items():
            kept.setdefault(key, SentAlert(one.source, one.alert.title, one.alert.path, one.runs))
        context.update_cursor(json.dumps({"run": run, "told": {key: one.store() for key, one in kept.items()}}))
        return dg.SkipReason("; ".join(alert.title for alert in alerts) or "no new alert")

    return call


def _keep(
    context: dg.SensorEvaluationContext, sent: SentAlert, found: Trouble | None, silent: Sequence[str]
) -> SentAlert | None:
    """The sent alert while its cause lasts; None once it is over.

    A check that has no result now (its run has not finished, or was skipped) ends no alert.
    """
    if sent.runs:
        failed = dict.fromkeys((*sent.runs, *(found.runs if found else ())))
        still = tuple(run for run in failed if not is_mended(context, run))[-MOST:]
        return replace(sent, runs=still) if still else None
    if found:
        return replace(sent, source=found.source)
    return sent if sent.source in silent else None


def is_mended(context: dg.SensorEvaluationContext, run_id: str) -> bool:
    """Whether all that failed in the run succeeded later, or the run was deleted.

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
    """What a run of a job works on: its assets (None: all of the job) and its partition or range."""
    return run.asset_selection, *(run.tags.get(tag) for tag in PARTITION_TAGS)


def read_checks(context: dg.SensorEvaluationContext) -> tuple[list[Quoted], dict[str, Trouble], list[str]]:
    """The needs that the checks of this code location quote, errors of its other checks, and checks without a result."""
    needs: list[Quoted] = []
    failing: dict[str, Trouble] = {}
    unsaid: list[str] = []
    for key in sorted(_repository(context).asset_graph.asset_check_keys, key=str):
        last, asset = read_said(context.instance, key), key.asset_key.to_user_string()
        source, path = f"{asset}:{key.name}", f"/assets/{asset}?view=checks"
        if last is None:
            unsaid.append(source)
        elif not (said := last[0]).passed and said.severity == dg.AssetCheckSeverity.ERROR:
            if quoted := getattr(said.metadata.get(NEEDS), "value", None):
                needs += [Quoted(Need.read(need), source, path) for need in quoted]
            else:
                text = said.description or "it says no reason"
                failing[f"{source} {digest(text)}"] = Trouble(Alert(f"{asset}: {key.name} failed", text, path), source)
    return needs, failing, unsaid


def read_sensors(context: dg.SensorEvaluationContext) -> Iterator[Quoted]:
    """The needs of this code location's sensors: ticks that fail, and one that is off of those that look at a pipeline, of
    which no check can tell."""
    from rota.face.needs import find_needs
    from rota.face.seen import DagsterSeen, Seen
    from rota.run.eligibility import Facts

    names = {one.name for one in _repository(context).sensor_defs}
    seen = [one for one in see_sensors(context, names) if one.on or one.name.endswith("__checks")]
    needs, _ = find_needs(Seen("", now := time.time(), Facts(now=now), dagster=DagsterSeen(sensors=seen)))
    here = find_location(context)
    for need in (one for one in needs if one.person):
        sensor = need.name.removeprefix("sensor ")
        yield Quoted(need, "", f"/locations/{here}/sensors/{sensor}")


def make_troubles(needs: Iterable[Quoted]) -> dict[str, Trouble]:
    """Cause -> its alert, which leads to the first place that reports the cause."""
    places: dict[Need, Quoted] = {}
    for one in needs:
        places.setdefault(one.need, one)
    found: dict[str, Trouble] = {}
    for joined in join_needs(places):
        first = places[joined.needs[0]]
        found[joined.key] = Trouble(Alert(joined.title, joined.line, first.path), first.source)
    return found


def find_failed_runs(context: dg.SensorEvaluationContext, after: int | None) -> tuple[int, dict[str, Trouble]]:
    """The newest failure of a run, and the runs of this code location that failed after `after`, by title and reason.

    Without `after` no run is returned: failures before the sensor's first tick send no alert.
    """
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
            key = f"{alert.title} {digest(alert.text)}"
            first = found.setdefault(key, Trouble(alert))
            found[key] = replace(first, runs=(*first.runs, run.run_id))
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
