"""What belongs to this machine: a lock file, a port that nobody listens on, a process."""

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import IO

from rota.errors import EnvironmentFailed


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


def is_running(pid: int) -> bool:
    """Whether a process with this id exists; False for 0, which no process has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return pid > 0


def name_machine() -> str:
    """Where a process id means one process: this start of the machine, and the namespace of process ids in it, of which each
    container has its own. Empty where the system does not say."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
