"""Whether the process with the code lives, below Dagster's code server: only a reload starts that process again, and
without it no sensor ticks.

Invariant: if the process was there and ended, that is reported, and the code location is loaded again, a few times. If it
does not load, that is reported with the reason, and the rest continues: the user mends it and reloads it on the page.
"""

import time
from collections.abc import Callable

import psutil

from rota.errors import EnvironmentFailed
from rota.local.dagster_services import LOCATION
from rota.local.page import DagsterPage

EVERY = 5.0  # seconds between two looks: each reads the whole list of processes
RELOADS = 3  # of a code location that does not load


class CodeServer:
    """The process with the code; call `look` now and then. `read_pid` returns the id of the code server that started it."""

    def __init__(
        self,
        read_pid: Callable[[], int],
        page: DagsterPage,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_pid, self._page, self._say, self._clock = read_pid, page, say, clock
        self._pid = 0  # of the code server at the last look: one that was started again loads its code by itself
        self._due, self._tries = 0.0, 0  # how often it is loaded again if it ended; none before it was there

    def look(self) -> None:
        """Load the code location again if its process ended."""
        if (now := self._clock()) < self._due:
            return
        self._due = now + EVERY
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
                    f"Dagster's code location does not load: {why}. Until it does no run starts: mend it, then reload it "
                    f"on {self._page.address}/locations"
                )

    def _load(self) -> str:
        try:
            return self._page.reload(LOCATION)
        except EnvironmentFailed as error:
            return str(error)


def is_served(server: int) -> bool:
    """Whether a process with the code runs below this code server, which itself may have ended."""
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
