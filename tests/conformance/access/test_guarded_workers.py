"""The process of a worker under credentials: it waits for its group, and reads its password from a file."""

import os
import signal
from pathlib import Path

import pytest

from rota.coordination.group_state import GroupState
from tests.conformance.access.connections import SCHEMES, hear, open_store, run_command, start_command
from tests.guarded import Guarded, password
from tests.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning")


def test_a_worker_waits_until_its_group_is_founded(guarded: Guarded, fresh: None, group: str) -> None:
    worker = start_command(
        guarded.environment("sasl", "worker"), "worker", "--group", group, "--id", "w1", "--no-spark"
    )
    try:
        assert "Its membership sensor founds it" in hear(worker, "event=no-group")
        with open_store(guarded.environment("sasl", "controller")) as store:
            GroupState(store, group).found()
            assert hear(worker, "event=joined")
    finally:
        worker.terminate()
        worker.communicate()


def test_a_worker_joins_with_its_password_from_a_file(
    guarded: Guarded, fresh: None, group: str, tmp_path: Path
) -> None:
    """The process itself: it works, the others' passwords are refused in one line, and `ps` shows none."""
    with open_store(guarded.environment("sasl", "controller")) as store:
        tree = GroupState(store, group)
        tree.found()
        environ = dict(guarded.environment("sasl", "worker"))
        file = tmp_path / "auth"
        file.write_text(environ.pop("ROTA_ZOOKEEPER_AUTH") + "\n")
        worker = start_command(
            environ | {"ROTA_ZOOKEEPER_AUTH_FILE": str(file)}, "worker", "--group", group, "--id", "w1", "--no-spark"
        )
        try:
            assert hear(worker, "event=joined")
            assert password("worker") not in Path(f"/proc/{worker.pid}/cmdline").read_text()
            assert [one.worker for one in tree.live()] == ["w1"]
        finally:
            worker.terminate()
            worker.communicate()
    done = run_command(
        guarded.environment("sasl", "controller"), "worker", "--group", group, "--id", "w2", "--no-spark"
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"does not let sasl:controller (controller) create /rota/{group}/live/w2@" in line
    assert f"right c on /rota/{group}/live is of a worker or person" in line


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_supervisor_ends_a_session_with_its_workers_credentials(
    guarded: Guarded, fresh: None, group: str, scheme: str
) -> None:
    environ = guarded.environment(scheme, "worker") | {"ROTA_SESSION_TIMEOUT": "110"}  # the server grants up to 120 s
    with open_store(guarded.environment(scheme, "controller")) as store:
        tree = GroupState(store, group)
        tree.found()
        worker = start_command(environ, "worker", "--group", group, "--id", "w1", "--no-spark")
        assert hear(worker, "event=joined")
        (live,) = tree.live()
        os.kill(live.record.pid if live.record else 0, signal.SIGKILL)
        wait_until(lambda: not tree.live(), 60)
        worker.communicate()
        assert worker.returncode == -signal.SIGKILL
