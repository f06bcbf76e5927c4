"""The session guard: a small process that ends the ZooKeeper sessions of another process once that process is dead.

Laws:
1. It ends a session only after the kernel reported the death of the process that opened it. A frozen process, a closed pipe
   or a process that cannot be reached is not a dead one.
2. It connects to ZooKeeper only to end a session, by the addresses, certificates and credentials of the guarded process.
3. As `parent` (the supervisor of a worker) it passes signals on to its child, once each, and ends as the child ended: by the
   same exit code or the same signal. First it kills what the child left in its process group. As process 1 of a container
   it reaps orphans.
4. As `child` (the guard of a run) it ends when the run has no session left.

`rota/coordination/guarded.py` starts this file as a program, without rota's or any other package: it imports the standard
library, and kazoo once there is a session. So it needs little memory, and the kernel rarely chooses it when memory is short.
"""

import json
import logging
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

QUIET = 3.0  # seconds without news, after which kazoo is imported: a process that starts needs the processor more
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
HEARD = (*PASSED_ON, signal.SIGTSTP, signal.SIGCHLD)  # blocked until this program handles them
ALWAYS = (signal.SIGINT, signal.SIGTERM)  # passed on also if they were ignored when the process started


class Sessions:
    """The open sessions of the guarded process, as it reports them over a pipe: one JSON document a line.

    A document with `ended` closes that session. Each other one describes an open session: see `SessionLink`.
    """

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self.pipe = pipe
        self.open: dict[int, dict[str, Any]] = {}
        self.over = False  # whether the pipe is closed: no other report can come
        self._rest = b""

    def read(self) -> None:
        """Read the reports that are there."""
        with suppress(BlockingIOError):
            while data := os.read(self.pipe, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._note(line)
            self.over = True

    def _note(self, line: bytes) -> None:
        with suppress(ValueError, KeyError, TypeError):  # cut off: the process died while it wrote
            report = json.loads(line)
            if "ended" in report:
                self.open.pop(report["ended"], None)
            else:
                self.open[report["session"]] = report

    def prepare(self) -> None:
        """Import kazoo, so that the end of a session takes milliseconds."""
        for report in self.open.values():
            sys.path[:] = report["path"]
            import kazoo.client  # noqa: F401

    def end(self) -> None:
        """End all of them. A session that cannot be ended within its timeout has expired by then."""
        began = time.monotonic()
        for report in self.open.values():
            with suppress(Exception):
                end_session(report, began + report["timeout"] - time.monotonic())


def end_session(report: dict[str, Any], patience: float) -> None:
    """Connect to the session of a dead process and close it. Raises whatever kazoo raises."""
    sys.path[:] = report["path"]
    from kazoo.client import KazooClient
    from kazoo.retry import KazooRetry

    quiet = logging.getLogger("session_guard")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    client = KazooClient(
        hosts=report["hosts"],
        timeout=report["timeout"],
        client_id=(report["session"], bytes.fromhex(report["password"])),
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0),
        logger=quiet,
        **report["access"],
    )
    client.start(max(patience, 0.1))
    client.stop()
    client.close()


def watch(sessions: Sessions, wake: int, act: Callable[[], None], is_over: Callable[[], bool]) -> None:
    """Return once `is_over()`; call `act` whenever the descriptor `wake` is readable."""
    poller = select.poll()
    poller.register(wake, select.POLLIN)
    poller.register(sessions.pipe, select.POLLIN)
    prepared = False
    while not is_over():
        events = poller.poll(QUIET * 1000 if sessions.open and not prepared else None)
        if not events:
            prepared = True
            with suppress(Exception):
                sessions.prepare()
        for ready, _ in events:
            if ready == wake:
                act()
            else:
                sessions.read()
                if sessions.over:
                    poller.unregister(sessions.pipe)


def guard_parent(pid: int, sessions: Sessions) -> None:
    """Guard the process that started this one."""
    try:
        wake = os.pidfd_open(pid)
    except ProcessLookupError:
        wake = -1
    if wake >= 0 and os.getppid() == pid:  # else it is dead, and the number may be another's
        watch(sessions, wake, lambda: None, lambda: is_readable(wake) or (sessions.over and not sessions.open))
    sessions.read()
    if wake < 0 or os.getppid() != pid or is_readable(wake):
        sessions.end()


def is_readable(descriptor: int) -> bool:
    """Return whether the descriptor can be read now; that of a process can be once the process is dead."""
    return bool(select.select([descriptor], [], [], 0)[0])


def supervise_child(pid: int, sessions: Sessions) -> None:
    """Guard a child that leads its own process group, and end as it ends."""
    wake, ring = os.pipe()
    for end in (wake, ring):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    for number in HEARD:
        if number in ALWAYS or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    watch(sessions, wake, lambda: pass_on(pid, os.read(wake, 4096)), lambda: is_dead(pid))
    sessions.read()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # its number is not given to another process before it is reaped
    sessions.end()
    end_as(os.waitpid(pid, 0)[1])


def is_dead(pid: int) -> bool:
    """Return whether the child is dead, and reap all others: a process 1 gets the orphans of its container."""
    while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if found.si_pid == pid:
            return True
        os.waitpid(found.si_pid, 0)
    return False


def pass_on(pid: int, numbers: bytes) -> None:
    """Send the child the signals that this process got. Ctrl-Z stops both, with all that the child started."""
    for number in numbers:
        if number in PASSED_ON:
            os.kill(pid, number)
        elif number == signal.SIGTSTP:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGSTOP)
                os.kill(os.getpid(), signal.SIGSTOP)
                os.killpg(pid, signal.SIGCONT)


def end_as(status: int) -> None:
    """End this process as the child ended."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core to look at is the child's
        with suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)  # no signal ends a process 1 from within


if __name__ == "__main__":
    role, process, descriptor = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    (supervise_child if role == "parent" else guard_parent)(process, Sessions(descriptor))
