"""No run waits in Dagster's queue without need: a rebalance for another of its group, one that consumes for its limits."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
import yaml
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from rota.dagster.run_queue import RunQueue

SHIPPED = Path(__file__).parents[2] / "dagster_project" / "dagster.yaml"
STARTING, QUEUED = dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.QUEUED
HERE = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "r")
DAY, NIGHT = {"rota/rebalance": "day"}, {"rota/rebalance": "night"}
FLIGHTS = {"rota/consume": "flights"}


@dg.job
def job() -> None: ...


class Desk:
    """An instance with the shipped queue. A launch of it only makes the run a started one."""

    def __init__(self, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
        self.instance = instance
        monkeypatch.setattr(instance, "launch_run", self.launch)

    def launch(self, run_id: str, workspace: object) -> dg.DagsterRun | None:
        self.instance.report_dagster_event(dg.DagsterEvent("PIPELINE_STARTING", "job"), run_id)
        return self.instance.get_run_by_id(run_id)

    def submit(self, tags: dict[str, str], status: dg.DagsterRunStatus | None = None) -> dg.DagsterRunStatus:
        origin = HERE.get_job_origin("job")
        run = self.instance.create_run_for_job(job, tags=tags, status=status, remote_job_origin=origin)
        context = SimpleNamespace(dagster_run=run, workspace=None)
        return self.instance.run_coordinator.submit_run(context).status  # type: ignore[arg-type]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    shipped = yaml.safe_load(SHIPPED.read_text())
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump({k: shipped[k] for k in ("run_coordinator", "concurrency")}))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert isinstance(instance.run_coordinator, RunQueue)
        yield Desk(instance, monkeypatch)


def test_a_rebalance_starts_and_a_second_one_of_its_group_waits(desk: Desk) -> None:
    assert [desk.submit(DAY), desk.submit(DAY), desk.submit(DAY)] == [STARTING, QUEUED, QUEUED]
    assert desk.submit(NIGHT) == STARTING


def test_a_run_that_consumes_starts_if_there_is_room_and_no_run_waits(desk: Desk) -> None:
    assert [desk.submit(FLIGHTS) for _ in range(9)] == [STARTING] * 8 + [QUEUED]
    assert desk.submit(DAY) == STARTING, "a slot is kept for it"


def test_a_run_that_consumes_queues_behind_those_that_wait(desk: Desk) -> None:
    assert [desk.submit({}), desk.submit(FLIGHTS), desk.submit(DAY)] == [QUEUED, QUEUED, STARTING]


def test_runs_of_others_leave_no_room(desk: Desk) -> None:
    for _ in range(12):
        desk.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert desk.submit(FLIGHTS) == QUEUED


def test_a_rebalance_that_is_over_holds_up_no_other(desk: Desk) -> None:
    run = desk.instance.create_run_for_job(job, tags=DAY, status=dg.DagsterRunStatus.SUCCESS)
    assert run.is_finished
    assert desk.submit(DAY) == STARTING


@pytest.mark.parametrize("status", ["CANCELED", "FAILURE", "STARTING", "STARTED", "QUEUED"])
def test_a_run_is_launched_only_if_it_never_was_and_is_not_over(
    status: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sensor daemon submits a run again if it died while it submitted; a person may have cancelled the run meanwhile."""
    launched: list[str] = []
    monkeypatch.setattr(desk.instance, "launch_run", lambda run_id, _: launched.append(run_id))
    assert desk.submit(DAY, dg.DagsterRunStatus[status]).value == status
    assert not launched


def test_a_launch_that_fails_is_reported_to_its_submitter(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A code server may be gone at that moment: the tick fails with the reason, and the next one asks again."""

    def fail(run_id: str, workspace: object) -> None:
        raise dg.DagsterInvariantViolationError("no code server")

    monkeypatch.setattr(desk.instance, "launch_run", fail)
    with pytest.raises(dg.DagsterInvariantViolationError, match="no code server"):
        desk.submit(DAY)


def test_the_limits_of_runs_are_those_of_the_file(desk: Desk) -> None:
    limits = desk.instance.get_concurrency_config().run_queue_config
    assert limits
    assert limits.max_concurrent_runs == 12
    assert {"key": "rota/consume", "limit": 8} in limits.tag_concurrency_limits
