"""The sensors against a real ZooKeeper: they compare and remember nothing, and never launch twice."""

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster import DagsterRunStatus as Status

from rota.catalog import load
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.membership import join
from rota.coordination.ownership import claim
from rota.coordination.parking import park
from rota.coordination.records import Live
from rota.dagster.assets import checks
from rota.dagster.assets.names import Names
from rota.dagster.location import compose
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors import backlog, polling, runs
from rota.dataplane.delta.fenced_table import FencedTable
from rota.dataplane.ports import LogEntry
from rota.errors import Unavailable
from rota.ids import dagster_name
from rota.rebalance import rebalance
from tests.waiting import wait_until

names = Names()

FILE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("{folder}/{name}", format="json", schema="n int", settle=0), table=delta("{folder}/t-{name}"),
    group="{group}",
)
"""


class Desk:
    """A group of its own in the shared ZooKeeper, the definitions of two pipelines in it, and an instance."""

    def __init__(self, hosts: str, folder: Path, instance: dg.DagsterInstance) -> None:
        self.hosts, self.folder, self.instance = hosts, folder, instance
        self.group = f"g{uuid.uuid4().hex[:8]}"
        (folder / "pipelines").mkdir()
        for name in ("p", "q"):
            text = FILE.format(folder=folder, name=name, group=self.group)
            (folder / "pipelines" / f"{name}.py").write_text(text)
        self.catalog = load(folder / "pipelines")
        self.repository = compose(self.catalog).get_repository_def()
        self.stores = [connect(hosts, 5)]
        self.tree = GroupState(self.stores[0], self.group)
        assert isinstance(self.tick("p__backlog"), dg.SkipReason)  # nobody founded the group yet
        self.tree.found()
        self.instance.report_runless_asset_event(
            checks.check_files(names.membership(self.group), {})
        )  # of an earlier tick

    def land(self, *keys: str, pipeline: str = "p") -> None:
        for key in keys:
            (self.folder / pipeline / key).mkdir(parents=True, exist_ok=True)
            (self.folder / pipeline / key / f"{uuid.uuid4().hex}.json").write_text(json.dumps({"n": 1}) + "\n")

    def join(self, worker: str) -> str:
        self.stores.append(connect(self.hosts, 5))
        return join(GroupState(self.stores[-1], self.group), worker, Live())

    def own(self, incarnation: str) -> None:
        """What the agent would claim by its target."""
        target = self.tree.target(incarnation.partition("@")[0])
        for partition in target.partitions if target else ():
            claim(self.tree, incarnation, partition, self.tree.owned((partition,))[partition].version)

    def tick(self, sensor: str, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            repository_def=self.repository,
            resources={"rota_zookeeper": ZooKeeperResource(hosts=self.hosts)},
        ) as context:
            return self.repository.get_sensor_def(sensor)(context)

    def membership(self) -> dg.SensorResult | dg.SkipReason:
        return self.tick(dagster_name(self.group, "membership"))

    def run(self, job: str, status: Status, **tags: str) -> dg.DagsterRun:
        given = {name.replace("__", "/"): value for name, value in tags.items()}
        return self.instance.create_run_for_job(self.repository.get_job(job), status=status, tags=given)


@pytest.fixture
def desk(zookeeper: EmbeddedZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(polling, "WINDOW", 0.0)
    with dg.DagsterInstance.ephemeral() as instance:
        desk = Desk(zookeeper.hosts, tmp_path, instance)
        yield desk
        for store in desk.stores:
            store.close()


def test_a_full_group_takes_what_fits_and_says_who_found_no_room(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a pipeline's new folders were refused at the bound, and a tick that asked for a rebalance said nothing."""
    monkeypatch.setattr("rota.coordination.limits.MAX_IDS", 2)
    desk.land("day-3", "day-1", "day-2")
    desk.join("w1")
    asked = desk.membership()
    assert isinstance(asked, dg.SensorResult)
    assert "nobody consumes them: p:day-3" in str(asked.asset_events[0].metadata["problems"].value)
    rebalance(desk.tree, "r")
    assert desk.tree.targets()[1]["w1"].partitions == {"p:day-1", "p:day-2"}
    skipped = desk.membership()
    assert isinstance(skipped, dg.SkipReason)
    assert "p:day-3" in str(skipped.skip_message)


def test_who_joins_leaves_and_comes_back_is_asked_for_each_time(desk: Desk) -> None:
    desk.land("x", "y")
    desk.join("w1")
    asked = desk.membership()
    assert isinstance(asked, dg.SensorResult)
    assert [r.run_key for r in asked.run_requests] == [None]
    assert asked.cursor is None
    assert asked.asset_events[0].metadata["joined"].value == "w1"
    assert desk.instance.get_dynamic_partitions("p/partitions") == ["p:x", "p:y"]
    rebalance(desk.tree, "r")
    assert isinstance(desk.membership(), dg.SkipReason)
    desk.stores.pop().close()
    gone = desk.membership()
    assert isinstance(gone, dg.SensorResult)
    assert gone.asset_events[0].metadata["left"].value == "w1"
    rebalance(desk.tree, "r")
    desk.join("w1")
    assert isinstance(desk.membership(), dg.SensorResult)


def test_a_file_that_gives_no_pipeline_is_red_on_the_page_until_it_is_mended(desk: Desk) -> None:
    """Told once; a reload that mends it tells that, too. Without a first result the page counts 0 of 1 as passed."""
    pipelines = desk.folder / "pipelines"

    def told() -> list[tuple[bool, str | None]]:
        desk.repository = compose(load(pipelines)).get_repository_def()
        found = desk.membership()
        events = found.asset_events if isinstance(found, dg.SensorResult) else []
        events = [event for event in events if isinstance(event, dg.AssetCheckEvaluation)]
        for event in events:
            assert event.asset_check_key in desk.repository.asset_graph.asset_check_keys
            desk.instance.report_runless_asset_event(event)
        return [(event.passed, event.description) for event in events]

    with dg.DagsterInstance.ephemeral() as desk.instance:
        assert told() == [(True, None)]
        assert told() == []
        (pipelines / "a.py").write_text((pipelines / "p.py").read_text())
        ((passed, why),) = told()
        assert not passed
        assert "is the one of pipeline 'a'" in str(why)
        assert told() == []
        (pipelines / "a.py").unlink()
        assert told() == [(True, None)]
        assert told() == []


def test_one_rebalance_at_a_time_and_a_pause_after_one_that_failed(desk: Desk) -> None:
    desk.land("x")
    desk.join("w1")
    job = names.rebalance_job(desk.group)
    run = desk.run(job, Status.STARTED)
    skipped = desk.membership()
    assert isinstance(skipped, dg.SkipReason)
    assert f"{run.run_id} has not finished" in str(skipped.skip_message)
    desk.instance.report_run_failed(run)
    assert 0 < runs.Runs(desk.instance, job, {}).read_pause() <= 2
    resting = desk.membership()
    assert isinstance(resting, dg.SkipReason)
    assert "failed" in str(resting.skip_message)


def test_no_zookeeper_is_one_clear_line_and_never_no_workers(desk: Desk) -> None:
    desk.hosts = "127.0.0.1:1"
    with pytest.raises(Unavailable, match="Start one with `rota up`"):
        desk.membership()


def ready(desk: Desk) -> dict[str, str]:
    """Two workers that own what they should; worker -> incarnation."""
    desk.land("a", "b", "c")
    incarnations = {worker: desk.join(worker) for worker in ("w1", "w2")}
    desk.membership()
    rebalance(desk.tree, "r")
    for incarnation in incarnations.values():
        desk.own(incarnation)
    return incarnations


def test_one_run_for_each_worker_with_lag_and_none_beside_an_unfinished_one(desk: Desk) -> None:
    incarnations = ready(desk)
    asked = desk.tick("p__backlog")
    assert isinstance(asked, dg.SensorResult)
    configs = [r.run_config["ops"]["p__batch"]["config"] for r in asked.run_requests]
    assert {c["incarnation"] for c in configs} == set(incarnations.values())
    assert sorted(p for c in configs for p in c["partitions"]) == ["p:a", "p:b", "p:c"]
    assert all(r.run_key is None and r.partition_key is None for r in asked.run_requests)
    assert {r.tags["rota/worker"] for r in asked.run_requests} == {"w1", "w2"}
    desk.run("p__consume", Status.STARTED, rota__incarnation=incarnations["w1"])
    beside = desk.tick("p__backlog")
    assert isinstance(beside, dg.SensorResult)
    assert [r.tags["rota/incarnation"] for r in beside.run_requests] == [incarnations["w2"]]
    assert isinstance(desk.tick("q__backlog"), dg.SkipReason)  # nothing landed there


def test_an_idle_pipeline_asks_dagster_once_a_tick_and_one_with_runs_now_and_then(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked at each look, Dagster's storage took more processor time than all that was looked at."""
    incarnations = ready(desk)
    asked, now = list[float](), [0.0]
    monkeypatch.setattr(backlog, "time", SimpleNamespace(monotonic=lambda: now[0]))
    listed = runs.Runs.list_unfinished
    monkeypatch.setattr(runs.Runs, "list_unfinished", lambda self: asked.append(now[0]) or listed(self))
    mine = runs.Runs(desk.instance, "p__consume", {})

    def begin() -> backlog.Looks:
        return backlog.Looks(mine, desk.tree, desk.catalog.pipelines["p"], names)

    def look(looks: backlog.Looks, at: float) -> set[str]:
        now[0] = at
        return {request.tags["rota/incarnation"] for request in looks.look()}

    started = [desk.run("p__consume", Status.STARTED, rota__incarnation=one) for one in incarnations.values()]
    looks = begin()
    assert [look(looks, at / 2) for at in range(16)] == [set()] * 16
    assert asked == [0.0, backlog.FRESH, 2 * backlog.FRESH]
    desk.instance.report_run_failed(started[0])
    monkeypatch.setattr(runs.Runs, "read_pause", lambda *_: 0.0)
    assert look(looks, 2.5 * backlog.FRESH) == set()
    assert look(looks, 3.0 * backlog.FRESH) == {started[0].tags["rota/incarnation"]}
    desk.instance.report_run_failed(started[1])
    shutil.rmtree(desk.folder / "p")
    for key in ("a", "b", "c"):
        (desk.folder / "p" / key).mkdir(parents=True)
    looks, now[0] = begin(), 100.0
    asked.clear()
    assert [look(looks, 100.0 + at) for at in range(16)] == [set()] * 16
    assert asked == [100.0]
    desk.land("a")
    assert len(look(looks, 116.0)) == 1, "and what lands is launched at the next look"


def test_runs_of_a_worker_that_is_gone_are_cancelled_and_others_are_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    incarnations = ready(desk)
    dead = desk.run("p__consume", Status.STARTED, rota__incarnation="w2@00000000000000ff")
    alive = desk.run("p__consume", Status.STARTED, rota__incarnation=incarnations["w1"])
    clicked = desk.run("p__consume", Status.STARTED)
    cancelled: list[str] = []
    monkeypatch.setattr(desk.instance.run_coordinator, "cancel_run", lambda run_id: cancelled.append(run_id))
    desk.tick("p__backlog")
    assert cancelled == [dead.run_id]
    assert {alive.run_id, clicked.run_id}.isdisjoint(cancelled)


@pytest.mark.parametrize("guard", [True, False], ids=["by location", "by job alone"])
def test_a_neighbours_runs_are_neither_counted_nor_cancelled(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, guard: bool
) -> None:
    """Another code location of the instance has a pipeline of this name, and workers in another ZooKeeper. Found by job name
    alone, its runs are for workers that are gone, and its failures are ours."""
    incarnations = ready(desk)
    theirs = {runs.LOCATION_TAG: "__repository__@theirs"}
    started = desk.run("p__consume", Status.STARTED, rota__incarnation="w1@00000000000000ff", **theirs)
    failed = desk.run("p__consume", Status.STARTED, rota__incarnation=incarnations["w1"], **theirs)
    desk.instance.report_run_failed(failed)
    here = SimpleNamespace(location_name="ours") if guard else None
    monkeypatch.setattr(dg.SensorEvaluationContext, "code_location_origin", here)
    cancelled: list[str] = []
    monkeypatch.setattr(desk.instance.run_coordinator, "cancel_run", lambda run_id: cancelled.append(run_id))
    launched = desk.tick("p__backlog")
    assert isinstance(launched, dg.SensorResult)
    served = {request.tags["rota/incarnation"] for request in launched.run_requests}
    damage = [*cancelled, *(set(incarnations.values()) - served)]
    assert damage == ([] if guard else [started.run_id, incarnations["w1"]])


def test_a_run_that_went_down_with_its_server_holds_up_nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    incarnations = ready(desk)
    where = json.dumps({"socket": str(desk.folder / "gone"), "host": "localhost"})
    lost = desk.run("p__consume", Status.STARTED, rota__incarnation=incarnations["w1"], **{runs.GRPC_INFO_TAG: where})
    beside = desk.tick("p__backlog")
    assert isinstance(beside, dg.SensorResult)
    assert [r.tags["rota/incarnation"] for r in beside.run_requests] == [incarnations["w2"]]
    monkeypatch.setattr(runs, "SETTLING", -1e9)
    desk.tick("p__backlog")
    assert desk.instance.get_run_by_id(lost.run_id).status == Status.FAILURE
    monkeypatch.setattr(runs.Runs, "read_pause", lambda *_: 0.0)
    again = desk.tick("p__backlog")
    assert isinstance(again, dg.SensorResult)
    assert {r.tags["rota/incarnation"] for r in again.run_requests} == set(incarnations.values())


def report(desk: Desk, cursor: str | None = None) -> tuple[dict[str, tuple[bool, str]], str | None]:
    """What a tick of the checks' sensor tells, as the daemon stores it: name -> (passed, severity); and the cursor."""
    found = desk.tick("p__checks", cursor)
    assert isinstance(found, dg.SensorResult)
    told = [event for event in found.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    for event in told:
        assert event.asset_check_key in desk.repository.asset_graph.asset_check_keys
        desk.instance.report_runless_asset_event(event)
    return {one.check_name: (one.passed, one.severity.value) for one in told}, found.cursor


def test_an_idle_pipeline_tells_of_what_is_parked_left_out_or_owned_by_nobody(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run looks: runs of a pipeline at which nobody works do not come."""
    ready(desk)
    first, cursor = report(desk)
    assert set(first) == {spec.name for spec in checks.list_checks(desk.catalog.pipelines["p"], names)}
    assert all(passed for passed, _ in first.values())
    assert report(desk, cursor)[0] == {}, "what the page shows is not told again"
    park(desk.tree, "p:a", "the transform raised", retry_after=5)
    assert report(desk, cursor)[0] == {"none_parked": (False, "WARN")}
    park(desk.tree, "p:b", "the schema is wrong")
    (desk.folder / "p" / "beside.json").write_text("{}")
    assert report(desk, cursor)[0] == {"none_parked": (False, "ERROR"), "none_left_out": (False, "ERROR")}
    for store in desk.stores[1:]:
        store.close()
    told, cursor = report(desk, cursor)
    assert told == {}, "a hand-over has its time"
    monkeypatch.setattr("rota.dagster.assets.look.UNOWNED", 0.0)
    assert report(desk, cursor)[0] == {"all_owned": (False, "ERROR")}


def test_a_check_is_told_again_after_new_rows_because_the_page_does_not_count_an_older_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cards said "0 / 1 Passed" beside a green tick."""
    ready(desk)
    _, cursor = report(desk)
    made = dg.AssetMaterialization(names.records("p"), partition="p:a")
    desk.instance.report_runless_asset_event(made)
    assert report(desk, cursor)[0] == {}, "in a trickle there would be no end of it"
    told = {"no_gap", "none_parked", "none_rewritten", "none_left_out"}
    with monkeypatch.context() as later:
        later.setattr("rota.dagster.sensors.checks.AGAIN", 0)
        assert set(report(desk, cursor)[0]) == told, "not counted for long"
    desk.instance.report_runless_asset_event(made)
    monkeypatch.setattr("rota.dagster.sensors.checks.PAUSE", 0)
    assert set(report(desk, cursor)[0]) == told, "nothing is made any more"
    wait_until(lambda: report(desk, cursor)[0] == {}, 10)  # SQLite has the seconds of an evaluation only


def test_a_gap_is_told_as_long_as_the_log_has_it_whoever_works_meanwhile(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of the next run hid the failure of the one before: each looked at its own keys."""
    ready(desk)

    def entry(version: int, partition: str, start: int, end: int) -> LogEntry:
        return LogEntry(
            version, 0.0, "commit", "g", "c", "r", "a", 1, {partition: 1}, {partition: (start, end)}, {}, {}, 0
        )

    log = [entry(1, "p:a", 0, 1), entry(2, "p:a", 5, 6)]
    monkeypatch.setattr(
        FencedTable, "read_log", lambda _, since=-1: tuple(e for e in reversed(log) if e.version > since)
    )
    told, cursor = report(desk)
    assert told["no_gap"] == (False, "ERROR")
    log += [entry(v, "p:b", v, v + 1) for v in range(3, 2000)]
    told, cursor = report(desk, cursor)
    assert told == {}, "it is on the page, and stays"
    log += [entry(2000, "p:b", 2000, 2001)]
    assert report(desk, cursor)[0] == {}
    del log[:]
    assert report(desk, cursor)[0] == {"no_gap": (True, "ERROR")}, "another table stands there"
