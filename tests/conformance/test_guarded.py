"""A process under a guard of its own, as each run of Dagster's is: its session ends when it is dead, and not before."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen

import psutil
import pytest

from rota.coordination import guarded, session_guard
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.guarded import SessionLink
from rota.coordination.store import Store
from tests.conformance.processes import start_script
from tests.waiting import LONG, wait_until

NEVER = 120  # seconds of a session, the most that the server grants
PROCESS = """
import os, sys, time
from rota.coordination.client import connect
from rota.coordination.guarded import guarded
hosts, path, heir = sys.argv[1:]
with guarded() as guard, connect(hosts, 120, guard=guard) as store:
    store.create(path, ephemeral=True)
    if heir:
        if not (pid := os.fork()):
            time.sleep(600)
        print(pid, flush=True)
    print("there", flush=True)
    sys.stdin.readline()
print("over", flush=True)
sys.stdin.readline()
"""


@contextmanager
def run(hosts: str, path: str, heir: str = "") -> "Iterator[Popen[str]]":
    """A process that has created the ephemeral node; with an heir, a fork of it has its descriptors and lives on."""
    process, asked, said = start_script(PROCESS, hosts, path, heir)
    left = int(said.readline()) if heir else 0
    try:
        assert said.readline() == "there\n"
        yield process
    finally:
        if left:
            os.kill(left, signal.SIGKILL)
        process.kill()
        process.wait(LONG)
        asked.close()
        said.close()


def find_guards(pid: int) -> list[psutil.Process]:
    """The guards of the process."""
    return [one for one in psutil.Process(pid).children() if session_guard.__file__ in one.cmdline()]


@pytest.fixture
def store(zookeeper: EmbeddedZooKeeper, group: str) -> Iterator[Store]:
    with connect(zookeeper.hosts) as store:
        store.ensure(f"/rota/{group}")
        yield store


@pytest.mark.parametrize("heir", ["", "heir"])
def test_the_session_of_a_killed_process_ends_before_it_can_expire(
    store: Store, zookeeper: EmbeddedZooKeeper, group: str, heir: str
) -> None:
    """Also if a fork of it holds its pipe and its sockets."""
    path = f"/rota/{group}/here"
    with run(zookeeper.hosts, path, heir) as process:
        assert store.get(path)
        (guard,) = find_guards(process.pid)
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: store.get(path) is None, NEVER / 2)
        process.wait(LONG)
        wait_until(lambda: not guard.is_running() or guard.status() == psutil.STATUS_ZOMBIE)


def test_a_frozen_process_keeps_its_session(store: Store, zookeeper: EmbeddedZooKeeper, group: str) -> None:
    path, other = f"/rota/{group}/here", f"/rota/{group}/other"
    with run(zookeeper.hosts, path) as process:
        process.send_signal(signal.SIGSTOP)
        with run(zookeeper.hosts, other) as second:
            second.send_signal(signal.SIGKILL)
            wait_until(lambda: store.get(other) is None, NEVER / 2)
        assert store.get(path)


def test_a_guard_ends_with_the_last_session(store: Store, zookeeper: EmbeddedZooKeeper, group: str) -> None:
    with run(zookeeper.hosts, f"/rota/{group}/here") as process:
        (guard,) = find_guards(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "over\n"
        assert not guard.is_running(), "and its parent has asked how it ended"


@pytest.mark.parametrize("dies", ["never starts", "is killed"])
def test_without_its_guard_a_process_works_on(
    zookeeper: EmbeddedZooKeeper, group: str, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    if dies == "never starts":
        monkeypatch.setattr(guarded, "make_command", lambda *_: ["/nowhere"])
    else:
        monkeypatch.setattr(guarded, "make_command", lambda *_: [sys.executable, "-c", ""])
    with guarded.guarded() as guard, connect(zookeeper.hosts, guard=guard) as store:
        assert isinstance(guard, SessionLink)
        store.renew()
        store.ensure(f"/rota/{group}")
        assert store.get(f"/rota/{group}")
