"""A child process that never outlives its parent.

Laws: `end` leaves no process of the child's group and no descendant, even if the child was stopped by SIGSTOP. If the parent
dies, the kernel (Linux) sends the child `orphaned`: SIGKILL, unless the child must end other processes first.
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
        """Start a new child with the same name, command and log, and return it."""
        return Child(self.name, *self._made)

    @property
    def running(self) -> bool:
        """Return whether the process has not ended."""
        return self.process.poll() is None

    def signal_group(self, number: signal.Signals) -> None:
        """Send the signal to every process of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill_below(self) -> None:
        """Send SIGKILL to the processes that this one started."""
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children():
                process.kill()

    def describe_end(self) -> str:
        """Return how the process ended, in words."""
        code = self.process.poll()
        return "is running" if code is None else explain_exit(code)

    def read_log_end(self, lines: int = 3) -> str:
        """Return the last lines of the log, as one line."""
        return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])

    def ask_to_end(self) -> None:
        """Request the end of the process, and do not wait for it."""
        if self.running:
            self.signal_group(signal.SIGCONT)
            self.process.send_signal(self._stop)

    def end(self, patience: float) -> None:
        """Request the end of the process, wait up to `patience` seconds, then kill its group and all its descendants."""
        descendants = self._list_descendants()
        self.ask_to_end()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self.signal_group(signal.SIGKILL)
        for process in descendants:
            with suppress(
                psutil.NoSuchProcess
            ):  # psutil compares start times, so it kills no other process with that pid
                process.kill()
        self.process.wait(10)

    def _list_descendants(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
