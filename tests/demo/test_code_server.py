"""`rota up` notices a code server that was killed: everything waited, and nothing said so."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rota.errors import EnvironmentFailed
from rota.local.child import Child
from rota.local.code_server import CHECK_INTERVAL, RELOADS, CodeServer, is_served
from rota.local.page import DagsterPage
from tests.waiting import wait_until


class Page(DagsterPage):
    """A page that returns these words for a reload of the code."""

    def __init__(self, answers: list[str]) -> None:
        super().__init__("http://page")
        object.__setattr__(self, "answers", answers)

    def reload(self, location: str) -> str:
        assert location == "rota"
        why = self.answers.pop(0)
        if why.startswith("!"):
            raise EnvironmentFailed(why)
        return why


@pytest.fixture
def dagster(tmp_path: Path) -> Iterator[Child]:
    """A stand-in for the code server: a process with two of the words of `dagster api grpc` below it."""
    words = [sys.executable, "-c", "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(600)"]
    child = Child(
        "dagster",
        [*words, sys.executable, "-c", "import time; time.sleep(600)", "api", "grpc"],
        tmp_path / "log",
        os.environ,
        signal.SIGINT,
    )
    wait_until(lambda: is_served(child.process.pid))
    yield child
    child.end(5)


def test_a_code_server_that_ended_is_said_once_and_loaded_again_a_few_times(dagster: Child) -> None:
    said, now, answers = list[str](), [0.0], ["!slow", "SyntaxError", "SyntaxError", "never asked"]
    code = CodeServer(lambda: dagster.process.pid, Page(answers), said.append, lambda: now[0])

    def poll() -> list[str]:
        now[0] += CHECK_INTERVAL
        code.poll()
        return said

    assert poll() == []
    psutil.Process(dagster.process.pid).children()[0].kill()
    wait_until(lambda: not is_served(dagster.process.pid))
    code.poll()
    assert said == [], "not looked for all the time"
    for _ in range(RELOADS + 2):
        poll()
    assert answers == ["never asked"]
    assert said == [
        "Dagster's code server ended; its code location is loaded again",
        "Dagster's code location does not load: SyntaxError. Until it loads, no run starts: correct it, then reload it on "
        "http://page/locations",
    ]


def test_one_that_was_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    child = Child("dagster", [sys.executable, "-c", "input()"], tmp_path / "log", os.environ, signal.SIGINT)
    said, now = list[str](), [0.0]
    code = CodeServer(lambda: child.process.pid, Page([]), said.append, lambda: now[0])
    for _ in range(5):
        now[0] += CHECK_INTERVAL
        code.poll()
    child.end(5)
    code.poll()
    assert said == []


def test_a_server_that_was_started_again_loads_its_code_by_itself(dagster: Child) -> None:
    """Each poll while it loaded asked the page for a reload, and the third reported that the code does not load."""
    said, now, pids = list[str](), [0.0], [dagster.process.pid]
    code = CodeServer(lambda: pids[0], Page([]), said.append, lambda: now[0])
    code.poll()
    pids[0] = 2**22 + 1  # another one, below which no process has the code yet
    for _ in range(5):
        now[0] += CHECK_INTERVAL
        code.poll()
    assert said == []
