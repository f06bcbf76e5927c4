"""`rota worker` is a supervisor and the worker proper: a crash ends the session at once, and nothing else does."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.guarded import SessionLink
from rota.coordination.session_guard import Sessions
from tests.conformance.processes import ROOT, Start
from tests.conformance.targets import aim, incarnation, owners, wait_until_owned
from tests.waiting import LONG, wait_until

NEVER = 120  # seconds of a session, the most that the server grants; a test waits for half of it at most
LASTING = {"session": NEVER, "max_shutdown": 600}
SPLIT = """
import os, signal, subprocess, sys, time
from rota.coordination.guarded import supervise
supervise()
"""
NOTING = (
    SPLIT
    + """
def note(number, _):
    print(number, flush=True)
    if number == signal.SIGTERM:
        sys.exit(3)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, note)
print("ready", flush=True)
while True:
    signal.pause()
"""
)
LEAVING_A_CHILD = SPLIT + "print(subprocess.Popen(['sleep', '600']).pid, flush=True); os.kill(os.getpid(), 9)"
LEAVING_AN_ORPHAN = (
    SPLIT
    + """
reading, writing = os.pipe()
if not os.fork():
    if not os.fork():
        os.close(writing)
        os.read(reading, 1)
    os._exit(0)
os.wait()
os.close(writing)
while len([name for name in os.listdir("/proc") if name.isdigit()]) > 2:
    time.sleep(0.05)
os.kill(os.getpid(), 9)
"""
)


def run_split(text: str, *before: str) -> "subprocess.CompletedProcess[str]":
    """A program that is split by `supervise`; how its supervisor ended, and its output."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [*before, sys.executable, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=LONG, check=False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_crash_is_known_before_the_session_can_expire(start: Start, real: GroupState, number: signal.Signals) -> None:
    first, second = start("w1", **LASTING), start("w2", **LASTING)
    wait_until(lambda: len(real.live()) == 2)
    aim(real, w1="12", w2="")
    wait_until_owned(real, w1="12")
    first.signal(number)
    wait_until(lambda: [one.worker for one in real.live()] == ["w2"], NEVER / 2)
    assert first.ends() == -number
    aim(real, w1="", w2="12")
    wait_until_owned(real, w2="12")
    assert "reason=gone" in second.hears("event=claimed partition=s:1")


def test_a_frozen_worker_is_not_a_dead_one(start: Start, real: GroupState) -> None:
    first = start("w1", **LASTING)
    wait_until(lambda: real.live())
    first.signal(signal.SIGSTOP)
    first.signal(signal.SIGTERM)  # the supervisor passes it on, and works after it
    wait_until(lambda: psutil.Process(first.find_pid()).status() == psutil.STATUS_STOPPED)
    start("w2")
    wait_until(lambda: incarnation(real, "w2"))
    assert incarnation(real, "w1")
    first.signal(signal.SIGCONT)
    assert first.ends() == 0


def test_a_worker_without_its_supervisor_hands_over(start: Start, real: GroupState) -> None:
    """The kernel sends it SIGTERM. Otherwise it would live on, and no process would notice its death."""
    first = start("w1", **LASTING)
    start("w2")
    wait_until(lambda: len(real.live()) == 2)
    aim(real, w1="1", w2="2")
    wait_until_owned(real, w1="1", w2="2")
    worker = psutil.Process(first.find_pid())
    first.process.send_signal(signal.SIGKILL)
    first.ends()
    aim(real, w1="", w2="12")
    wait_until_owned(real, w2="12")
    wait_until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
    assert "everything is handed over" in first.said("event=ended")[0]


def test_a_supervisor_is_small(start: Start, real: GroupState) -> None:
    first = start("w1", anew=True)
    wait_until(lambda: real.live())
    assert real.live()[0].record.pid == first.find_pid() != first.process.pid  # type: ignore[union-attr]
    loaded = Path(f"/proc/{first.process.pid}/maps").read_text()
    assert not [name for name in ("pydantic", "psutil", "numpy") if name in loaded]


def test_the_guard_knows_each_session_until_it_was_ended(zookeeper: EmbeddedZooKeeper) -> None:
    reading, writing = os.pipe()
    sessions, link = Sessions(reading), SessionLink(writing)

    def known() -> list[int]:
        sessions.read()
        return list(sessions.open)

    with connect(zookeeper.hosts, guard=link) as store:
        assert known() == [store.session]
        first = store.session
        store.renew()
        assert store.session != first
        wait_until(lambda: known() == [store.session])
        ended = sessions.open[second := store.session]
        other = KazooClient(hosts=zookeeper.hosts, client_id=(second, bytes.fromhex(ended["password"])))
        other.start()
        other.stop()
        other.close()
        wait_until(lambda: store.session != second)
        wait_until(lambda: known() == [store.session])
    wait_until(lambda: not known())
    link.close()
    assert not sessions.over
    sessions.read()
    assert sessions.over
    os.close(reading)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(7)", 7),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_a_supervisor_ends_as_its_worker_ended(how: str, code: int) -> None:
    assert run_split(SPLIT + how).returncode == code


def test_what_the_worker_started_ends_with_it() -> None:
    done = run_split(LEAVING_A_CHILD)
    assert done.returncode == -signal.SIGKILL
    left = int(done.stdout)
    wait_until(lambda: not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE)


def test_as_process_1_it_reaps_orphans_and_gives_the_code_of_a_signal() -> None:
    """The kernel lets no process kill process 1 of its own namespace: the exit code is a shell's, as Kubernetes shows it."""
    namespace = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
    done = run_split(LEAVING_AN_ORPHAN, *namespace)
    assert done.returncode == 128 + signal.SIGKILL, done.stderr


def test_a_signal_comes_once_also_from_a_terminal() -> None:
    """Ctrl-C goes to each process of the terminal's foreground group; a second one would mean: do not wait for runs."""
    terminal, below = pty.openpty()
    take = (
        "import fcntl, os, signal, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "[signal.signal(one, signal.SIG_DFL) for one in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)]; "  # `nohup`, `&`
        "exec(sys.argv[1])"
    )
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", take, NOTING], stdin=below, stdout=subprocess.PIPE, text=True, env=environ
    )
    assert process.stdout is not None
    said = process.stdout
    assert said.readline() == "ready\n"
    os.write(terminal, b"\x03")
    assert said.readline() == f"{signal.SIGINT:d}\n"
    os.write(terminal, b"\x1c")
    assert said.readline() == f"{signal.SIGQUIT:d}\n"
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.killpg(process.pid, number)
        assert said.readline() == f"{number:d}\n"
    os.killpg(process.pid, signal.SIGTERM)
    assert said.readlines() == [f"{signal.SIGTERM:d}\n"], "each came once"
    assert process.wait(LONG) == 3
    for end in (terminal, below):
        os.close(end)
    said.close()


def test_ctrl_z_stops_all_of_it_until_it_goes_on(start: Start, real: GroupState) -> None:
    first = start("w1", **LASTING)
    wait_until(lambda: real.live())
    both = [psutil.Process(first.process.pid), psutil.Process(first.find_pid())]
    first.process.send_signal(signal.SIGTSTP)
    wait_until(lambda: {one.status() for one in both} == {psutil.STATUS_STOPPED})
    first.process.send_signal(signal.SIGCONT)
    wait_until(lambda: psutil.STATUS_STOPPED not in {one.status() for one in both})
    aim(real, w1="12")
    wait_until(lambda: len(owners(real)) == 2)
