"""`rota worker` as a process that a test starts, signals and listens to."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SESSION, MAX_SHUTDOWN = 3.0, 60.0


class Worker:
    """A `rota worker` process, the leader of its own process group, and what it said."""

    def __init__(
        self,
        log: Path,
        hosts: str,
        group: str,
        *words: str,
        max_shutdown: float = MAX_SHUTDOWN,
        session: float = SESSION,
        program: Sequence[str] = ("-m", "rota", "worker"),
    ) -> None:
        settings = {"ROTA_SESSION_TIMEOUT": f"{session:g}", "ROTA_MAX_SHUTDOWN": f"{max_shutdown:g}"}
        environ = {**os.environ, **settings, "ROTA_ZOOKEEPER": hosts, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, *program, "--group", group, *words]
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, env=environ, stdout=out, stderr=out, start_new_session=True)

    def said(self, text: str) -> list[str]:
        """The lines that match."""
        return [line for line in self.log.read_text().splitlines() if re.search(text, line)]

    def hears(self, text: str, timeout: float = 20.0) -> str:
        """The first line that matches, once it is there."""

        def found() -> list[str]:
            return self.said(text)

        found.__name__ = f"{text!r} in:\n{self.log.read_text()}"
        return wait_until(found, timeout)[0]

    def signal(self, number: signal.Signals) -> None:
        """A signal to the agent alone."""
        self.process.send_signal(number)

    def ends(self, timeout: float = 20.0) -> int:
        """Its exit code."""
        wait_until(lambda: self.process.poll() is not None, timeout)
        return self.process.wait()

    def kill(self) -> None:
        """kill -9 to the whole group: a machine that lost its power."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGCONT)
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


Start = Callable[..., Worker]


def start_script(text: str, *words: str) -> "tuple[subprocess.Popen[str], IO[str], IO[str]]":
    """A process of this Python that runs the text; what it reads, and what it prints."""
    process = subprocess.Popen(
        [sys.executable, "-c", text, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return process, process.stdin, process.stdout
