"""What Dagster itself says about its runs, asked over the GraphQL of its page; Dagster is never imported.

Law: read only. A run counts as launched by a sensor only if Dagster's own run storage says so.
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
  ... on Runs { results { runId jobName status creationTime startTime endTime tags { key value } } }
  ... on PythonError { message } } }"""
EVENTS = """query Events($run: ID!) { logsForRun(runId: $run) {
  ... on EventConnection { events { __typename ... on MessageEvent { message } } } } }"""
PID = re.compile(r"pid: (\d+)")


@dataclass(frozen=True, slots=True)
class Run:
    """A run as Dagster stored it; times in seconds since 1970."""

    id: str
    job: str
    status: str
    created: float
    started: float | None
    ended: float | None
    sensor: str | None

    @property
    def unfinished(self) -> bool:
        """Whether Dagster still counts on it."""
        return self.status not in ("SUCCESS", "FAILURE", "CANCELED")


@dataclass(frozen=True, slots=True)
class Page:
    """Dagster's page at an address."""

    address: str

    def ready(self) -> bool:
        """Whether the page answers."""
        try:
            with urllib.request.urlopen(f"{self.address}/server_info", timeout=2) as reply:
                return bool(reply.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def runs(self) -> dict[str, Run]:
        """Every run there is, by id."""
        found: dict[str, Run] = {}
        cursor = None
        while batch := self._ask(RUNS, limit=500, cursor=cursor)["runsOrError"]["results"]:
            found.update({run["runId"]: _run(run) for run in batch})
            cursor = batch[-1]["runId"]
        return found

    def pid(self, run: str) -> int | None:
        """The process that executes the run, as Dagster logged it; None while it has not started."""
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


def _run(row: Mapping[str, Any]) -> Run:
    tags = {tag["key"]: tag["value"] for tag in row["tags"]}
    return Run(
        id=row["runId"],
        job=row["jobName"],
        status=row["status"],
        created=row["creationTime"],
        started=row["startTime"],
        ended=row["endTime"],
        sensor=tags.get("dagster/sensor_name"),
    )
