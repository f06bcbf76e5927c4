"""An error that one expects is one line of the tick and of the run, as Dagster stores it: the line of a command."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import SensorExecutionErrorSnap
from dagster._grpc.impl import get_external_sensor_execution
from dagster_shared.error import SerializableErrorInfo

from rota.coordination.client import connect
from rota.dagster.assets.failure import in_one_line
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.errors import Unavailable
from rota.ids import dagster_name
from tests.core.seen_group import settle_within
from tests.face.desk import Desk, ready


def tick_on_server(desk: Desk, folder: Path, *sensors: str) -> Iterator[SerializableErrorInfo]:
    """What Dagster's server hands to the daemon of a tick that failed, which stores it: all of the text."""
    (folder / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(folder / "home")) as instance:
        for sensor in sensors:
            raised = get_external_sensor_execution(
                desk.repository, None, instance.get_ref(), sensor, None, None, None, None, None
            )
            assert isinstance(raised, SensorExecutionErrorSnap)
            yield raised.error


@pytest.mark.parametrize("guard", [True, False], ids=["one line", "as it was raised"])
def test_no_zookeeper_is_one_line_of_a_tick_that_fails_and_never_no_workers(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: bool
) -> None:
    """The line of a command and nothing below it, as Dagster's server hands it to the daemon."""
    monkeypatch.setenv("ROTA_ZOOKEEPER", "127.0.0.1:1")
    monkeypatch.setattr("rota.coordination.client.connect", partial(connect, connect_timeout=0.5))
    with pytest.raises(Unavailable, match="Start one with `rota up`") as said, ZooKeeperResource().store():
        pass
    for sensor in ("membership", "backlog", "checks") if not guard else ():
        monkeypatch.setattr(f"rota.dagster.sensors.{sensor}.in_one_line", nullcontext)
    for raised in tick_on_server(desk, tmp_path, dagster_name(desk.group, "membership"), "p__backlog", "p__checks"):
        text = raised.to_string()
        assert (text == str(said.value), "Stack Trace" in text) == (guard, not guard)
        assert raised.cls_name == "Unavailable" or not guard, (
            "by its kind an alert knows that all sensors fail of one cause"
        )


def test_a_table_that_cannot_be_read_is_one_line_of_its_check(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(desk)
    log = tmp_path / "t-p" / "main" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("no json")
    settle_within(0.0, monkeypatch)
    found = desk.tick("p__checks")
    assert isinstance(found, dg.SensorResult)
    said = {one.check_name: one for one in found.asset_events if isinstance(one, dg.AssetCheckEvaluation)}
    raised = str(said["source_and_table_answer"].description)
    assert f"{log.parent} is no table that can be read (" in raised.replace("`", "")
    assert "Trace" not in raised
    assert "\n" not in raised


def test_a_run_stores_the_line_and_its_kind_and_no_traceback() -> None:
    @dg.op
    def fail() -> None:
        with in_one_line():
            raise Unavailable("No ZooKeeper at h:1. Start one", hosts="h:1")

    @dg.job
    def job() -> None:
        fail()

    with dg.DagsterInstance.ephemeral() as instance:
        ended = job.execute_in_process(instance=instance, raise_on_error=False)
    data = ended.failure_data_for_node("fail")
    assert data is not None
    assert data.error is not None
    assert data.error.to_string() == "No ZooKeeper at h:1. Start one"
    assert data.user_failure_data is not None
    assert data.user_failure_data.description == "No ZooKeeper at h:1. Start one"
    assert data.user_failure_data.metadata["error"].value == "Unavailable"
