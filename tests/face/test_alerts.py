"""Who is called, and when: a listener instead of Slack, evaluations and runs as the daemon stores them."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from rota.catalog import load
from rota.dagster.assets.names import Names
from rota.dagster.location import compose
from rota.dagster.sensors.alerts import Alert

FILE = """
from rota import Pipeline, delta, files
from rota.dagster.sensors.alerts import make_alert_sensor

heard = []
pipeline = Pipeline(source=files("{folder}/p", format="json", schema="n int"), table=delta("{folder}/t"))
alerts = make_alert_sensor(lambda alert: heard.append(alert))
"""
ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


@dg.op
def fill() -> None:
    raise dg.Failure("the disk is full. Make room")


@dg.op
def open_table() -> None:
    try:
        raise OSError("no such disk")
    except OSError as error:
        raise ValueError("the table cannot be opened") from error


@dg.job
def ours() -> None:
    fill()


@dg.job
def also_ours() -> None:
    open_table()


@dg.job
def theirs() -> None:
    fill()


class Listener:
    """The alert sensor of a pipeline file with its cursor."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        (folder / "p.py").write_text(FILE.format(folder=folder))
        catalog = load(folder)
        more = dg.Definitions(jobs=[ours, also_ours])
        self.repository = dg.Definitions.merge(compose(catalog), more).get_repository_def()
        self.instance, self.heard, self.cursor = instance, catalog.modules[0].heard, None

    def tick(self) -> list[Alert]:
        """What one tick tells."""
        with dg.build_sensor_context(self.instance, self.cursor, repository_def=self.repository) as context:
            self.repository.get_sensor_def("alerts")(context)
            self.cursor = context.cursor
        told = list(self.heard)
        self.heard.clear()
        return told

    def say(self, check: str, passed: bool, severity: dg.AssetCheckSeverity = ERROR, why: str = "why") -> None:
        """The result of a check of `p/records`, as the sensor of the checks reports it."""
        said = dg.AssetCheckEvaluation(Names().records("p"), check, passed, severity=severity, description=why)
        self.instance.report_runless_asset_event(said)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Listener(tmp_path, instance)


def test_a_check_that_needs_a_person_is_told_once_and_again_when_it_says_something_else(listener: Listener) -> None:
    listener.say("none_parked", False, why="p:a: the schema is wrong")
    listener.say("no_gap", True)
    listener.say("keeps_up", False, WARN)
    (alert,) = listener.tick()
    assert alert == Alert("p/records: none_parked failed", "p:a: the schema is wrong", "/assets/p/records?view=checks")
    listener.say("none_parked", False, why="p:a: the schema is wrong")
    assert listener.tick() == [], "told again by the sensor of the checks, and nothing new"
    listener.say("none_parked", False, why="p:b: the schema is wrong")
    assert [one.text for one in listener.tick()] == ["p:b: the schema is wrong"]
    listener.say("none_parked", True)
    assert listener.tick() == []
    listener.say("none_parked", False, why="p:b: the schema is wrong")
    assert len(listener.tick()) == 1


def test_a_run_that_failed_is_told_with_its_reason_and_others_runs_and_old_ones_are_not(listener: Listener) -> None:
    ours.execute_in_process(instance=listener.instance, raise_on_error=False)
    assert listener.tick() == [], "nobody is called for what was there before"
    theirs.execute_in_process(instance=listener.instance, raise_on_error=False)
    failed = ours.execute_in_process(instance=listener.instance, raise_on_error=False)
    also = also_ours.execute_in_process(instance=listener.instance, raise_on_error=False)
    assert listener.tick() == [
        Alert("a run of ours failed", "the disk is full. Make room", f"/runs/{failed.run_id}"),
        Alert("a run of also_ours failed", "ValueError: the table cannot be opened", f"/runs/{also.run_id}"),
    ]
    assert listener.tick() == []


def test_whoever_could_not_be_called_is_called_by_the_next_tick(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener.say("no_gap", False)

    class Down(list[Alert]):
        def append(self, _: Alert) -> None:
            raise ConnectionError("Slack is down")

    with monkeypatch.context() as patch:
        patch.setattr("rota_pipelines_p.heard", Down())
        with pytest.raises(ConnectionError):
            listener.tick()
    assert len(listener.tick()) == 1
