"""Law: what the sensors know of runs does not hang on what this machine's clock did since, nor on a name server."""

import errno
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from dagster import DagsterRunStatus as Status

from rota.dagster import private
from rota.dagster.sensors import runs

BACK = 3600.0
GROUP: Any = SimpleNamespace(group="g", live_runs=frozenset)  # no run has a node in it


class Instance:
    """Run storage that knows these runs, and takes note of those that are reported as failed."""

    def __init__(self, *records: Any) -> None:
        self.records, self.failed = records, list[Any]()

    def get_run_records(self, *_: Any, **__: Any) -> Any:
        return self.records

    def report_run_failed(self, run: Any, _: str) -> None:
        self.failed.append(run)


def run(status: Status, at: float, where: str = "") -> Any:
    """A run that ended, or was last heard of, at a time of this machine's clock."""
    moment = SimpleNamespace(timestamp=lambda: at)
    ran = SimpleNamespace(run_id="r", status=status, tags={private.GRPC_INFO_TAG: where} if where else {})
    return SimpleNamespace(dagster_run=ran, end_time=at, update_timestamp=moment)


@pytest.mark.parametrize("off", [-BACK, 0.0, BACK])
def test_a_failed_job_rests_no_longer_than_it_is_to(off: float) -> None:
    failures = [run(Status.FAILURE, time.time() + off)] * 3
    assert runs.Runs(Instance(*failures), "job", {}).read_pause() <= 8  # type: ignore[arg-type]


@pytest.mark.parametrize("off", [-BACK, BACK])
def test_a_run_whose_server_went_down_is_over_at_any_time_of_the_clock(off: float) -> None:
    lost = run(Status.STARTED, time.time() + off, '{"host": "127.0.0.1", "port": 1}')
    instance = Instance(lost)
    assert runs.Runs(instance, "job", {}).list_unfinished(GROUP) == []  # type: ignore[arg-type]
    assert instance.failed == [lost.dagster_run]


@pytest.mark.parametrize("host", ["nowhere.invalid", "x" * 70, "a..b"])
def test_a_host_without_an_address_is_not_known_to_be_gone(host: str) -> None:
    there = run(Status.STARTED, 0.0, f'{{"host": "{host}", "port": 1}}')
    instance = Instance(there)
    assert runs.Runs(instance, "job", {}).list_unfinished(GROUP) == [there.dagster_run]  # type: ignore[arg-type]
    assert instance.failed == []


@pytest.mark.parametrize(
    "said", [TimeoutError("slow"), OSError(errno.ENETUNREACH, "no way"), ConnectionResetError("busy")]
)
def test_only_a_server_that_refuses_is_gone(said: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on another machine, or behind a firewall, was reported as failed while it went on."""

    def connect(*_: object) -> None:
        raise said

    monkeypatch.setattr(socket, "create_connection", connect)
    there = run(Status.STARTED, 0.0, '{"host": "code-server", "port": 4000}')
    assert runs.Runs(Instance(there), "job", {}).list_unfinished(GROUP) == [there.dagster_run]  # type: ignore[arg-type]
    said = ConnectionRefusedError("no server listens")
    assert runs.Runs(Instance(there), "job", {}).list_unfinished(GROUP) == []  # type: ignore[arg-type]
