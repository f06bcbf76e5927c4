"""Reads Dagster's page over GraphQL: whether it answers, and its runs. Dagster is never imported.

Law: it only reads. A run counts as launched by a sensor only if Dagster's own run storage says so.
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rota.errors import EnvironmentFailed

RUNS = """query Runs($limit: Int, $cursor: String) { runsOrError(limit: $limit, cursor: $cursor) {
  ... on Runs { results { runId jobName creationTime tags { key value } } }
  ... on PythonError { message } } }"""
EVENTS = """query Events($run: ID!) { logsForRun(runId: $run) {
  ... on EventConnection { events { __typename ... on MessageEvent { message } } } } }"""
PID = re.compile(r"pid: (\d+)")


@dataclass(frozen=True, slots=True)
class DagsterRun:
    """A run as Dagster stored it. Times are seconds since 1970; `sensor` launched it (None: something else did)."""

    id: str
    job: str
    created: float
    sensor: str | None


@dataclass(frozen=True, slots=True)
class DagsterPage:
    """Dagster's page at `address`."""

    address: str

    def answers(self) -> bool:
        """Whether the page answers."""
        try:
            with urllib.request.urlopen(f"{self.address}/server_info", timeout=2) as reply:
                return bool(reply.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def read_runs(self) -> dict[str, DagsterRun]:
        """Every run by id. Raises EnvironmentFailed."""
        found: dict[str, DagsterRun] = {}
        cursor = None
        while batch := self._ask(RUNS, limit=500, cursor=cursor)["runsOrError"]["results"]:
            found.update({run["runId"]: _parse(run) for run in batch})
            cursor = batch[-1]["runId"]
        return found

    def find_pid(self, run: str) -> int | None:
        """The id of the run's process, as Dagster logged it; None before it starts. Raises EnvironmentFailed."""
        events = self._ask(EVENTS, run=run)["logsForRun"].get("events", [])
        return next((int(m[1]) for e in events if (m := PID.search(e.get("message") or ""))), None)

    def _ask(self, query: str, **variables: object) -> Mapping[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                answer: dict[str, Any] = json.load(reply)
        except OSError as error:
            raise EnvironmentFailed(
                f"Dagster's page at {self.address} does not answer ({error}). See its log"
            ) from error
        if "errors" in answer:
            raise EnvironmentFailed(f"Dagster's page refused a query: {answer['errors'][0]['message']}. See its log")
        data: Mapping[str, Any] = answer["data"]
        return data


def _parse(row: Mapping[str, Any]) -> DagsterRun:
    tags = {tag["key"]: tag["value"] for tag in row["tags"]}
    return DagsterRun(
        id=row["runId"],
        job=row["jobName"],
        created=row["creationTime"],
        sensor=tags.get("dagster/sensor_name"),
    )
