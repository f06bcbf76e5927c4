"""What belongs to this machine: a lock file, a free port, a child process, a thread that lasts."""

import fcntl
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from rota.errors import EnvironmentFailed

# Becomes the program. A shell's `&` ignores SIGINT, and Dagster then SIGTERM as well: the program would inherit both.
LAUNCH = """
import os, signal, sys
parent, orphaned, stop, interrupt = map(int, sys.argv[1:5])
for one in {stop, orphaned} - {signal.SIGKILL}:
    signal.signal(one, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.Handlers(interrupt))
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None, use_errno=True).prctl(1, orphaned)
if os.getppid() != parent:
    sys.exit("the parent is gone")
os.execvp(sys.argv[5], sys.argv[5:])
"""
RETRY_INTERVAL = 0.5  # seconds from a failed step to the next one


def lock_file(path: Path) -> IO[bytes] | None:
    """Lock the file until this process closes it or ends; None if another process holds the lock. Creates a missing
    file.
    """
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def free_port(wanted: int = 0) -> int:
    """Return `wanted` if it is free on loopback, else a port that the system chooses. Raises EnvironmentFailed."""
    for port in (wanted, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise EnvironmentFailed("No free port on 127.0.0.1. End some processes and try again")


def is_listening(port: int) -> bool:
    """Return whether a process listens at this port on loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tie_to_parent(
    stop: signal.Signals = signal.SIGTERM,
    orphaned: signal.Signals = signal.SIGKILL,
    interrupt: signal.Handlers = signal.SIG_DFL,
) -> list[str]:
    """Return the start of a command whose process never outlives this one.

    When the thread that starts the process ends, the kernel (Linux) sends `orphaned` to it. It obeys `stop`, and
    handles Ctrl-C as `interrupt` defines. None of this process's code runs in it: gRPC's fork handlers kill some
    children of a process with a Spark.
    """
    return [sys.executable, "-IS", "-c", LAUNCH, *(str(int(one)) for one in (os.getpid(), orphaned, stop, interrupt))]


def die_with_parent(parent: int, orphaned: signal.Signals) -> None:
    """Let the kernel (Linux) send this process `orphaned` when the process `parent`, which forked it, ends."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, int(orphaned))
    if os.getppid() != parent:
        os.kill(os.getpid(), orphaned)


def is_running(pid: int) -> bool:
    """Return whether a process with this id exists; False for 0."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it belongs to another user
    with suppress(OSError, IndexError):  # a dead process keeps its id until its parent has asked how it ended
        return pid > 0 and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return pid > 0


def explain_exit(code: int) -> str:
    """Return how a process with this exit code ended, in words."""
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def name_machine() -> str:
    """Return a text within which a process id is unique: this boot of the machine, and its namespace of process ids,
    which differs for each container. Empty if the system does not provide it.
    """
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def start_lasting(name: str, step: Callable[[], bool], note: Callable[[Exception], object]) -> threading.Thread:
    """Start a thread that calls `step` until it returns False.

    Law: an exception does not end the thread. It is passed to `note`, and after `RETRY_INTERVAL` seconds the next step
    runs. So a lack of descriptors, threads or memory never ends such a thread silently.
    """

    def run() -> None:
        while True:
            try:
                if not step():
                    return
            except Exception as error:
                with suppress(Exception):
                    note(error)
                time.sleep(RETRY_INTERVAL)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
