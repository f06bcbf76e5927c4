"""Whether Dagster's code server lives: nobody but the page starts it again, and without it no sensor looks.

Law: a code server that was there and ended is said, and its code location is loaded again, a few times. Where it does not
load, that is said with the reason, and the rest goes on: a person mends it and reloads it on the page.
"""

import time
from collections.abc import Callable

import psutil

from rota.errors import EnvironmentFailed
from rota.local.child import Child
from rota.local.page import DagsterPage

EVERY = 5.0  # seconds between two looks: each reads the whole list of processes
RELOADS = 3  # of a code location that does not load
LOCATION = "rota"  # in dagster_project/workspace.yaml


class CodeServer:
    """The server below `dagster dev`; call `look` now and then."""

    def __init__(
        self, dagster: Child, page: DagsterPage, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._dagster, self._page, self._say, self._clock = dagster, page, say, clock
        self._due, self._tries = 0.0, 0  # how often it is loaded again if it ended; none before it was there

    def look(self) -> None:
        """Loads the code location again if its server ended."""
        if (now := self._clock()) < self._due:
            return
        self._due = now + EVERY
        if is_served(self._dagster.process.pid):
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


def is_served(dagster: int) -> bool:
    """Whether a code server runs below this process, which itself may have ended."""
    try:
        below = psutil.Process(dagster).children(recursive=True)
    except psutil.NoSuchProcess:
        return False
    return any(_serves(process) for process in below)


def _serves(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return "grpc" in words and words[words.index("grpc") - 1] == "api"
