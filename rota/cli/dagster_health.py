"""What Dagster's page says of itself, for `needs`: the code locations, rota's sensors, and the last runs of each pipeline.

Law: it changes nothing. A page that does not answer is told as that.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from rota.errors import EnvironmentFailed, printable
from rota.ids import dagster_name
from rota.local.page import DagsterPage
from rota.needs import FAILURES
from rota.seen import DagsterSeen, SensorSeen

TICKS = 20  # of a sensor that are looked at
RUNS = 10  # of a pipeline, among them clicks
LOCATIONS = """query Health($ticks: Int) { workspaceOrError { __typename ... on PythonError { message }
  ... on Workspace { locationEntries { name loadStatus locationOrLoadError { __typename
    ... on PythonError { message causes { message } }
    ... on RepositoryLocation { repositories { sensors { name sensorState { status
      ticks(limit: $ticks) { status timestamp error { message causes { message } } } } } } } } } } } }"""
LAST = """{alias}: runsOrError(filter: {{tags: [{{key: "rota/consume", value: "{of}"}}], statuses: [SUCCESS, FAILURE]}},
  limit: {most}) {{ ... on Runs {{ results {{ runId status tags {{ key value }} }} }} }}"""
KINDS = ("membership", "backlog", "checks")  # of rota's sensors


def read_dagster(page: DagsterPage, pipelines: Sequence[str], groups: Iterable[str]) -> DagsterSeen:
    """What the page says of the sensors and runs of these pipelines and groups."""
    try:
        workspace = page.ask(LOCATIONS, ticks=TICKS)["workspaceOrError"]
        if workspace["__typename"] != "Workspace":
            return DagsterSeen(printable(str(workspace.get("message"))))
        names = {dagster_name(of, kind) for of in (*pipelines, *groups) for kind in KINDS}
        failed = _read_failures(page, pipelines)
    except EnvironmentFailed as error:
        return DagsterSeen(str(error))
    locations: dict[str, str] = {}
    sensors: list[SensorSeen] = []
    now = time.time()
    for entry in workspace["locationEntries"]:
        there = entry["locationOrLoadError"] or {}
        if there.get("__typename") == "PythonError":
            locations[entry["name"]] = f"it is not loaded: {_shorten(there)}"
        for repository in there.get("repositories", []):
            known = [one for one in repository["sensors"] if _is_named(one["name"], names)]
            sensors += [_describe(one, now, pipelines) for one in known]
    served = [one.name for one in sensors]
    loading = any(entry["loadStatus"] == "LOADING" for entry in workspace["locationEntries"])
    unserved = [p for p in pipelines if not any(_is_named(s, {dagster_name(p, "backlog")}) for s in served)]
    return DagsterSeen("", locations, tuple(sensors), () if loading else tuple(unserved), failed)


def _is_named(sensor: str, names: Iterable[str]) -> bool:
    """Whether it is one of these, with a key prefix or without."""
    return any(sensor == name or sensor.endswith(f"__{name}") for name in names)


def _describe(sensor: Mapping[str, Any], now: float, pipelines: Sequence[str]) -> SensorSeen:
    state = sensor["sensorState"]
    ticks = state["ticks"]
    done = [tick for tick in ticks if tick["status"] != "STARTED"]
    failed = list(takewhile(lambda tick: tick["status"] == "FAILURE", done))
    lasted = failed[0]["timestamp"] - failed[-1]["timestamp"] if failed else 0.0
    why = _shorten(failed[0]["error"] or {}) if failed else ""
    quiet = max(0.0, now - ticks[0]["timestamp"]) if ticks else 0.0
    name, failing = sensor["name"], max(lasted, 0.001) if failed else 0.0
    of = (p for p in pipelines if _is_named(name, {dagster_name(p, kind) for kind in ("backlog", "checks")}))
    return SensorSeen(name, state["status"] == "RUNNING", failing, why, quiet, next(of, ""))


def _shorten(error: Mapping[str, Any]) -> str:
    """The error in one line; of one that Dagster wrapped what it called."""
    causes = [str(one["message"]) for one in error.get("causes") or ()]
    text = " ".join((causes[-1] if causes else str(error.get("message", "its ticks fail"))).split())
    return printable(re.sub(r"^[\w.]*(?:Error|Exception): ", "", text)[:500])


def _read_failures(page: DagsterPage, pipelines: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Pipeline -> how many of the runs that a sensor launched failed in a row, and why the last did."""
    if not pipelines:
        return {}
    asked = {f"p{number}": name for number, name in enumerate(pipelines)}
    query = " ".join(LAST.format(alias=alias, of=name, most=RUNS) for alias, name in asked.items())
    answer = page.ask(f"query Failures {{ {query} }}")
    found: dict[str, tuple[int, str]] = {}
    for alias, name in asked.items():
        runs = [
            run
            for run in answer[alias].get("results", [])
            if any(tag["key"] == "rota/incarnation" for tag in run["tags"])
        ]
        failed = list(takewhile(lambda run: run["status"] == "FAILURE", runs))
        if failed:
            why = page.read_words(failed[0]["runId"])[1] if len(failed) >= FAILURES else ""
            found[name] = len(failed), why or f"see run {failed[0]['runId']}"
    return found
