"""Which alerts are sent, and when: a listener instead of Slack, evaluations and runs as the daemon stores them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, TickData, TickStatus
from dagster_shared.error import SerializableErrorInfo

from rota.catalog import load
from rota.dagster.assets.checks import evaluate_needs, evaluate_silence
from rota.dagster.assets.names import INCARNATION, Names
from rota.dagster.location import compose
from rota.dagster.sensors.alerts import Alert
from rota.face.need import Need

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
        self.pipeline = catalog.pipelines["p"]
        self.instance, self.heard, self.cursor = instance, catalog.modules[0].heard, None

    def tick(self) -> list[Alert]:
        """The alerts of one tick."""
        with dg.build_sensor_context(self.instance, self.cursor, repository_def=self.repository) as context:
            self.repository.get_sensor_def("alerts")(context)
            self.cursor = context.cursor
        heard = list(self.heard)
        self.heard.clear()
        return heard

    def say(self, check: str, passed: bool, severity: dg.AssetCheckSeverity = ERROR, why: str = "why") -> None:
        """The result of a check of `p/records`, as a user's own check reports it."""
        said = dg.AssetCheckEvaluation(Names().records("p"), check, passed, severity=severity, description=why)
        self.instance.report_runless_asset_event(said)

    def need(self, *needs: Need) -> None:
        """The results of the checks, as the sensor of the checks reports them."""
        for said in evaluate_needs(needs, self.pipeline, Names(), 3):
            self.instance.report_runless_asset_event(said)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    (tmp_path / "instance").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "instance")) as instance:
        yield Listener(tmp_path, instance)


def park(partition: str, why: str) -> Need:
    step = f"rota retry {partition}"
    return Need("partition", partition, "parked", f"it is parked: {why}", step, 1.0, True, 1.0, which=why)


def test_a_cause_is_one_alert_however_many_partitions_meet_it_and_one_when_it_is_over(listener: Listener) -> None:
    """A wiped ZooKeeper gave four alerts with one sentence in half a minute, and none said that it was well again."""
    listener.need(park("p:a", "the schema is wrong in offset 3"))
    (alert,) = listener.tick()
    assert alert == Alert(
        "p: parked",
        "p:a: it is parked: the schema is wrong in offset 3: rota retry p:a",
        "/assets/p/records?view=checks",
    )
    listener.need(park("p:a", "the schema is wrong in offset 7"), park("p:b", "the schema is wrong in offset 5"))
    assert listener.tick() == []
    again = park("p:a", "the schema is wrong in offset 7")
    listener.need(replace(again, why=again.why.replace("parked", "parked (failed 3x)")))
    assert listener.tick() == []
    listener.need(park("p:a", "the schema is wrong in offset 7"), park("p:c", "the disk is full"))
    assert [one.text for one in listener.tick()] == ["p:c: it is parked: the disk is full: rota retry p:c"]
    listener.need(park("p:c", "the disk is full"))
    assert listener.tick() == [Alert("over: p: parked", "The cause is gone.", "/assets/p/records?view=checks")]
    listener.need()
    assert [one.title for one in listener.tick()] == ["over: p: parked"]
    assert listener.tick() == []
    listener.need(park("p:a", "the schema is wrong"))
    assert len(listener.tick()) == 1, "it is back"


def test_what_heals_itself_sends_no_alert(listener: Listener) -> None:
    waits = Need("partition", "p:a", "failed", "it failed and is tried again", "", 1.0, False, float("inf"))
    soon = Need("partition", "p:b", "unowned", "no worker owns it", "", 1.0, False, 46.0)
    listener.need(waits, soon)
    assert listener.tick() == []


def test_a_users_own_check_is_reported_when_it_fails_and_when_it_passes_again(listener: Listener) -> None:
    listener.say("no_gap", False, why="3 rows are gone")
    assert [one.title for one in listener.tick()] == ["p/records: no_gap failed"]
    listener.say("no_gap", False, why="4 rows are gone")
    assert listener.tick() == []
    listener.say("no_gap", False, WARN)
    assert [one.title for one in listener.tick()] == ["over: p/records: no_gap failed"]


@pytest.mark.parametrize("tag", [INCARNATION, "rota/rebalance"])
def test_a_run_that_is_launched_again_by_itself_calls_by_its_need_alone(listener: Listener, tag: str) -> None:
    """A run that was killed is tried again, and a person was woken for each. `status` knew nothing of failed rebalances."""
    assert listener.tick() == []
    for _ in range(4):
        ours.execute_in_process(instance=listener.instance, raise_on_error=False, tags={tag: "default"})
        assert listener.tick() == []
    listener.need(Need("group", "default", "runs", "3 of its rebalances failed in a row: boom", "", 1.0, True, 1.0))
    assert [one.title for one in listener.tick()] == ["default: runs"]
    listener.need()
    assert [one.title for one in listener.tick()] == ["over: default: runs"]


def test_a_failed_run_is_reported_with_its_reason_and_other_and_old_runs_are_not(listener: Listener) -> None:
    ours.execute_in_process(instance=listener.instance, raise_on_error=False)
    assert listener.tick() == [], "no alert for what was there before"
    theirs.execute_in_process(instance=listener.instance, raise_on_error=False)
    failed = ours.execute_in_process(instance=listener.instance, raise_on_error=False)
    also = also_ours.execute_in_process(instance=listener.instance, raise_on_error=False)
    assert listener.tick() == [
        Alert("a run of ours failed", "the disk is full. Make room", f"/runs/{failed.run_id}"),
        Alert("a run of also_ours failed", "ValueError: the table cannot be opened", f"/runs/{also.run_id}"),
    ]
    assert listener.tick() == []


def test_a_sensor_that_fails_for_a_minute_is_reported_and_one_that_is_off_elsewhere_or_well_again_is_not(
    listener: Listener,
) -> None:
    """No ZooKeeper: no run was launched, no check was evaluated, and no alert was sent."""
    down = SerializableErrorInfo("No ZooKeeper at 127.0.0.1:1 (connection refused). Start one", [], "Unavailable")
    starts = SerializableErrorInfo("ZooKeeper did not answer within 10 s. See its log", [], "Unavailable")

    def make_sensor(name: str, location: str = "here", on: bool = True) -> InstigatorState:
        repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__")
        status = InstigatorStatus.RUNNING if on else InstigatorStatus.STOPPED
        origin = RemoteInstigatorOrigin(repository, name)
        return listener.instance.add_instigator_state(InstigatorState(origin, InstigatorType.SENSOR, status))

    def tick(
        sensor: InstigatorState, at: float, status: TickStatus, error: SerializableErrorInfo | None = None
    ) -> None:
        of = sensor.instigator_origin_id, sensor.name, sensor.instigator_type
        said = TickData(*of, status, at, run_ids=[], error=error, selector_id=sensor.selector_id)
        listener.instance.create_tick(said)

    backlog = make_sensor("p__backlog")
    for other in (make_sensor("p__backlog2", on=False), make_sensor("theirs")):
        for at in (0.0, 100.0):
            tick(other, at, TickStatus.FAILURE, down)
    tick(backlog, 0.0, TickStatus.SUCCESS)
    tick(backlog, 30.0, TickStatus.FAILURE, down)
    tick(backlog, 80.0, TickStatus.FAILURE, down)
    assert listener.tick() == [], "an outage of seconds heals itself"
    tick(backlog, 91.0, TickStatus.FAILURE, down)
    tick(backlog, 96.0, TickStatus.STARTED)
    title, path = "sensor p__backlog: fails", "/locations//sensors/p__backlog"
    assert listener.tick() == [Alert(title, f"sensor p__backlog: {down.message}", path)]
    membership = make_sensor("default__membership")
    for at in (30.0, 91.0):
        tick(membership, at, TickStatus.FAILURE, starts)
    assert listener.tick() == [], "one cause, whatever shows it: it called a second time once ZooKeeper was started"
    silence = evaluate_silence(listener.pipeline, Names(), down.message, "Unavailable")
    listener.instance.report_runless_asset_event(silence)
    assert listener.tick() == [], "and the check that reports it, with its code marks, is of that cause"
    said = Need("pipeline", "p", "fails", f"sensor p__backlog: {down.message}", "", 1.0, True, 1.0, "Unavailable")
    listener.need(said)
    assert listener.tick() == [], "and so is the check that names the sensor of its pipeline"
    listener.need()
    for sensor in (backlog, membership):
        tick(sensor, 100.0, TickStatus.SKIPPED)
    assert listener.tick() == [Alert(f"over: {title}", "The cause is gone.", path)]
    for at in (110.0, 180.0):
        tick(backlog, at, TickStatus.FAILURE, down)
    assert len(listener.tick()) == 1, "another outage"
    tick(backlog, 190.0, TickStatus.SKIPPED)
    assert [one.title for one in listener.tick()] == [f"over: {title}"]
    listener.instance.report_runless_asset_event(silence)
    assert [one.title for one in listener.tick()] == ["default: fails"]
    for at in (200.0, 270.0):
        tick(backlog, at, TickStatus.FAILURE, down)
    assert listener.tick() == [], "a check reported it before"
    make_sensor("p__checks", on=False)
    assert [one.title for one in listener.tick()] == ["sensor p__checks: off"]


def test_sensors_that_fail_for_other_reasons_are_reported_each(listener: Listener) -> None:
    """By a need's other fields, if two sentences are the same."""
    first, other = (
        Need("pipeline", "p", "fails", f"sensor s: {why}", "", 1.0, True, 1.0, which=why)
        for why in ("no rights", "full")
    )
    listener.need(first)
    assert len(listener.tick()) == 1
    listener.need(first, other)
    assert len(listener.tick()) == 1
    listener.need(first, other, replace(other, which="Unavailable"), replace(first, which="Unavailable"))
    assert len(listener.tick()) == 1


def test_an_alert_that_could_not_be_sent_is_sent_by_the_next_tick(
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
    before = listener.cursor
    assert len(listener.tick()) == 1
    listener.cursor = before  # Dagster's storage was locked when it was to store the sent alerts
    assert len(listener.tick()) == 1
