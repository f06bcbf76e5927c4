"""Law: a run is alive by its own node, and by nothing that answers where it was started."""

import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterRunStatus as Status

from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.coordination.membership import create_liveness_node
from rota.dagster import private
from rota.dagster.assets.liveness import make_liveness_tag
from rota.dagster.assets.names import INCARNATION, LIVENESS_TAG
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors import runs
from tests.face.desk import Desk, ready


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a code server that is there; no run is about to start, or rests."""
    monkeypatch.setattr(runs, "SETTLING", -1.0)
    monkeypatch.setattr(runs.Runs, "read_pause", lambda *_: 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield json.dumps({"host": "127.0.0.1", "port": server.getsockname()[1]})


def find_launched(desk: Desk) -> set[str]:
    ticked = desk.tick("p__backlog")
    return {r.tags["rota/worker"] for r in ticked.run_requests or ()} if isinstance(ticked, dg.SensorResult) else set()


@pytest.mark.parametrize("status", [Status.STARTED, Status.CANCELING])
def test_a_run_that_died_with_its_code_server_is_over_though_another_server_answers_there(
    desk: Desk, answering: str, status: Status
) -> None:
    """A container came back at its address: the worker waited for the dead run for ever, and every check passed."""
    incarnations = ready(desk)
    run = desk.run("p__consume", status, **{INCARNATION: incarnations["w1"]})
    desk.instance.add_run_tags(run.run_id, {private.GRPC_INFO_TAG: answering})
    desk.instance.add_run_tags(run.run_id, {LIVENESS_TAG: f"{desk.group}/{run.run_id}"})
    with connect(desk.hosts, 60.0) as its:
        create_liveness_node(GroupState(its, desk.group), run.run_id)
        assert find_launched(desk) == {"w2"}, "it goes on"
    assert find_launched(desk) == {"w1", "w2"}
    assert desk.instance.get_runs(dg.RunsFilter(run_ids=[run.run_id]))[0].status == Status.FAILURE


def test_a_run_that_has_no_node_yet_or_any_more_is_not_taken_for_dead(
    desk: Desk, answering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    incarnation = ready(desk)["w1"]
    first = desk.run("p__consume", Status.STARTED)
    copied = make_liveness_tag(desk.group, first.run_id)  # Dagster copies tags to a run that tries again
    desk.instance.report_run_failed(first)
    for tag in (copied, "", make_liveness_tag("another-group", "r")):
        tags = {INCARNATION: incarnation, LIVENESS_TAG: tag}
        run = desk.run("p__consume", Status.STARTED, **tags)
        desk.instance.add_run_tags(run.run_id, {private.GRPC_INFO_TAG: answering})
        assert find_launched(desk) == {"w2"}, tag
        desk.instance.report_run_failed(run)
    launched_elsewhere = desk.run("p__consume", Status.STARTED, **{INCARNATION: incarnation})
    late = desk.run("p__consume", Status.STARTED, **{INCARNATION: incarnation})
    desk.instance.add_run_tags(late.run_id, {private.GRPC_INFO_TAG: answering})
    monkeypatch.setattr(runs, "LONGEST_START", -1.0)
    assert find_launched(desk) == {"w2"}
    unfinished = desk.instance.get_runs(dg.RunsFilter(statuses=runs.UNFINISHED))
    assert [one.run_id for one in unfinished] == [launched_elsewhere.run_id], (
        "the state of another launcher's run is unknown"
    )


def test_a_run_has_its_node_from_before_its_work_until_after_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(desk)
    seen: list[tuple[bool, bool]] = []

    def rebalance(tree: GroupState, run_id: str) -> None:
        (run,) = desk.instance.get_runs(dg.RunsFilter(run_ids=[run_id]))
        seen.append((run_id in tree.live_runs(), run.tags[LIVENESS_TAG] == make_liveness_tag(desk.group, run_id)))
        raise RuntimeError("it ends somehow")

    monkeypatch.setattr("rota.group.rebalance.rebalance", rebalance)
    job = desk.repository.get_job(f"{desk.group}__rebalance")
    resources = {"rota_zookeeper": ZooKeeperResource(hosts=desk.hosts)}
    done = job.execute_in_process(instance=desk.instance, resources=resources, raise_on_error=False)
    assert seen == [(True, True)]
    assert done.dagster_run.run_id not in desk.tree.live_runs()
    (run,) = desk.instance.get_runs(dg.RunsFilter(run_ids=[done.run_id]))
    assert run.tags[LIVENESS_TAG] == ""


def test_dagster_tries_no_run_again_that_the_sensor_launches_anew(desk: Desk, tmp_path: Path) -> None:
    """A worker whose run crashed, or was taken for dead, had two runs at once."""
    ready(desk)
    asked = desk.tick("p__backlog")
    assert isinstance(asked, dg.SensorResult)
    retries = {"run_retries": {"enabled": True, "max_retries": 1}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=retries) as instance:

        def is_tried_again(tags: Mapping[str, str]) -> str:
            run = instance.create_run_for_job(desk.repository.get_job("p__consume"), status=Status.STARTED, tags=tags)
            instance.report_run_failed(run)
            (failed,) = instance.get_runs(dg.RunsFilter(run_ids=[run.run_id]))
            return failed.tags["dagster/will_retry"]

        assert is_tried_again((asked.run_requests or [])[0].tags) == "false"
        assert is_tried_again({}) == "true", "of a person's"
