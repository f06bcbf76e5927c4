"""The stack ends every process that it started, and they end when it dies."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml

from rota.cli.up import NeedsReporter, choose_port, keep_running
from rota.cli.view import Progress
from rota.coordination.client import connect
from rota.errors import ConfigError
from rota.local.child import Child
from rota.local.dagster_services import DAEMON, PAGE
from rota.local.folder import MARK, StateFolder
from rota.local.restarts import SOUND, Ended, Restarts, schedule
from rota.local.stack import Stack, set_slots
from rota.machine import free_port
from tests.waiting import LONG, wait_until

FAMILY = (
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    "time.sleep(600)"
)


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_frozen_child_and_its_children_end(tmp_path: Path) -> None:
    child = Child("w1", [sys.executable, "-c", FAMILY], tmp_path / "log", os.environ, signal.SIGTERM)
    grandchild = wait_until(lambda: psutil.Process(child.process.pid).children())[0]
    assert os.getpgid(grandchild.pid) == child.process.pid  # a group of its own, with its children in it
    child.signal_group(signal.SIGSTOP)
    assert child.running
    child.end(patience=5)
    assert not child.running
    wait_until(lambda: is_gone(grandchild))


@pytest.mark.parametrize("inherited", ["SIG_DFL", "SIG_IGN"])
def test_a_child_dies_with_its_parent(tmp_path: Path, inherited: str) -> None:
    """Also where the parent ignores SIGTERM, as Dagster makes a process that was started by a shell's `&`; and a worker that
    gets SIGTERM also waits for a ZooKeeper that died: it stayed for minutes, with its Spark."""
    script = (
        "import os, signal, sys, time; from pathlib import Path; from rota.local.child import Child\n"
        f"signal.signal(signal.SIGTERM, signal.{inherited})\n"
        "deaf = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(99)'\n"
        "sleeper = [sys.executable, '-c', deaf]\n"
        "c = Child('w1', sleeper, Path(sys.argv[1]), os.environ, signal.SIGTERM)\n"
        "print(c.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: (tmp_path / "log").read_text())
        parent.kill()
        parent.wait(LONG)
    wait_until(lambda: is_gone(child))


def test_no_code_of_the_parent_runs_in_a_child(tmp_path: Path) -> None:
    """gRPC's did where the parent spoke to a Spark: of 60 children two or so were dead before they were the program."""
    script = (
        "import os, signal, sys; from pathlib import Path; from rota.local.child import Child\n"
        "os.register_at_fork(after_in_child=lambda: os._exit(77))\n"
        "c = Child('x', [sys.executable, '-c', 'exit(5)'], Path(sys.argv[1]), os.environ, signal.SIGTERM)\n"
        "exit(c.process.wait())"
    )
    of = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path / "log")], env=of, check=False).returncode == 5


@pytest.mark.parametrize(("workers", "pipelines", "slots"), [(2, 1, 8), (8, 1, 8), (9, 1, 9), (8, 3, 24), (0, 0, 8)])
def test_each_worker_has_a_slot_in_each_pipeline(workers: int, pipelines: int, slots: int) -> None:
    """With 8 slots for whatever was declared, the runs of a ninth worker waited."""
    shipped = (Path(__file__).parents[2] / "dagster_project" / "dagster.yaml").read_text()
    runs = yaml.safe_load(set_slots(shipped, workers, pipelines))["concurrency"]["runs"]
    limits = {one["key"]: one["limit"] for one in runs["tag_concurrency_limits"]}
    assert (limits["rota/consume"], runs["max_concurrent_runs"]) == (slots, slots + 4)
    assert limits["rota/rebalance"] == 1
    with pytest.raises(ConfigError, match="max_concurrent_runs: ' 0 times"):
        set_slots("concurrency: {}", workers, pipelines)


def test_a_taken_port_is_left_alone() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert free_port(taken.getsockname()[1]) != taken.getsockname()[1]
    assert free_port(0) > 0


def test_a_port_of_zookeeper_that_the_user_names_is_that_or_refused() -> None:
    """Another one after each start made an exported line stale, and a shell asked a stranger's ZooKeeper."""
    free = free_port()
    assert choose_port(free) == free
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="is taken"):
            choose_port(taken.getsockname()[1])
    assert choose_port(None) > 0


def test_a_demo_that_gives_up_names_the_logs_folder_and_their_last_errors(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state").make()
    assert state.describe_logs() == f"The logs are in {state.logs}"
    (state.logs / "w1.log").write_text("all is well\n")
    (state.logs / "dagster-daemon.log").write_text("ERROR old\nThe sensor tick timed out  after 60 seconds\nnext\n")
    assert state.describe_logs().endswith(
        "state/logs; their last errors: dagster-daemon: The sensor tick timed out after 60 seconds"
    )


def test_only_a_folder_that_rota_made_is_emptied(tmp_path: Path) -> None:
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="not made by rota"):
        StateFolder(mine).empty()
    assert (mine / "chapter.txt").exists()
    made = StateFolder(tmp_path / "state").empty().make()
    (made.tables / "old").mkdir()
    (made.root / "history.png").touch()
    assert not [path for path in made.empty().root.iterdir() if path.name != MARK]


def test_a_folder_in_use_is_neither_emptied_nor_used_again(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    with Stack(state):
        (state.tables / "mine").mkdir()
        for intrude in (state.empty, lambda: Stack(state)):
            with pytest.raises(ConfigError, match="Another `rota up` or `rota demo` runs in"):
                intrude()
        assert (state.tables / "mine").exists()
    Stack(state.empty()).close()


def test_a_worker_that_dies_is_reported_and_not_restarted(tmp_path: Path) -> None:
    said: list[str] = []
    progress = Progress()
    progress.say = said.append  # type: ignore[method-assign]
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    with Stack(StateFolder(tmp_path / "state")) as stack:
        for name in ("w1", "w2", DAEMON):
            stack.children[name] = Child(name, sleeper, tmp_path / name, os.environ, signal.SIGTERM)
        for name in ("w2", DAEMON):
            stack.children[name].process.kill()
            stack.children[name].process.wait(LONG)
        keep_running(stack, progress)
        assert [line.partition(";")[0] for line in said] == ["w2 was killed by SIGKILL"]
        assert set(stack.children) == {"w1", DAEMON}, "the daemon is the business of Restarts"


def test_a_process_of_dagster_that_dies_is_started_again_and_reported_if_it_does_not_stay(tmp_path: Path) -> None:
    """A daemon killed under `rota up` ended the whole stack within 27 s, as `dagster dev` does."""
    said, now, starts = list[str](), [1000.0], tmp_path / "starts"
    # it stays at its first start and its fourth, and leaves a process behind each time
    program = (
        "import pathlib, subprocess, sys, time; p = pathlib.Path(sys.argv[1]); p.open('a').write('x')\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "if len(p.read_text()) in (1, 4): time.sleep(600)\n"
        "sys.exit('no port')"
    )
    with Stack(StateFolder(tmp_path / "state")) as stack:
        command = [sys.executable, "-c", program, str(starts)]
        stack.children[PAGE] = Child(PAGE, command, tmp_path / PAGE, os.environ, signal.SIGINT)
        restarts = Restarts(stack, (PAGE, DAEMON), said.append, lambda: now[0])
        restarts.poll()
        left = wait_until(lambda: psutil.Process(stack.children[PAGE].process.pid).children())[0]
        assert said == []
        stack.children[PAGE].process.kill()
        for pause in (0.0, 1.0, 2.0):
            stack.children[PAGE].process.wait(LONG)
            count = len(starts.read_text())
            restarts.poll()
            if pause:
                now[0] += pause - 0.1
                restarts.poll()
                assert not stack.children[PAGE].running, "it waits"
                now[0] += 0.2
                restarts.poll()
            wait_until(lambda count=count: len(starts.read_text()) == count + 1)
        wait_until(lambda: is_gone(left))
        restarts.poll()
        assert stack.children[PAGE].running
        assert said[0] == "dagster-page was killed by SIGKILL; it is started again"
        assert "dagster-page does not stay, it ended with exit code 1: no port" in said[1]
        assert len(said) == 2
        now[0] += SOUND
        stack.children[PAGE].process.kill()
        stack.children[PAGE].process.wait(LONG)
        restarts.poll()
        assert len(said) == 3, "it had run for long: the count begins anew"
        assert stack.children[PAGE].running or len(starts.read_text()) == 5


def test_the_pauses_between_restarts_are_bounded() -> None:
    state, now, pauses = Ended(started=-SOUND), 0.0, list[float]()
    for _ in range(9):
        state = schedule(state, now)
        assert state.due is not None
        pauses.append(state.due - now)
        now = state.due
        state = replace(state, started=now, due=None)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_zookeeper_that_dies_is_brought_back_with_what_it_knew(tmp_path: Path) -> None:
    said: list[str] = []
    progress = Progress()
    progress.say = said.append  # type: ignore[method-assign]
    with Stack(StateFolder(tmp_path / "state")) as stack:
        hosts = stack.start_zookeeper()
        keep_running(stack, progress)
        assert said == []
        with connect(hosts, 60.0) as store:  # a loaded machine needs its time to start a JVM
            store.ensure("/rota/a")
            session = store.session
            assert stack.server
            assert stack.server.process
            stack.server.process.kill()
            wait_until(lambda: stack.server and stack.server.ended())
            keep_running(stack, progress)
            assert said == [f"ZooKeeper was killed by SIGKILL; it is back at {hosts}, with its data"]
            assert store.wait_active(LONG)
            assert store.session == session
            assert store.get("/rota/a") is not None
            keep_running(stack, progress)
            assert len(said) == 1


def test_rota_up_prints_a_need_once_and_its_end_once_and_keeps_running(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter = NeedsReporter(Progress())
    for found in ({"worker w1 spark": "worker w1: silent"}, {"worker w1 spark": "worker w1: still silent"}, {}, {}):
        reporter.report(found)
    said = capsys.readouterr().out
    assert (said.count("needs an operator: worker w1: silent"), said.count("is over: worker w1: silent")) == (1, 1)
    assert "still silent" not in said
    monkeypatch.setenv("ROTA_ZOOKEEPER", "127.0.0.1:1")
    assert "127.0.0.1:1" in reporter.find()["ZooKeeper"]
    monkeypatch.setattr("rota.coordination.client.opened", lambda _: 1 / 0)
    assert "ZeroDivisionError" in reporter.find()["rota"]
