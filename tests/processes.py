"""The processes below one that a test started, such as those of a worker: its supervisor, the worker proper, its Spark."""

import os
import signal
from contextlib import suppress

import psutil

from rota.coordination import session_guard


def list_below(pid: int) -> dict[psutil.Process, list[str]]:
    """Return the command line of each process below this one, without those that have ended meanwhile."""
    found: dict[psutil.Process, list[str]] = {}
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a ZombieProcess is one, too
            found[one] = one.cmdline()
    return found


def find_worker(pid: int) -> int:
    """The worker proper of this supervisor; `pid` itself if that is another process, or has not split yet."""
    process = psutil.Process(pid)
    if session_guard.__file__ not in process.cmdline():
        return pid
    return next(iter(one.pid for one in process.children()), pid)


def strike_host(pid: int, number: signal.Signals) -> None:
    """A signal to all of them, as if the host stops or loses its power: the supervisor does not see its worker end."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        if number != signal.SIGCONT:
            first.suspend()
        for one in (*first.children(recursive=True), first):
            with suppress(psutil.NoSuchProcess):
                os.kill(one.pid, number)
