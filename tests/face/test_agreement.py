"""`rota status --check`, `rota check`, the checks on the page, the alerts and the metrics agree about each cause that needs
an operator.

Each row of `NEEDS` is one observation of a group. `EXCEPT` lists what the page cannot report, with the reason.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from rota.cli import check, export, status
from rota.coordination.group_state import GroupState
from rota.dagster.assets import checks, pipeline_checks
from rota.dagster.assets.names import Names
from rota.dagster.sensors.alerts import Alert, make_alert_sensor
from rota.face import needs as face_needs
from rota.face.dagster_state import DagsterSeen
from rota.face.health import HealthReader, TableSeen
from rota.face.memory import FIRST, Memory
from rota.face.need import Need, join_needs
from rota.face.needs import find_needs
from rota.face.rules import list_causes
from rota.face.seen import Seen
from rota.pipeline import Pipeline, delta, files
from simulator.memory_store import MemoryServer
from tests.core.seen_group import NEEDS, WELL, observe_over

PIPELINE = Pipeline(files("${LANDING}", format="json", schema="n int"), delta("t"), name="p")
EXCEPT = {  # cause -> why no check of the pipeline reports it
    "silent": "Dagster cannot be asked, so it sends no alert",
    "daemon": "a daemon that does not run ticks no sensor",
    "location": "a code server that does not answer ticks no sensor",
    "unserved": "a pipeline that is not served has no sensor; `every_file_served` reports its file",
}
CHECKS = {cause: name for name, causes in checks.CAUSES.items() for cause in causes} | {"refused": checks.SERVED}
MEMBERSHIP = Names().membership("default")
sent: list[Alert] = []
SENSOR = make_alert_sensor(sent.append)


@dg.asset_check(asset=MEMBERSHIP, name=checks.SERVED)
def check_files() -> dg.AssetCheckResult:
    """Of the group; its result comes from `Reports.evaluate_on_page`."""
    raise NotImplementedError


ALL_CHECKS = [pipeline_checks.make_checks(PIPELINE, Names()), check_files]
REPOSITORY = dg.Definitions(
    asset_checks=ALL_CHECKS, sensors=[SENSOR], resources={"rota_zookeeper": None}
).get_repository_def()


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> "Reports":
    return Reports(monkeypatch)


class Reports:
    """A group in memory, which each report observes. What an observation reads is replaced by a row of the table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        server = MemoryServer()
        self.tree = GroupState(server.connect(), "default")
        self.tree.found()
        monkeypatch.setattr("rota.coordination.client.opened", lambda *_: server.connect())
        monkeypatch.setattr(check, "probe_parts", lambda *_: iter(()))
        monkeypatch.setenv("ROTA_PIPELINES", "/no/such/folder")

    def show(self, seen: Seen, seconds: float) -> None:
        """From now on an observation finds this, and has seen it for so many seconds."""

        def find(now: Seen, _: Memory = FIRST) -> tuple[tuple[Need, ...], Memory]:
            return observe_over(now, seconds / 2, seconds), FIRST

        self.patch.setattr(HealthReader, "read", lambda *_: (seen, {}))
        self.patch.setattr("rota.cli.observer.read_dagster", lambda *_: seen.dagster)
        self.patch.setattr("rota.cli.observer.replace", lambda read, **_: read)
        self.patch.setattr("rota.cli.observer.find_needs", find)
        self.patch.setattr(face_needs, "find_needs", find)
        self.patch.setattr(
            "rota.face.health.read_records", lambda *_: (seen.facts, SimpleNamespace(meta=self.tree.meta()))
        )
        self.patch.setattr("rota.face.health.read_pipeline", lambda *_: seen.pipelines[0])
        self.patch.setattr(
            "rota.face.health.make_seen", lambda tree, facts, basis, ones: replace(seen, pipelines=ones, refused={})
        )
        self.patch.setattr(pipeline_checks, "read_table", lambda *_: (TableSeen(), 0))

    def run(self, command: Any, *words: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(command, [*words, "--json"])
        return done.exit_code, json.loads(done.stdout)

    def fire(self) -> set[str]:
        """The causes whose alerts fire in a Prometheus that scrapes once."""
        text = CliRunner().invoke(export.command, ["--once"]).stdout
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        assert ("rota_export_up", 1.0) in [(one.name, one.value) for one in samples]
        due = [one.labels for one in samples if one.name == "rota_needs" and one.value]
        return {labels["cause"] for labels in due if labels["person"] == "true"} & list_causes().keys()

    def evaluate_on_page(self, seen: Seen) -> list[dg.AssetCheckEvaluation]:
        """The results that the sensors of the checks and of the membership report."""
        there = seen.dagster or DagsterSeen()
        sensors = [replace(one, quiet=0.0) for one in there.sensors]  # they tick, as they answer
        stored = DagsterSeen(sensors=sensors, failed=there.failed, rebalances=there.rebalances)
        said, _ = pipeline_checks.evaluate_pipeline(self.tree, PIPELINE, Names(), pipeline_checks.Memory(), stored)
        return [*said, checks.check_files(MEMBERSHIP, {**seen.refused, **there.refused})]


def alert(instance: dg.DagsterInstance, said: Iterable[dg.AssetCheckEvaluation]) -> list[Alert]:
    """The alerts of the first tick after these results."""
    for one in said:
        instance.report_runless_asset_event(one)
    sent.clear()
    with dg.build_sensor_context(instance, None, repository_def=REPOSITORY) as context:
        SENSOR(context)
    return list(sent)


@pytest.mark.parametrize("case", NEEDS)
def test_each_report_agrees_about_a_cause(case: str, reports: Reports, instance: dg.DagsterInstance) -> None:
    seen, seconds, cause, words = NEEDS[case]
    reports.show(seen, seconds)
    (joined,) = join_needs(one for one in observe_over(seen, seconds / 2, seconds) if one.person)
    code, found = reports.run(status.command, "--check")
    assert (code, [one["cause"] for one in found["needs"] if one["person"]]) == (1, [cause])
    assert [Need.read(one).line for one in found["needs"] if one["person"]] == [joined.needs[0].line]
    code, found = reports.run(check.command)
    assert (code, [one["seen"] for one in found["probes"]]) == (2, [joined.line])
    assert reports.fire() == {cause}
    said = reports.evaluate_on_page(seen)
    red = [one for one in said if not one.passed and one.severity == dg.AssetCheckSeverity.ERROR]
    alerts = alert(instance, said)
    assert len(red) == len(alerts) == (cause not in EXCEPT), EXCEPT.get(cause)
    for one, check_of in zip(alerts, red, strict=True):
        assert (one.title, one.text) == (joined.title, joined.line)
        assert words in one.text
        assert check_of.check_name == CHECKS.get(cause, checks.GROUP)


def test_a_group_that_is_well_is_reported_by_none(reports: Reports, instance: dg.DagsterInstance) -> None:
    reports.show(WELL, 1000.0)
    assert reports.run(status.command, "--check")[0] == reports.run(check.command)[0] == 0
    assert reports.fire() == set()
    said = reports.evaluate_on_page(WELL)
    assert all(one.passed for one in said)
    assert alert(instance, said) == []


def test_a_report_that_decides_by_itself_is_found(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ablation: `status --check` leaves out one cause, and the table shows it."""
    seen, seconds, _, _ = NEEDS["no worker"]
    reports.show(seen, seconds)
    monkeypatch.setattr("rota.cli.observer.find_needs", lambda now, memory: ((), FIRST))
    assert reports.run(status.command, "--check")[0] == 0
    assert find_needs(seen)[0]
