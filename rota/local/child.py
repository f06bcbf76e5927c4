"""One child process that never outlives its parent, and its end.

Laws: a child that is ended leaves no process of its group and no descendant behind, also one stopped by SIGSTOP. If the
parent dies, the kernel (Linux) kills the child; one that must end others first gets `orphaned` instead.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from rota.machine import explain_exit, tie_to_parent


class Child:
    """One process with a session, a process group and a log file of its own. `end` ends the whole group."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str],
        stop: signal.Signals,
        orphaned: signal.Signals = signal.SIGKILL,
        folder: Path | None = None,
    ):
        self.name, self.log, self._stop = name, log, stop
        self._made = command, log, dict(env), stop, orphaned, folder
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*tie_to_parent(stop, orphaned), *command],
                env=dict(env),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start_again(self) -> "Child":
        """A new child of the same name, command and log."""
        return Child(self.name, *self._made)

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def signal_group(self, number: signal.Signals) -> None:
        """Sends the signal to every process of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill_below(self) -> None:
        """Sends SIGKILL to the processes that this one started."""
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children():
                process.kill()

    def describe_end(self) -> str:
        """How the process ended, in words."""
        code = self.process.poll()
        return "is running" if code is None else explain_exit(code)

    def read_log_end(self, lines: int = 3) -> str:
        """The last lines of the log, as one line."""
        return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])

    def ask_to_end(self) -> None:
        """Asks the process to end and does not wait for it."""
        if self.running:
            self.signal_group(signal.SIGCONT)
            self.process.send_signal(self._stop)

    def end(self, patience: float) -> None:
        """Asks the process to end, waits up to `patience` seconds, then kills its group and all its descendants."""
        descendants = self._list_descendants()
        self.ask_to_end()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self.signal_group(signal.SIGKILL)
        for process in descendants:
            with suppress(psutil.NoSuchProcess):  # psutil compares start times: a pid used again is not hit
                process.kill()
        self.process.wait(10)

    def _list_descendants(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
