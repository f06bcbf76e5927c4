"""A client of Dagster's page over GraphQL: it reads runs and jobs, launches jobs and reloads code. It never imports Dagster.

Invariants: a run counts as launched by a sensor only if it has the sensor's tag in Dagster's run storage. A job of rota is
found by its tag: two deployments can have jobs of one name, and one pipeline can have jobs of two names.
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from rota.errors import EnvironmentFailed
from rota.ids import ERROR_KIND, dagster_name

RUNS = """query Runs($limit: Int, $cursor: String) { runsOrError(limit: $limit, cursor: $cursor) {
  ... on Runs { results { runId jobName creationTime tags { key value } } }
  ... on PythonError { message } } }"""
EVENTS = """query Events($run: ID!) { logsForRun(runId: $run) {
  ... on EventConnection { events { __typename ... on MessageEvent { message } } } } }"""
JOBS = """query Jobs { workspaceOrError { ... on PythonError { message } ... on Workspace { locationEntries { name
  locationOrLoadError { ... on RepositoryLocation { repositories { name pipelines { name } } } } } } } }"""
TAGS = """query Tags($job: PipelineSelector!) { pipelineOrError(params: $job) {
  ... on Pipeline { tags { key value } } } }"""  # of one job: for all jobs, Dagster asks the code servers once per job
LAUNCH = """mutation Launch($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } ... on UnauthorizedError { message }
  ... on RunConfigValidationInvalid { errors { message } } } }"""
RELOAD = """mutation Reload($location: String!) { reloadRepositoryLocation(repositoryLocationName: $location) { __typename
  ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } }
  ... on UnauthorizedError { message } ... on ReloadNotSupported { message } ... on RepositoryLocationNotFound { message }
} }"""
STATUS = """query Status($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"""
WORDS = """query Words($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events { __typename
  ... on MessageEvent { message } ... on ExecutionStepFailureEvent {
    error { message } failureMetadata { description metadataEntries { label
      ... on TextMetadataEntry { text } } } } } } } }"""
PID = re.compile(r"pid: (\d+)")


@dataclass(frozen=True, slots=True)
class DagsterRun:
    """A run in Dagster's storage. Times are seconds since 1970; `sensor` launched it (None: no sensor did)."""

    id: str
    job: str
    created: float
    sensor: str | None


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job of rota in a code location. `of` is its pipeline, or `rota`; `prefix` is the key prefix."""

    name: str
    location: str
    repository: str
    prefix: tuple[str, ...]
    of: str


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """Each `<of>__<kind>` of the page at `address`, under any key prefix.

    The code locations in `unloaded` are not loaded, and may also have one."""

    address: str
    of: str
    kind: str
    jobs: tuple[PlacedJob, ...]
    unloaded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The last line that a run logged, why a step of it failed, and that error's kind; each empty if there is none."""

    last_line: str = ""
    why: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class DagsterPage:
    """Dagster's page at `address`. `location` is ROTA_LOCATION, which chooses one of several deployments."""

    address: str
    location: str = ""

    def answers(self) -> bool:
        """Return whether the page answers."""
        try:
            with urllib.request.urlopen(f"{self.address}/server_info", timeout=2) as reply:
                return bool(reply.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def read_clock(self) -> float:
        """Return the seconds since 1970 on the clock of the page's machine, from the HTTP header `Date`. Raises
        EnvironmentFailed.

        Dagster's times are compared with this clock, because the clock of this machine may differ by minutes.
        """
        try:
            with urllib.request.urlopen(f"{self.address}/server_info", timeout=20) as reply:
                return parsedate_to_datetime(reply.headers["date"]).timestamp()
        except (OSError, TypeError, ValueError) as error:
            raise EnvironmentFailed(
                f"Dagster's page at {self.address} does not answer ({getattr(error, 'reason', error)}). See its log"
            ) from error

    def read_runs(self) -> dict[str, DagsterRun]:
        """Return every run by id. Raises EnvironmentFailed."""
        found: dict[str, DagsterRun] = {}
        cursor = None
        while batch := self.ask(RUNS, limit=500, cursor=cursor)["runsOrError"]["results"]:
            for row in batch:
                tags = {tag["key"]: tag["value"] for tag in row["tags"]}
                made = DagsterRun(row["runId"], row["jobName"], row["creationTime"], tags.get("dagster/sensor_name"))
                found[made.id] = made
            cursor = batch[-1]["runId"]
        return found

    def find_pid(self, run: str) -> int | None:
        """Return the id of the run's process, as Dagster logged it; None before it starts. Raises EnvironmentFailed."""
        events = self.ask(EVENTS, run=run)["logsForRun"].get("events", [])
        return next((int(m[1]) for e in events if (m := PID.search(e.get("message") or ""))), None)

    def find_jobs(self, of: str, kind: str) -> FoundJobs:
        """Return the jobs with the tag `rota/<kind>` of this pipeline, in every code location. Raises EnvironmentFailed."""
        name, found, unloaded = dagster_name(of, kind), [], []
        for entry in self.ask(JOBS)["workspaceOrError"].get("locationEntries", []):
            repositories = (entry["locationOrLoadError"] or {}).get("repositories")
            if repositories is None:
                unloaded.append(entry["name"])
            for repository in repositories or []:
                for job in repository["pipelines"]:
                    if job["name"] == name or job["name"].endswith(f"__{name}"):
                        place = job["name"], entry["name"], repository["name"]
                        *prefix, whose = self._read_tags(*place).get(f"rota/{kind}", "").split("/")
                        if whose == of:
                            found.append(PlacedJob(*place, tuple(prefix), of))
        return FoundJobs(self.address, of, kind, tuple(found), tuple(unloaded))

    def _read_tags(self, job: str, location: str, repository: str) -> dict[str, str]:
        """Return the job's tags; empty if the job does not exist any more."""
        where = {"pipelineName": job, "repositoryLocationName": location, "repositoryName": repository}
        tags = self.ask(TAGS, job=where)["pipelineOrError"].get("tags", [])
        return {tag["key"]: tag["value"] for tag in tags}

    def launch(self, job: PlacedJob, config: Mapping[str, object]) -> str:
        """Launch the job as the launchpad does, and return the run's id. Raises EnvironmentFailed."""
        place = {"repositoryName": job.repository, "repositoryLocationName": job.location}
        params = {"selector": {**place, "jobName": job.name}, "runConfigData": config}
        made = self.ask(LAUNCH, params=params)["launchRun"]
        if made["__typename"] != "LaunchRunSuccess":
            why = made.get("message") or "; ".join(one["message"] for one in made.get("errors", []))
            raise EnvironmentFailed(f"Dagster's page did not launch {job.name}: {why or made['__typename']}")
        return str(made["run"]["runId"])

    def reload(self, location: str) -> str:
        """Reload the code location. Return why it did not load; empty if it did. Raises EnvironmentFailed."""
        done = self.ask(RELOAD, location=location)["reloadRepositoryLocation"]
        failed = done.get("locationOrLoadError") or done
        return (
            "" if failed["__typename"] == "RepositoryLocation" else str(failed.get("message") or failed["__typename"])
        )

    def read_status(self, run: str) -> str:
        """Return Dagster's status of the run. Raises EnvironmentFailed."""
        return str(self.ask(STATUS, run=run)["runOrError"].get("status", "gone"))

    def read_outcome(self, run: str) -> RunOutcome:
        """Return the last line of the run, and the reason why it failed. Raises EnvironmentFailed."""
        events = self.ask(WORDS, run=run)["logsForRun"].get("events", [])
        lines = [one["message"] for one in events if one["__typename"] == "LogMessageEvent"]
        failed = [one for one in events if one["__typename"] == "ExecutionStepFailureEvent"]
        facts = [one["failureMetadata"] or {} for one in failed]
        whys = [fact.get("description") or one["error"]["message"] for fact, one in zip(facts, failed, strict=True)]
        kinds = [e["text"] for fact in facts for e in fact.get("metadataEntries", ()) if e["label"] == ERROR_KIND]
        return RunOutcome((lines or [""])[-1], " ".join(" ".join(whys).split()), (kinds or [""])[0])

    def ask(self, query: str, **variables: object) -> Mapping[str, Any]:
        """Return the answer to a query. Raises EnvironmentFailed."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                answer: dict[str, Any] = json.load(reply)
        except OSError as error:
            raise EnvironmentFailed(
                f"Dagster's page at {self.address} does not answer ({getattr(error, 'reason', error)}). See its log"
            ) from error
        if "errors" in answer:
            raise EnvironmentFailed(f"Dagster's page refused a query: {answer['errors'][0]['message']}. See its log")
        data: Mapping[str, Any] = answer["data"]
        return data
