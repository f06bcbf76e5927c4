"""What the commands read from a Dagster page that several deployments share: each reports its own deployment only."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rota.cli.dagster_health import read_dagster
from rota.local.page import DagsterPage

LOST = {"className": "DagsterUserCodeUnreachableError", "message": "Could not reach user code server.", "causes": []}
BROKEN = {"__typename": "PythonError", "message": "NameError: orders", "causes": []}


@dataclass(frozen=True, slots=True)
class Page(DagsterPage):
    """A page of these code locations: name -> its sensors, or why it is not loaded. `failed`: job -> of which code location
    its last runs failed."""

    locations: Mapping[str, list[str] | dict[str, Any]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    ticks: tuple[Mapping[str, Any], ...] = ()
    ahead: float = 0.0  # seconds by which the clock of Dagster's machine is ahead
    worker: str = "w1"
    checked: str = ""  # the path of the asset whose check found a file that Dagster does not serve

    def ask(self, query: str, **_: object) -> Mapping[str, Any]:
        if "workspaceOrError" in query:
            return {
                "workspaceOrError": {
                    "__typename": "Workspace",
                    "locationEntries": [*map(self.describe, self.locations)],
                }
            }
        if "assetCheckExecutions" in query:
            entries = [{"label": "wrong"}, {"label": "refused", "jsonString": '{"x.py": "its job is left out"}'}]
            paths = re.findall(r"(m\d+): assetCheckExecutions\(assetKey: {path: (\[.*?\])}", query)
            return {
                alias: [{"evaluation": {"success": False, "metadataEntries": entries}}] if path == self.checked else []
                for alias, path in paths
            }
        if "sensorOrError" in query:
            return {one: {"sensorState": {"ticks": self.ticks}} for one in re.findall(r"(s\d+): sensorOrError", query)}
        if "logsForRun" in query:
            return {"logsForRun": {"events": []}}
        asked = re.findall(r"(p\d+): runsOrError(.*?)limit", query, re.DOTALL)
        return {alias: {"results": self.list_runs(text)} for alias, text in asked}

    def read_clock(self) -> float:
        return time.time() + self.ahead

    def describe(self, name: str) -> dict[str, Any]:
        there = self.locations[name]
        if isinstance(there, dict):
            return {"name": name, "loadStatus": "LOADED", "locationOrLoadError": there}
        state = {"status": "RUNNING", "ticks": []}  # Dagster's own answer, once its code server was restarted
        sensors = [{"name": one, "sensorState": state} for one in there]
        repositories = [{"name": "__repository__", "sensors": sensors}]
        return {"name": name, "loadStatus": "LOADED", "locationOrLoadError": {"repositories": repositories}}

    def list_runs(self, text: str) -> list[dict[str, Any]]:
        tags = [{"key": "rota/rebalance" if "rebalance" in text else "rota/worker", "value": self.worker}]
        run = {"runId": "r", "status": "FAILURE", "endTime": time.time() - 5.0, "tags": tags}
        return [
            run
            for job, location in self.failed.items()
            for _ in range(3)
            if f'"{job}"' in text and f'"__repository__@{location}"' in text
        ]


STAGING = ["staging__p__backlog", "staging__default__membership"]
PRODUCTION = ["p__backlog", "default__membership"]


def read_health(page: Page) -> tuple[list[str], dict[str, str], list[str], dict[str, int]]:
    """The sensors, the reported code locations, the pipelines without a location, and those whose runs failed."""
    seen = read_dagster(page, ["p"], ["default"])
    assert not seen.silent
    failed = {name: max(one.times for one in of) for name, of in seen.failed.items()}
    return sorted(one.name for one in seen.sensors), dict(seen.locations), list(seen.unserved), failed


def test_only_the_chosen_location_is_reported() -> None:
    both = {"staging": STAGING, "production": PRODUCTION, "another": BROKEN}
    failed = {"p__consume": "production"}
    assert read_health(Page("u", "staging", both, failed)) == (sorted(STAGING), {}, [], {})
    assert read_health(Page("u", "production", both, failed)) == (sorted(PRODUCTION), {}, [], {"p": 3})
    every = read_health(Page("u", "", both, failed))
    assert every[0] == sorted([*STAGING, *PRODUCTION])
    assert every[1] == {"another": "it is not loaded: orders"}
    assert every[3] == {"p": 3}


def test_a_prefix_distinguishes_two_deployments_of_one_code_location() -> None:
    one = {"one": [*STAGING, *PRODUCTION]}
    assert read_health(Page("u", "one/staging", one))[0] == sorted(STAGING)
    assert read_health(Page("u", "one", one))[0] == sorted([*STAGING, *PRODUCTION])


def test_runs_of_a_job_of_the_same_name_are_another_deployments() -> None:
    both = {"staging": PRODUCTION, "production": PRODUCTION}
    assert read_health(Page("u", "staging", both, {"p__consume": "production"}))[3] == {}
    assert read_health(Page("u", "production", both, {"p__consume": "production"}))[3] == {"p": 3}


def test_rebalances_that_failed_are_their_groups() -> None:
    seen = read_dagster(Page("u", "", {"one": PRODUCTION}, {"default__rebalance": "one"}), ["p"], ["default"])
    assert ({name: one.times for name, one in seen.rebalances.items()}, seen.failed) == ({"default": 3}, {})
    assert 4.0 <= seen.rebalances["default"].ago < 600.0, "the header has whole seconds"


def test_colliding_names_are_reported() -> None:
    """Dagster keeps materializations, partition sets and checks by name alone: it would mix the two without a word."""
    both = {"staging": PRODUCTION, "production": PRODUCTION, "another": STAGING}
    (places, why), *more = read_health(Page("u", "staging", both))[1].items()
    assert (places, more) == ("staging, production", [])
    assert why.endswith("so their assets and partition sets are the same. Give one of them a key_prefix")
    assert read_health(Page("u", "another", both))[1] == {}, "its own names are another's nowhere"


def test_a_chosen_location_that_is_missing_is_reported() -> None:
    seen = read_health(Page("u", "stagging", {"staging": STAGING}))
    assert seen == ([], {"stagging": "it is not there: correct ROTA_LOCATION, or the workspace"}, ["p"], {})


def tick(began: float, ended: float | None, error: Mapping[str, Any] | None = None) -> dict[str, Any]:
    status = "STARTED" if ended is None else "FAILURE" if error else "SKIPPED"
    return {"status": status, "timestamp": began, "endTimestamp": ended, "error": error}


def test_a_silent_code_server_is_reported_and_its_sensors_are_not() -> None:
    """It was frozen: each tick failed after a minute, with the words of gRPC, and the page knew after two and a half."""
    ticks = (tick(90.0, None), tick(30.0, 90.0, LOST), tick(25.0, 26.0))
    seen = read_dagster(Page("u", "", {"one": PRODUCTION}, ticks=ticks), ["p"], ["default"])
    assert seen.lost == {"one": 60.0}
    assert not any(one.failing for one in seen.sensors)
    seen = read_dagster(Page("u", "", {"one": {"__typename": "PythonError", **LOST}}), ["p"], ["default"])
    assert (seen.lost, seen.locations, seen.unserved) == ({"one": 0.0}, {}, ())


def test_a_tick_that_takes_long_to_fail_counts_as_long() -> None:
    refused = {"className": "Failure", "message": "No ZooKeeper", "causes": []}
    ticks = (tick(70.0, 80.0, refused), tick(20.0, 30.0, refused), tick(0.0, 1.0))
    seen = read_dagster(Page("u", "", {"one": PRODUCTION}, ticks=ticks), ["p"], ["default"])
    assert {(one.failing, one.why) for one in seen.sensors} == {(60.0, "No ZooKeeper")}


def test_what_dagster_does_not_serve_of_a_file_is_read_from_the_check_of_its_own_deployment() -> None:
    """`rota status --check` exited with 0 while the page and `rota check` had an error."""
    one = {"one": PRODUCTION}
    assert read_dagster(Page("u", "", one), ["p"], ["default"]).refused == {}
    found = read_dagster(Page("u", "", one, checked='["default", "membership"]'), ["p"], ["default"])
    assert found.refused == {"x.py": "its job is left out"}
    other = Page("u", "", {"one": STAGING}, checked='["staging", "default", "membership"]')
    assert read_dagster(other, ["p"], ["default"]).refused == {"x.py": "its job is left out"}
    assert read_dagster(replace(other, locations=one), ["p"], ["default"]).refused == {}


@pytest.mark.parametrize("ahead", [-600.0, -76.0, 0.0, 76.0, 300.0])
def test_the_clock_of_dagsters_machine_decides(ahead: float) -> None:
    """A command on a machine 76 s ahead reported a dead daemon, and one that was behind reported none."""
    now = time.time() + ahead
    for quiet in (5.0, 90.0):
        seen = read_dagster(
            Page("u", "", {"one": PRODUCTION}, ticks=(tick(now - quiet, now - quiet),), ahead=ahead), ["p"], ["default"]
        )
        assert all(quiet - 1 <= sensor.quiet <= quiet + 30 for sensor in seen.sensors)
        assert len(seen.sensors) == 2
