"""Whatever the stage starts, it ends; and what it started ends with it, however it ends."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rota.cli.up import outlive
from rota.cli.view import Progress
from rota.coordination.client import connect
from rota.demo.play import alive
from rota.demo.stage import MARK, Child, Stage, State
from rota.errors import ConfigError, EnvironmentFailed
from rota.machine import free_port
from tests.waiting import wait_until

FAMILY = (
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    "time.sleep(600)"
)


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_frozen_child_and_its_children_end(tmp_path: Path) -> None:
    child = Child("w1", [sys.executable, "-c", FAMILY], tmp_path / "log", os.environ, signal.SIGTERM)
    grandchild = wait_until(lambda: psutil.Process(child.process.pid).children(), 10)[0]
    assert os.getpgid(grandchild.pid) == child.process.pid  # a group of its own, with its children in it
    child.signal_group(signal.SIGSTOP)
    assert child.running
    child.end(patience=5)
    assert not child.running
    wait_until(lambda: gone(grandchild), 5)


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time; from pathlib import Path; from rota.demo.stage import Child\n"
        "sleeper = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
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
        parent.kill()
        parent.wait(10)
    wait_until(lambda: gone(child), 10)


def test_a_taken_port_is_left_alone() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert free_port(taken.getsockname()[1]) != taken.getsockname()[1]
    assert free_port(0) > 0


def test_only_a_folder_that_a_stage_made_is_emptied(tmp_path: Path) -> None:
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="not made by rota"):
        State(mine).emptied()
    assert (mine / "chapter.txt").exists()
    made = State(tmp_path / "state").emptied().make()
    (made.tables / "old").mkdir()
    (made.root / "history.png").touch()
    assert not [path for path in made.emptied().root.iterdir() if path.name != MARK]


def test_nobody_empties_or_enters_a_folder_in_use(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    with Stage(state):
        (state.tables / "mine").mkdir()
        for intrude in (state.emptied, lambda: Stage(state)):
            with pytest.raises(ConfigError, match="Another `rota up` or `rota demo` runs in"):
                intrude()
        assert (state.tables / "mine").exists()
    Stage(state.emptied()).close()


def test_a_worker_that_dies_is_said_and_outlived_and_dagster_is_not(tmp_path: Path) -> None:
    said: list[str] = []
    progress = Progress()
    progress.say = said.append  # type: ignore[method-assign]
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    with Stage(State(tmp_path / "state")) as stage:
        for name in ("w1", "w2", "dagster"):
            stage.children[name] = Child(name, sleeper, tmp_path / name, os.environ, signal.SIGTERM)
        stage.children["w2"].process.kill()
        wait_until(stage.lost, 10)
        outlive(stage, alive(stage), progress)
        assert [line.partition(";")[0] for line in said] == ["w2 was killed by SIGKILL"]
        assert set(stage.children) == {"w1", "dagster"}
        stage.children["dagster"].process.kill()
        wait_until(stage.lost, 10)
        with pytest.raises(EnvironmentFailed, match="dagster was killed by SIGKILL"):
            outlive(stage, alive(stage), progress)


def test_a_zookeeper_that_dies_is_brought_back_with_what_it_knew(tmp_path: Path) -> None:
    said: list[str] = []
    progress = Progress()
    progress.say = said.append  # type: ignore[method-assign]
    with Stage(State(tmp_path / "state")) as stage:
        hosts = stage.zookeeper()
        outlive(stage, alive(stage), progress)
        assert said == []
        with connect(hosts) as store:
            store.ensure("/rota/a")
            session = store.session
            assert stage._server
            assert stage._server.process
            stage._server.process.kill()
            wait_until(lambda: stage._server and stage._server.ended(), 10)
            outlive(stage, alive(stage), progress)
            assert said == [f"ZooKeeper was killed by SIGKILL; it is back at {hosts}, with what it knew"]
            assert store.wait_active(20)
            assert store.session == session
            assert store.get("/rota/a") is not None
            outlive(stage, alive(stage), progress)
            assert len(said) == 1
