"""Puts this process under a session guard, which ends its ZooKeeper sessions as soon as it is dead: `session_guard.py`.

A worker is guarded by its parent, because the parent also is process 1 of a container, and hands over exit codes. A run is
guarded by a child: its parent is Dagster's launcher. Without a guard a session ends after its timeout.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from rota.coordination import session_guard
from rota.machine import die_with_parent


class SessionLink:
    """Reports the sessions of this process to its guard. No call waits or raises: without a guard the timeout remains."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self.open: set[int] = set()

    def report_opened(
        self, session: int, password: bytes, hosts: str, timeout: float, access: Mapping[str, Any]
    ) -> None:
        """Report a session, and how to connect to it: `access` are the arguments of kazoo's client."""
        self.open.add(session)
        path = [one for one in sys.path if one]
        report = {"session": session, "password": password.hex(), "hosts": hosts, "timeout": timeout, "path": path}
        self._write({**report, "access": dict(access)})

    def report_ended(self, session: int) -> None:
        """Report that a session was ended in order."""
        self.open.discard(session)
        self._write({"ended": session})

    def close(self) -> None:
        """Report nothing from now on."""
        os.close(self._pipe)

    def _write(self, report: Mapping[str, Any]) -> None:
        with suppress(OSError):
            os.write(self._pipe, json.dumps(report).encode() + b"\n")


def supervise() -> SessionLink:
    """Split this process into a supervisor and the worker proper, which alone returns from this call.

    The supervisor keeps the process id, becomes the program `session_guard.py`, and ends as the worker ends. If the
    supervisor dies, the worker gets SIGTERM, so that it hands its partitions over. Call it before any thread is started.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reading, writing = os.pipe()
    supervisor, mask = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, session_guard.HEARD)
    if pid := os.fork():
        os.close(writing)
        os.set_inheritable(reading, True)
        command = make_command("parent", pid, reading)
        try:
            os.execv(command[0], [*command, *sys.argv])  # the last words are for the readers of `ps`
        finally:
            os.kill(pid, signal.SIGKILL)
    os.close(reading)
    os.setpgid(0, 0)  # Ctrl-C and `kill %1` reach the supervisor alone, which passes them on once
    die_with_parent(supervisor, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return SessionLink(writing)


@contextmanager
def guarded() -> Iterator[SessionLink | None]:
    """Start a guard for the sessions that this process opens meanwhile. None: this system does not report deaths."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    reading, writing = os.pipe()
    link = SessionLink(writing)
    guard = _start_guard(reading)
    os.close(reading)
    try:
        yield link
    finally:
        link.close()
        if guard and not link.open:
            guard.kill()  # it has nothing left to do
            guard.wait()


def _start_guard(pipe: int) -> "subprocess.Popen[bytes] | None":
    """Return the guard of this process; None if the system starts no process now."""
    with suppress(OSError):
        return subprocess.Popen(
            make_command("child", os.getpid(), pipe),
            pass_fds=[pipe],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # it outlives a signal to the run's group
        )
    return None


def make_command(role: str, pid: int, pipe: int) -> list[str]:
    """Return the command of a guard that is the `parent` or the `child` of process `pid` and reads reports from `pipe`."""
    return [sys.executable, "-IS", session_guard.__file__, role, str(pid), str(pipe)]
