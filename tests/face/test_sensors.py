"""The sensors against a real ZooKeeper: they compare and remember nothing, and never launch twice."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster import DagsterRunStatus as Status

from rota import registry
from rota.catalog import load
from rota.dagster import private
from rota.dagster.assets import check_results, checks
from rota.dagster.assets.names import INCARNATION
from rota.dagster.location import compose
from rota.dagster.sensors import alerts, backlog, membership, runs
from rota.dataplane.ports import Query
from rota.group.rebalance import rebalance
from rota.registry import open_source
from rota.run.work import WorkWatcher
from tests.face.desk import Desk, cancel_check, names, ready


def test_a_full_group_takes_what_fits_and_names_what_does_not(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a pipeline's new folders were refused at the bound, and a tick that asked for a rebalance said nothing."""
    monkeypatch.setattr("rota.coordination.limits.MAX_IDS", 2)
    desk.land("day-3", "day-1", "day-2")
    desk.join("w1")
    asked = desk.membership()
    assert isinstance(asked, dg.SensorResult)
    assert "no run consumes them: p:day-3" in str(asked.asset_events[0].metadata["problems"].value)
    rebalance(desk.tree, "r")
    assert desk.tree.targets()[1]["w1"].partitions == {"p:day-1", "p:day-2"}
    skipped = desk.membership()
    assert isinstance(skipped, dg.SkipReason)
    assert "p:day-3" in str(skipped.skip_message)


def test_a_worker_that_joins_leaves_and_comes_back_causes_a_run_each_time(desk: Desk) -> None:
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
    """Reported once; a reload that repairs it reports that, too. Without a first result the page counts 0 of 1 as passed."""
    pipelines = desk.folder / "pipelines"

    def list_reported() -> list[tuple[bool, str | None]]:
        desk.repository = compose(load(pipelines)).get_repository_def()
        found = desk.membership()
        events = found.asset_events if isinstance(found, dg.SensorResult) else []
        events = [event for event in events if isinstance(event, dg.AssetCheckEvaluation)]
        for event in events:
            assert event.asset_check_key in desk.repository.asset_graph.asset_check_keys
            desk.instance.report_runless_asset_event(event)
        return [(event.passed, event.description) for event in events]

    with dg.DagsterInstance.ephemeral() as desk.instance:
        assert list_reported() == [(True, None)]
        assert list_reported() == []
        (pipelines / "a.py").write_text((pipelines / "p.py").read_text())
        ((passed, why),) = list_reported()
        assert not passed
        assert "is the one of pipeline 'a'" in str(why)
        assert list_reported() == []
        (pipelines / "a.py").unlink()
        assert list_reported() == [(True, None)]
        assert list_reported() == []


def test_a_check_whose_run_was_cancelled_stops_no_rebalance_and_is_reported_again(desk: Desk) -> None:
    """Its newest record is of the plan. The sensor failed at it: a worker joined and got nothing."""
    desk.land("x")
    desk.join("w1")
    cancel_check(desk.instance, desk.repository, dg.AssetCheckKey(names.membership(desk.group), checks.SERVED))
    asked = desk.membership()
    assert isinstance(asked, dg.SensorResult)
    assert len(asked.run_requests) == 1
    assert [one.passed for one in asked.asset_events if isinstance(one, dg.AssetCheckEvaluation)] == [True]


def test_whatever_the_report_of_a_check_raises_the_rebalance_is_asked_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sensor that decides does not depend on the one that reports."""

    def fail(*_: object) -> None:
        raise RuntimeError("Dagster's records are another version's")

    monkeypatch.setattr("rota.dagster.sensors.membership.find_unshown", fail)
    desk.land("x")
    desk.join("w1")
    asked = desk.membership()
    assert isinstance(asked, dg.SensorResult)
    assert len(asked.run_requests) == 1
    rebalance(desk.tree, "r")
    assert isinstance(desk.membership(), dg.SkipReason)


def test_an_ablation_that_takes_a_plan_for_an_evaluation_stops_the_report_and_not_the_decision(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believe(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> object:
        record = instance.get_latest_asset_check_evaluation_record(key)
        return record and (record.evaluation, record.create_timestamp)

    for reader in (check_results, alerts):
        monkeypatch.setattr(reader, "read_evaluation", believe)
    ready(desk)
    desk.join("w3")
    records = dg.AssetCheckKey(names.records("p"), "no_gap")
    cancel_check(desk.instance, desk.repository, records, dg.AssetCheckKey(names.membership(desk.group), checks.SERVED))
    with pytest.raises(AttributeError):
        desk.tick("p__checks")
    with (
        dg.build_sensor_context(desk.instance, repository_def=desk.repository) as context,
        pytest.raises(AttributeError),
    ):
        alerts.read_checks(context)
    asked = desk.membership()
    assert isinstance(asked, dg.SensorResult)
    assert len(asked.run_requests) == 1


def test_one_rebalance_at_a_time_and_a_pause_after_one_that_failed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(runs, "time", SimpleNamespace(time=lambda: now))
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


def test_a_rebalance_that_was_made_and_never_submitted_is_not_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher died before it was in the queue: no part of Dagster ever polls at such a run again."""
    desk.land("x")
    desk.join("w1")
    run = desk.run(names.rebalance_job(desk.group), Status.NOT_STARTED)
    skipped = desk.membership()
    assert isinstance(skipped, dg.SkipReason), "it may be on its way"
    now = time.time() + runs.SUBMITTED
    monkeypatch.setattr(runs, "time", SimpleNamespace(time=lambda: now))
    desk.membership()
    left = desk.instance.get_run_by_id(run.run_id)
    assert left is not None
    assert left.status == Status.FAILURE
    monkeypatch.setattr(runs, "time", SimpleNamespace(time=lambda: now + 60))
    assert isinstance(desk.membership(), dg.SensorResult)


def test_one_run_for_each_worker_with_lag_and_none_beside_an_unfinished_one(desk: Desk) -> None:
    incarnations = ready(desk)
    asked = desk.tick("p__backlog")
    assert isinstance(asked, dg.SensorResult)
    configs = [r.run_config["ops"]["p__batch"]["config"] for r in asked.run_requests]
    assert {c["incarnation"] for c in configs} == set(incarnations.values())
    assert sorted(p for c in configs for p in c["partitions"]) == ["p:a", "p:b", "p:c"]
    assert all(r.run_key is None and r.partition_key is None for r in asked.run_requests)
    assert {r.tags["rota/worker"] for r in asked.run_requests} == {"w1", "w2"}
    assert {r.tags["rota/epoch"] for r in asked.run_requests} == {f"{desk.group}/1"}
    desk.run("p__consume", Status.STARTED, **{INCARNATION: incarnations["w1"]})
    beside = desk.tick("p__backlog")
    assert isinstance(beside, dg.SensorResult)
    assert [r.tags[INCARNATION] for r in beside.run_requests] == [incarnations["w2"]]
    assert isinstance(desk.tick("q__backlog"), dg.SkipReason)  # nothing landed there


@pytest.mark.parametrize("busy", [True, False])
def test_a_worker_that_awaits_its_first_run_gets_one_without_partitions_while_others_consume(
    desk: Desk, busy: bool
) -> None:
    incarnations = ready(desk)
    for one in incarnations.values() if busy else ():
        desk.run("p__consume", Status.STARTED, **{INCARNATION: one})
    newcomer = desk.join("w3", awaits_run=True)
    asked = desk.tick("p__backlog")
    launched = asked.run_requests if isinstance(asked, dg.SensorResult) else []
    configs = [r.run_config["ops"]["p__batch"]["config"] for r in launched]
    awaited = [c["partitions"] for c in configs if c["incarnation"] == newcomer]
    assert awaited == ([[]] if busy else [])
    assert isinstance(desk.tick("q__backlog"), dg.SkipReason), "no run consumes there"


def test_an_idle_pipeline_asks_dagster_once_a_tick_and_one_with_runs_now_and_then(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked at each poll, Dagster's storage took more processor time than all that was looked at."""
    incarnations = ready(desk)
    asked, now = list[float](), [0.0]
    monkeypatch.setattr(backlog, "time", SimpleNamespace(monotonic=lambda: now[0]))
    listed = runs.Runs.list_unfinished
    monkeypatch.setattr(runs.Runs, "list_unfinished", lambda *given: asked.append(now[0]) or listed(*given))
    mine = runs.Runs(desk.instance, "p__consume", {})

    def begin() -> backlog.Polls:
        pipeline = desk.catalog.pipelines["p"]
        return backlog.Polls(mine, desk.tree, pipeline, names, WorkWatcher(desk.tree, pipeline))

    def poll_at(polls: backlog.Polls, at: float) -> set[str]:
        now[0] = at
        return {request.tags[INCARNATION] for request in polls.poll()}

    started = [desk.run("p__consume", Status.STARTED, **{INCARNATION: one}) for one in incarnations.values()]
    polls = begin()
    assert [poll_at(polls, at / 2) for at in range(16)] == [set()] * 16
    assert asked == [0.0, backlog.FRESH, 2 * backlog.FRESH]
    desk.instance.report_run_failed(started[0])
    monkeypatch.setattr(runs.Runs, "read_pause", lambda *_: 0.0)
    assert poll_at(polls, 2.5 * backlog.FRESH) == set()
    assert poll_at(polls, 3.0 * backlog.FRESH) == {started[0].tags[INCARNATION]}
    desk.instance.report_run_failed(started[1])
    shutil.rmtree(desk.folder / "p")
    for key in ("a", "b", "c"):
        (desk.folder / "p" / key).mkdir(parents=True)
    polls, now[0] = begin(), 100.0
    asked.clear()
    assert [poll_at(polls, 100.0 + at) for at in range(16)] == [set()] * 16
    assert asked == [100.0]
    desk.land("a")
    assert len(poll_at(polls, 116.0)) == 1, "and what lands is launched at the next poll"


@pytest.mark.parametrize(("launch", "launched"), [(0.0, 0), (3600.0, 2)], ids=["never early", "in time"])
def test_a_run_is_launched_for_files_that_will_have_rested_once_it_is_there(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, launch: float, launched: int
) -> None:
    """Of a launch at most half of `settle` counts: so the files rest for more than half of it."""
    ready(desk)
    monkeypatch.setattr("rota.run.work.LAUNCHED", Query(ahead=launch))
    monkeypatch.setattr(
        "rota.run.work.open_source", lambda *of: replace(open_source(*of), clock=lambda: time.time() + 2000.0)
    )
    pipeline = desk.catalog.pipelines["p"]
    resting = replace(pipeline, source=replace(pipeline.source, settle=3600.0))  # type: ignore[type-var]
    mine, watcher = runs.Runs(desk.instance, "p__consume", {}), WorkWatcher(desk.tree, resting)
    assert len(backlog.Polls(mine, desk.tree, resting, names, watcher).poll()) == launched


def test_runs_of_a_worker_that_is_gone_are_cancelled_and_others_are_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    incarnations = ready(desk)
    dead = desk.run("p__consume", Status.STARTED, **{INCARNATION: "w2@00000000000000ff"})
    alive = desk.run("p__consume", Status.STARTED, **{INCARNATION: incarnations["w1"]})
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
    theirs = {private.LOCATION_TAG: "__repository__@theirs"}
    started = desk.run("p__consume", Status.STARTED, **{INCARNATION: "w1@00000000000000ff"}, **theirs)
    failed = desk.run("p__consume", Status.STARTED, **{INCARNATION: incarnations["w1"]}, **theirs)
    desk.instance.report_run_failed(failed)
    here = SimpleNamespace(location_name="ours") if guard else None
    monkeypatch.setattr(dg.SensorEvaluationContext, "code_location_origin", here)
    cancelled: list[str] = []
    monkeypatch.setattr(desk.instance.run_coordinator, "cancel_run", lambda run_id: cancelled.append(run_id))
    launched = desk.tick("p__backlog")
    assert isinstance(launched, dg.SensorResult)
    served = {request.tags[INCARNATION] for request in launched.run_requests}
    damage = [*cancelled, *(set(incarnations.values()) - served)]
    assert damage == ([] if guard else [started.run_id, incarnations["w1"]])


def test_a_run_that_went_down_with_its_server_holds_up_no_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    incarnations = ready(desk)
    where = json.dumps({"socket": str(desk.folder / "gone"), "host": "localhost"})
    lost = desk.run("p__consume", Status.STARTED, **{INCARNATION: incarnations["w1"]}, **{private.GRPC_INFO_TAG: where})
    monkeypatch.setattr(runs, "SETTLING", 1e9)
    beside = desk.tick("p__backlog")
    assert isinstance(beside, dg.SensorResult)
    assert [r.tags[INCARNATION] for r in beside.run_requests] == [incarnations["w2"]]
    monkeypatch.setattr(runs, "SETTLING", -1e9)
    desk.tick("p__backlog")
    assert desk.instance.get_run_by_id(lost.run_id).status == Status.FAILURE
    monkeypatch.setattr(runs.Runs, "read_pause", lambda *_: 0.0)
    again = desk.tick("p__backlog")
    assert isinstance(again, dg.SensorResult)
    assert {r.tags[INCARNATION] for r in again.run_requests} == set(incarnations.values())


@pytest.mark.parametrize(("each", "pauses"), [(0.0, (1.0, 2.0)), (5.0, (5.0, 5.0))])
def test_a_source_whose_looks_are_paid_for_is_looked_at_less_often(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, each: float, pauses: tuple[float, float]
) -> None:
    seen: list[float] = []

    def poll(poll_once: Callable[[], object], *_: object, pause: float, **__: object) -> object:
        seen.append(pause)
        return poll_once()

    for module in (backlog, membership):
        monkeypatch.setattr(module, "poll", poll)
    monkeypatch.setattr(registry, "BUCKETS", ("/",) if each else ())  # a path counts as an address of a bucket
    desk.land("a")
    desk.membership()
    desk.tick("p__backlog")
    assert tuple(sorted(seen)) == pauses
