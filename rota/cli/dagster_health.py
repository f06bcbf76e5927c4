"""Reads the state of Dagster over GraphQL: the code locations, rota's sensors, and the last runs of each pipeline.

Laws: it changes nothing. A page that does not answer is reported as silent. Of several deployments on one instance it
reads the one that ROTA_LOCATION names; without ROTA_LOCATION, all that have these pipelines.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rota.errors import EnvironmentFailed, printable
from rota.face.dagster_state import (
    LOST,
    RUNS,
    TICKS,
    DagsterSeen,
    FailedRuns,
    RunRow,
    SensorRow,
    Tick,
    judge_runs,
    judge_sensors,
)
from rota.ids import REBALANCE_TAG, WORKER_TAG, dagster_name, split_dagster_name
from rota.local.page import DagsterPage

LOCATIONS = """query Health { workspaceOrError { __typename ... on PythonError { message }
  ... on Workspace { locationEntries { name loadStatus locationOrLoadError { __typename
    ... on PythonError { className message causes { message } }
    ... on RepositoryLocation { repositories { name sensors { name sensorState { status } } } } } } } } }"""
# One query per sensor: a query for all sensors of a code location omits the ticks after its code server was restarted.
OF_SENSOR = """{alias}: sensorOrError(sensorSelector: {{repositoryLocationName: "{location}", repositoryName: "{repository}",
  sensorName: "{name}"}}) {{ ... on Sensor {{ sensorState {{
  ticks(limit: {ticks}) {{ status timestamp endTimestamp error {{ className message causes {{ message }} }} }} }} }} }}"""
LAST = """{alias}: runsOrError(filter: {{pipelineName: "{job}", tags: [{{key: ".dagster/repository", value: "{place}"}}],
  statuses: [SUCCESS, FAILURE]}}, limit: {most}) {{ ... on Runs {{ results {{
  runId status endTime tags {{ key value }} }} }} }}"""
FILES = """{alias}: assetCheckExecutions(assetKey: {{path: {path}}}, checkName: "every_file_served", limit: 1) {{
  evaluation {{ success metadataEntries {{ label ... on JsonMetadataEntry {{ jsonString }} }} }} }}"""
JOBS = {"backlog": ("consume", WORKER_TAG), "membership": ("rebalance", REBALANCE_TAG)}  # sensor -> job, tag
SENSOR_KINDS = ("membership", "backlog", "checks")


def read_dagster(page: DagsterPage, pipelines: Sequence[str], groups: Iterable[str]) -> DagsterSeen:
    """Return what the page reports of the sensors and runs of these pipelines and groups."""
    try:
        workspace = page.ask(LOCATIONS)["workspaceOrError"]
        if workspace["__typename"] != "Workspace":
            return DagsterSeen(printable(str(workspace.get("message"))))
        names = {dagster_name(of, kind) for of in (*pipelines, *groups) for kind in SENSOR_KINDS}
        entries = workspace["locationEntries"]
        found = [one for entry in entries for one in _list_sensors(entry) if _is_named(one["name"], names)]
        mine = [one for one in found if _is_meant(page.location, one["location"], one["name"], names)]
        rows = _read_sensors(page, mine, pipelines)
        now = page.read_clock()
        failed = _read_failures(page, "backlog", pipelines, mine, now)
        rebalances = {of: one for of, (one, *_) in _read_failures(page, "membership", groups, mine, now).items()}
        refused = _read_refused(page, mine)
    except EnvironmentFailed as error:
        return DagsterSeen(str(error))
    where = page.location.partition("/")[0]
    meant = [entry for entry in entries if where in ("", entry["name"])]
    broken = {one["name"]: f"it is not loaded: {why}" for one in meant if (why := _find_fault(one))}
    locations = broken | _find_doubles(found, where)
    if not meant:
        locations[where] = "it is not there: correct ROTA_LOCATION, or the workspace"
    served = [one["name"] for one in mine]
    unserved = [p for p in pipelines if not any(_is_named(s, {dagster_name(p, "backlog")}) for s in served)]
    sensors, silent = judge_sensors(rows, now)
    lost = {one["name"]: 0.0 for one in meant if _is_lost(one["locationOrLoadError"] or {})} | silent
    loading = lost or any(entry["loadStatus"] == "LOADING" for entry in meant)
    return DagsterSeen("", locations, sensors, lost, () if loading else unserved, failed, rebalances, refused)


def _find_fault(entry: Mapping[str, Any]) -> str:
    """Return why the code location is not loaded; empty if it is, or if its code server did not answer."""
    there = entry["locationOrLoadError"] or {}
    return _shorten(there) if there.get("__typename") == "PythonError" and not _is_lost(there) else ""


def _is_lost(error: Mapping[str, Any]) -> bool:
    """Return whether no code server answered."""
    return error.get("className") == LOST


def _list_sensors(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the sensors of a code location, each with the location and its repository."""
    for repository in (entry["locationOrLoadError"] or {}).get("repositories", []):
        for sensor in repository["sensors"]:
            yield {**sensor, "location": entry["name"], "repository": repository["name"]}


def _is_named(sensor: str, names: Iterable[str]) -> bool:
    """Return whether the sensor has one of these names, with a key prefix or without."""
    return any(sensor == name or sensor.endswith(f"__{name}") for name in names)


def _is_meant(chosen: str, location: str, sensor: str, names: Iterable[str]) -> bool:
    """Return whether the sensor is in the deployment `chosen`: `LOCATION` or `LOCATION/PREFIX`; empty: any."""
    where, *prefix = chosen.split("/")
    return where in ("", location) and (not prefix or sensor in {f"{dagster_name(*prefix)}__{name}" for name in names})


def _find_doubles(sensors: Iterable[Mapping[str, Any]], where: str) -> dict[str, str]:
    """Return the code locations that have a sensor of one name -> why that is a fault. Dagster stores by name alone, so it
    mixes them silently.

    Args:
        sensors: the sensors of all code locations.
        where: the code location that one of them must be; empty: any.
    """
    places: dict[str, list[str]] = {}
    for sensor in sensors:
        places.setdefault(sensor["name"], []).append(sensor["location"])
    why = (
        "each of them has the sensor {}, so their assets and partition sets are the same. Give one of them a key_prefix"
    )
    mixed = {name: at for name, at in places.items() if len(at) > 1 and (not where or where in at)}
    return {", ".join(at): why.format(name) for name, at in mixed.items()}


def _read_sensors(page: DagsterPage, sensors: Sequence[Mapping[str, Any]], pipelines: Sequence[str]) -> list[SensorRow]:
    """Return the sensors with their newest ticks."""
    query = " ".join(OF_SENSOR.format(alias=f"s{n}", ticks=TICKS, **one) for n, one in enumerate(sensors))
    found = page.ask(f"query Ticks {{ {query} }}") if query else {}
    rows = []
    for number, one in enumerate(sensors):
        ticks = [_make_tick(tick) for tick in (found[f"s{number}"].get("sensorState") or {}).get("ticks", [])]
        of = (p for p in pipelines if _is_named(one["name"], {dagster_name(p, kind) for kind in ("backlog", "checks")}))
        on = one["sensorState"]["status"] == "RUNNING"
        rows.append(SensorRow(one["name"], on, ticks, one["location"], next(of, "")))
    return rows


def _read_refused(page: DagsterPage, sensors: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return pipeline file -> why Dagster does not serve all of it, from the check `every_file_served`."""
    paths = [split_dagster_name(one["name"]) for one in sensors if one["name"].endswith("__membership")]
    query = " ".join(FILES.format(alias=f"m{n}", path=json.dumps(path)) for n, path in enumerate(paths))
    found: dict[str, str] = {}
    for executions in (page.ask(f"query Files {{ {query} }}") if query else {}).values():
        for evaluation in (one["evaluation"] for one in executions if one["evaluation"]):
            entries = {entry["label"]: entry.get("jsonString") for entry in evaluation["metadataEntries"]}
            found |= {
                str(file): printable(str(why)) for file, why in json.loads(entries.get("refused") or "{}").items()
            }
    return found


def _make_tick(tick: Mapping[str, Any]) -> Tick:
    begun, failed, error = tick["timestamp"], tick["status"] == "FAILURE", tick["error"] or {}
    why, kind = _shorten(error) if failed else "", error.get("className") or ""
    return Tick(begun, tick["endTimestamp"] or begun, tick["status"] != "STARTED", failed, why, kind)


def _shorten(error: Mapping[str, Any]) -> str:
    """Return the error in one line: the innermost cause, if Dagster wrapped it."""
    causes = [str(one["message"]) for one in error.get("causes") or ()]
    text = " ".join((causes[-1] if causes else str(error.get("message", "its ticks fail"))).split())
    return printable(re.sub(r"^[\w.]*(?:Error|Exception): ", "", text)[:500])


def _read_failures(
    page: DagsterPage, kind: str, of: Iterable[str], sensors: Iterable[Mapping[str, Any]], now: float
) -> dict[str, list[FailedRuns]]:
    """Return pipeline or group -> the runs that its sensor of this kind launched and that failed in a row.

    Runs of another code location belong to another deployment, whatever their job is called. `now` is Dagster's clock.
    """
    what, tag = JOBS[kind]
    asked: dict[str, str] = {}
    query = ""
    for number, sensor in enumerate(sensors):
        name = next((one for one in of if _is_named(sensor["name"], {dagster_name(one, kind)})), None)
        if name is not None:
            asked[alias := f"p{number}"] = name
            job = sensor["name"].removesuffix(kind) + what
            place = f"{sensor['repository']}@{sensor['location']}"
            query += LAST.format(alias=alias, job=job, place=place, most=RUNS)
    answer = page.ask(f"query Failures {{ {query} }}") if query else {}

    def explain(run: str) -> tuple[str, str]:
        outcome = page.read_outcome(run)
        return outcome.why, outcome.kind

    found: dict[str, list[FailedRuns]] = {}
    for alias, name in asked.items():
        if failed := judge_runs(map(_make_run, answer[alias].get("results", [])), tag, explain, now):
            found.setdefault(name, []).extend(failed)
    return found


def _make_run(run: Mapping[str, Any]) -> RunRow:
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    return RunRow(run["runId"], tags, run["status"] == "FAILURE", run["endTime"] or 0.0)
