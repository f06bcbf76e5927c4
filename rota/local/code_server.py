"""Restarts the process that holds the user's code, which Dagster's code server starts. Only a reload of the code
location starts that process again, and without it no sensor ticks.

Invariant: if the process ends after it was seen running, the end is reported, and the code location is reloaded up to
`RELOADS` times. If the location does not load, the reason is reported, and everything else continues. The user repairs
the code and reloads the location on the page.
"""

import time
from collections.abc import Callable

import psutil

from rota.errors import EnvironmentFailed
from rota.local.dagster_services import LOCATION
from rota.local.page import DagsterPage

CHECK_INTERVAL = 5.0  # seconds between two checks, each of which lists all processes
RELOADS = 3  # attempts to load the code location


class CodeServer:
    """The process that holds the user's code; call `poll` regularly. `read_pid` returns the process id of the code
    server.
    """

    def __init__(
        self,
        read_pid: Callable[[], int],
        page: DagsterPage,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_pid, self._page, self._say, self._clock = read_pid, page, say, clock
        self._pid = 0  # of the code server at the last check; a restarted one loads its code itself
        self._due, self._tries = 0.0, 0  # remaining attempts; 0 until the process was running at a check

    def poll(self) -> None:
        """Reload the code location if its process has ended."""
        if (now := self._clock()) < self._due:
            return
        self._due = now + CHECK_INTERVAL
        if (pid := self._read_pid()) != self._pid:
            self._pid, self._tries = pid, 0
        if is_served(pid):
            self._tries = RELOADS
        elif self._tries:
            if self._tries == RELOADS:
                self._say("Dagster's code server ended; its code location is loaded again")
            self._tries -= 1
            why = self._load()
            if why and not self._tries:
                self._say(
                    f"Dagster's code location does not load: {why}. Until it loads, no run starts: correct it, then reload "
                    f"it on {self._page.address}/locations"
                )

    def _load(self) -> str:
        try:
            return self._page.reload(LOCATION)
        except EnvironmentFailed as error:
            return str(error)


def is_served(server: int) -> bool:
    """Return whether a process with the user's code runs below this code server, which itself may have ended."""
    try:
        below = psutil.Process(server).children(recursive=True)
    except psutil.NoSuchProcess:
        return False
    return any(_serves(process) for process in below)


def _serves(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return "grpc" in words and words[words.index("grpc") - 1] == "api"
