"""What belongs to this machine: a lock file, a port that nobody listens on, a process, a thread that lasts."""

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

# Becomes the program. A shell's `&` ignores SIGINT, and Dagster then SIGTERM as well: what is ignored would stay so in it.
LAUNCH = """
import os, signal, sys
parent, orphaned, stop, interrupt = map(int, sys.argv[1:5])
signal.signal(stop, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.Handlers(interrupt))
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None, use_errno=True).prctl(1, orphaned)
if os.getppid() != parent:
    sys.exit("the parent is gone")
os.execvp(sys.argv[5], sys.argv[5:])
"""
TROUBLED = 0.5  # seconds from a step that failed to the next


def lock_file(path: Path) -> IO[bytes] | None:
    """Locks the file until this process closes it or ends; None if another process holds the lock. Makes a missing file."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def free_port(wanted: int = 0) -> int:
    """`wanted` if nobody listens there on loopback, else a port that the system chooses. Raises EnvironmentFailed."""
    for port in (wanted, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise EnvironmentFailed("No free port on 127.0.0.1. End some processes and try again")


def tie_to_parent(
    stop: signal.Signals = signal.SIGTERM,
    orphaned: signal.Signals = signal.SIGKILL,
    interrupt: signal.Handlers = signal.SIG_DFL,
) -> list[str]:
    """Begins a command whose process never outlives this one: as the thread that starts it ends, the kernel (Linux) sends it
    `orphaned`. It obeys `stop`, and does of a Ctrl-C what `interrupt` says. No code of this process's runs in it: what gRPC
    does in a fork kills some, where the parent speaks to a Spark."""
    return [sys.executable, "-IS", "-c", LAUNCH, *(str(int(one)) for one in (os.getpid(), orphaned, stop, interrupt))]


def is_running(pid: int) -> bool:
    """Whether a process with this id exists; False for 0, which no process has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return pid > 0


def explain_exit(code: int) -> str:
    """How a process with this exit code ended, in words."""
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def name_machine() -> str:
    """Where a process id means one process: this start of the machine, and the namespace of process ids in it, of which each
    container has its own. Empty where the system does not say."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def start_lasting(name: str, step: Callable[[], bool], note: Callable[[Exception], object]) -> threading.Thread:
    """A thread that takes steps until one returns False. Law: it does not end of an exception: that is noted, and after a
    moment the next step is taken. For want of a descriptor, a thread or memory nothing that must be alive dies silently."""

    def run() -> None:
        while True:
            try:
                if not step():
                    return
            except Exception as error:
                with suppress(Exception):
                    note(error)
                time.sleep(TROUBLED)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
