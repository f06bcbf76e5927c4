"""What Dagster's page says of itself, for `needs`: the code locations, rota's sensors, and the last runs of each pipeline.

Laws: it changes nothing. A page that does not answer is told as that. Of several deployments on one instance it tells of the
one that ROTA_LOCATION names; without it, of all that have these pipelines.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rota.errors import EnvironmentFailed, printable
from rota.face.needs import FAILURES
from rota.face.seen import (
    DagsterSeen,
    FailedRuns,
    SensorSeen,
    Tick,
    blame_sensors,
    count_failures,
    measure_silence,
)
from rota.ids import PARKED_TAG, dagster_name, split_dagster_name
from rota.local.page import DagsterPage, Words

TICKS = 20  # of a sensor that are looked at
RUNS = 30  # ended runs of a pipeline that are read: of all workers, and clicks
LOCATIONS = """query Health { workspaceOrError { __typename ... on PythonError { message }
  ... on Workspace { locationEntries { name loadStatus locationOrLoadError { __typename
    ... on PythonError { className message causes { message } }
    ... on RepositoryLocation { repositories { name sensors { name sensorState { status } } } } } } } } }"""
# One by one: for all sensors of a code location at once Dagster finds no tick that a restarted code server evaluated.
OF_SENSOR = """{alias}: sensorOrError(sensorSelector: {{repositoryLocationName: "{location}", repositoryName: "{repository}",
  sensorName: "{name}"}}) {{ ... on Sensor {{ sensorState {{
  ticks(limit: {ticks}) {{ status timestamp endTimestamp error {{ className message causes {{ message }} }} }} }} }} }}"""
LAST = """{alias}: runsOrError(filter: {{pipelineName: "{job}", tags: [{{key: ".dagster/repository", value: "{place}"}}],
  statuses: [SUCCESS, FAILURE]}}, limit: {most}) {{ ... on Runs {{ results {{
  runId status endTime tags {{ key value }} }} }} }}"""
FILES = """{alias}: assetCheckExecutions(assetKey: {{path: {path}}}, checkName: "every_file_served", limit: 1) {{
  evaluation {{ success metadataEntries {{ label ... on JsonMetadataEntry {{ jsonString }} }} }} }}"""
LOST = "DagsterUserCodeUnreachableError"  # Dagster's: no code server answered
JOBS = {"backlog": ("consume", "rota/worker"), "membership": ("rebalance", "rota/rebalance")}  # sensor -> job, tag
KINDS = ("membership", "backlog", "checks")  # of rota's sensors


def read_dagster(page: DagsterPage, pipelines: Sequence[str], groups: Iterable[str]) -> DagsterSeen:
    """What the page says of the sensors and runs of these pipelines and groups."""
    try:
        workspace = page.ask(LOCATIONS)["workspaceOrError"]
        if workspace["__typename"] != "Workspace":
            return DagsterSeen(printable(str(workspace.get("message"))))
        names = {dagster_name(of, kind) for of in (*pipelines, *groups) for kind in KINDS}
        entries = workspace["locationEntries"]
        found = [one for entry in entries for one in _list_sensors(entry) if _is_named(one["name"], names)]
        mine = [one for one in found if _is_meant(page.location, one["location"], one["name"], names)]
        ticks = _read_ticks(page, mine)
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
        locations[where] = "it is not there: mend ROTA_LOCATION, or the workspace"
    served = [one["name"] for one in mine]
    unserved = [p for p in pipelines if not any(_is_named(s, {dagster_name(p, "backlog")}) for s in served)]
    lost = {one["name"]: 0.0 for one in meant if _is_lost(one["locationOrLoadError"] or {})}
    sensors: list[SensorSeen] = []
    for location, of in groupby(zip(mine, ticks, strict=True), key=lambda one: one[0]["location"]):
        here, said = zip(*of, strict=True)
        blamed = blame_sensors(said)
        sensors += (_describe(*one, now, pipelines) for one in zip(here, blamed, strict=True))
        if silence := measure_silence(blamed):
            lost[location] = silence
    loading = lost or any(entry["loadStatus"] == "LOADING" for entry in meant)
    return DagsterSeen(
        "", locations, tuple(sensors), lost, () if loading else tuple(unserved), failed, rebalances, refused
    )


def _find_fault(entry: Mapping[str, Any]) -> str:
    """Why the code location is not loaded; empty where it is, and where nobody could ask it."""
    there = entry["locationOrLoadError"] or {}
    return _shorten(there) if there.get("__typename") == "PythonError" and not _is_lost(there) else ""


def _is_lost(error: Mapping[str, Any]) -> bool:
    """Whether no code server answered."""
    return error.get("className") == LOST


def _list_sensors(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The sensors of a code location; each knows it and its repository."""
    for repository in (entry["locationOrLoadError"] or {}).get("repositories", []):
        for sensor in repository["sensors"]:
            yield {**sensor, "location": entry["name"], "repository": repository["name"]}


def _is_named(sensor: str, names: Iterable[str]) -> bool:
    """Whether it is one of these, with a key prefix or without."""
    return any(sensor == name or sensor.endswith(f"__{name}") for name in names)


def _is_meant(chosen: str, location: str, sensor: str, names: Iterable[str]) -> bool:
    """Whether the sensor is of the deployment `LOCATION` or `LOCATION/PREFIX`; empty: of any."""
    where, *prefix = chosen.split("/")
    return where in ("", location) and (not prefix or sensor in {f"{dagster_name(*prefix)}__{name}" for name in names})


def _find_doubles(sensors: Iterable[Mapping[str, Any]], where: str) -> dict[str, str]:
    """Code locations, among them `where` if it is not empty -> what each of them has under one name. Dagster keeps by name
    alone, so it mixes them silently."""
    places: dict[str, list[str]] = {}
    for sensor in sensors:
        places.setdefault(sensor["name"], []).append(sensor["location"])
    why = (
        "each of them has the sensor {}, so their assets and partition sets are the same. Give one of them a key_prefix"
    )
    mixed = {name: at for name, at in places.items() if len(at) > 1 and (not where or where in at)}
    return {", ".join(at): why.format(name) for name, at in mixed.items()}


def _read_ticks(page: DagsterPage, sensors: Sequence[Mapping[str, Any]]) -> list[list[Tick]]:
    """The last ticks of each of the sensors."""
    query = " ".join(OF_SENSOR.format(alias=f"s{n}", ticks=TICKS, **one) for n, one in enumerate(sensors))
    found = page.ask(f"query Ticks {{ {query} }}") if query else {}
    told = [(found[f"s{n}"].get("sensorState") or {}).get("ticks", []) for n in range(len(sensors))]
    return [[_describe_tick(tick) for tick in ticks] for ticks in told]


def _read_refused(page: DagsterPage, sensors: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Pipeline file -> what of it Dagster does not serve, by the check `every_file_served` of each membership."""
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


def _describe(sensor: Mapping[str, Any], ticks: Sequence[Tick], now: float, pipelines: Sequence[str]) -> SensorSeen:
    name = sensor["name"]
    of = (p for p in pipelines if _is_named(name, {dagster_name(p, kind) for kind in ("backlog", "checks")}))
    return SensorSeen.of_ticks(name, sensor["sensorState"]["status"] == "RUNNING", ticks, now, next(of, ""))


def _describe_tick(tick: Mapping[str, Any]) -> Tick:
    begun, failed, error = tick["timestamp"], tick["status"] == "FAILURE", tick["error"] or {}
    why = _shorten(error) if failed else ""
    return Tick(begun, tick["endTimestamp"] or begun, tick["status"] != "STARTED", failed, why, _is_lost(error))


def _shorten(error: Mapping[str, Any]) -> str:
    """The error in one line; of one that Dagster wrapped what it called."""
    causes = [str(one["message"]) for one in error.get("causes") or ()]
    text = " ".join((causes[-1] if causes else str(error.get("message", "its ticks fail"))).split())
    return printable(re.sub(r"^[\w.]*(?:Error|Exception): ", "", text)[:500])


def _read_failures(
    page: DagsterPage, kind: str, of: Iterable[str], sensors: Iterable[Mapping[str, Any]], now: float
) -> dict[str, list[FailedRuns]]:
    """Pipeline or group -> the runs that its sensor of this kind launched, if the last ones of a worker failed.

    Runs of another code location belong to another deployment, whatever their job is called. `now` is Dagster's clock.
    """
    what, key = JOBS[kind]
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
    found: dict[str, list[FailedRuns]] = {}
    for alias, name in asked.items():
        ended = [(tags, run) for run in answer[alias].get("results", []) if key in (tags := _read_tags(run))]
        counted = count_failures(
            (_find_worker(tags, key), run["status"] == "FAILURE" and PARKED_TAG not in tags) for tags, run in ended
        )
        for worker, (newest, times) in counted.items():
            run = ended[newest][1]
            words = page.read_words(run["runId"]) if times >= FAILURES else Words()
            why, ago = words.why or f"see run {run['runId']}", max(0.0, now - (run["endTime"] or 0.0))
            found.setdefault(name, []).append(FailedRuns(times, why, words.kind, ago, worker))
    return found


def _read_tags(run: Mapping[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["tags"]}


def _find_worker(tags: Mapping[str, str], key: str) -> str:
    """The worker that the run worked for; empty for a rebalance."""
    return tags[key] if key == JOBS["backlog"][1] else ""
