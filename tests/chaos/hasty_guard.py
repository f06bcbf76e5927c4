"""A session guard without its first law: SIGUSR1 to it ends the sessions of its worker, which lives on."""

import runpy
import signal
import sys

guard = runpy.run_path(sys.argv.pop(1))
sessions = guard["Sessions"](int(sys.argv[3]))
pass_on = guard["pass_on"]


def hurry(pid: int, numbers: bytes) -> None:
    if signal.SIGUSR1 in numbers:
        sessions.end()
    else:
        pass_on(pid, numbers)


guard["supervise_child"].__globals__["pass_on"] = hurry
guard["supervise_child"](int(sys.argv[2]), sessions)
