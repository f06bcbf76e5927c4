"""`rota worker` as a process that a test starts, signals and listens to.

Most of what such a process costs is the import of its libraries: half a second of a processor and more. So a program that
is a module is forked from a process that has imported them. One that is a text or a file may change what is imported, so it
is started from nothing; so is one that a test wants `anew`.
"""

import faulthandler
import multiprocessing
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from tests.processes import find_worker, strike_host
from tests.waiting import LONG, wait_until

ROOT = Path(__file__).parents[2]
SESSION, MAX_SHUTDOWN = 5.0, 60.0
IMPORTED = ["catalog", "cli.worker", "coordination.client", "core.planner", "group.agent", "group.usage", "run.serve"]
multiprocessing.set_forkserver_preload([*(f"rota.{name}" for name in IMPORTED), "pandas"])


class Forked:
    """A module that runs in a forked process, as far as a test asks a `subprocess.Popen`."""

    def __init__(self, module: str, words: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        log.touch()  # a test may look before the child does
        fork = multiprocessing.get_context("forkserver").Process
        self._process = fork(target=_become, args=(module, list(words), dict(env), log), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def wait(self) -> int | None:
        """Its exit code, once it has ended."""
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """A signal to this process, if it has not ended."""
        with suppress(ProcessLookupError):  # it has ended meanwhile
            if self.poll() is None:
                os.kill(self.pid, number)


def _become(module: str, words: list[str], env: dict[str, str], log: Path) -> None:
    """`python -m module words` in this process, with this environment, as the leader of a group; its output into the log."""
    os.setsid()
    with log.open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.clear()
    os.environ.update(env)
    faulthandler.enable()  # SIGABRT writes where each thread is
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class Worker:
    """A `rota worker`, which is a supervisor and the worker proper, or another program; and what it said."""

    def __init__(
        self,
        log: Path,
        hosts: str,
        group: str,
        *words: str,
        max_shutdown: float = MAX_SHUTDOWN,
        session: float = SESSION,
        program: Sequence[str] = ("-m", "rota", "worker"),
        anew: bool = False,
        root: Path = ROOT,
    ) -> None:
        settings = {"ROTA_SESSION_TIMEOUT": f"{session:g}", "ROTA_MAX_SHUTDOWN": f"{max_shutdown:g}"}
        environ = {**os.environ, **settings, "ROTA_ZOOKEEPER": hosts, "PYTHONPATH": str(root)}
        command = [sys.executable, *program, "--group", group, *words]
        self.log = log
        self.process: Forked | subprocess.Popen[bytes]
        if program[0] == "-m" and not anew:
            self.process = Forked(program[1], command[3:], environ, log)
        else:
            with log.open("wb") as out:
                self.process = subprocess.Popen(
                    command, env=environ, cwd=root, stdout=out, stderr=out, start_new_session=True
                )

    def said(self, text: str) -> list[str]:
        """The lines that match."""
        return [line for line in self.log.read_text().splitlines() if re.search(text, line)]

    def hears(self, text: str, timeout: float = LONG) -> str:
        """The first line that matches, once it is there; it is waited for while the process lives."""

        def found() -> list[str]:
            ended = self.process.poll() is not None
            lines = self.said(text)
            assert lines or not ended, f"it ended without {text!r}:\n{self.log.read_text()}"
            return lines

        found.__name__ = f"{text!r} in:\n{self.log.read_text()}"
        return wait_until(found, timeout)[0]

    def signal(self, number: signal.Signals) -> None:
        """A signal to the supervisor if it asks the worker to leave, as systemd sends it; else to the worker proper."""
        if number in (signal.SIGTERM, signal.SIGINT):
            self.process.send_signal(number)
        elif self.process.poll() is None:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                os.kill(self.find_pid(), number)

    def find_pid(self) -> int:
        """The process id of the worker proper."""
        return find_worker(self.process.pid)

    def crash(self) -> None:
        """kill -9 to the worker proper, as the kernel does if memory is short."""
        self.signal(signal.SIGKILL)
        self.ends()

    def ends(self, timeout: float = LONG) -> int | None:
        """Its exit code."""
        wait_until(lambda: self.process.poll() is not None, timeout)
        return self.process.wait()

    def kill(self) -> None:
        """kill -9 to all of it: a machine that lost its power."""
        if self.process.poll() is None:
            strike_host(self.process.pid, signal.SIGKILL)
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
