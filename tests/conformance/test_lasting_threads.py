"""Law: no thread on which liveness depends ends by an exception. A worker became a ghost: its process ran and owned
nothing."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import SystemZookeeperError
from kazoo.protocol.states import KeeperState

from rota import machine
from rota.cli.log import Log
from rota.cli.watchdog import TICKS, Watchdog
from rota.coordination import client
from rota.coordination.client import ZooKeeperStore, connect
from rota.coordination.embedded import EmbeddedZooKeeper
from tests.conformance.processes import Start
from tests.conformance.proxy import Proxy
from tests.waiting import wait_until

CAUSES = (
    OSError(errno.EMFILE, "Too many open files"),
    RuntimeError("can't start new thread"),
    MemoryError(),
    SystemZookeeperError(),
    AttributeError("a bug"),
)
TIMES = 3  # how often it happens before there are descriptors, threads and memory again


def fail(patch: pytest.MonkeyPatch, what: Any, name: str, cause: Exception) -> Callable[[], int]:
    """Calls of this method raise the cause the first times. How often they did."""
    inner, raised = getattr(what, name), [0]

    def call(*given: Any, **named: Any) -> Any:
        if raised[0] < TIMES:
            raised[0] += 1
            raise cause
        return inner(*given, **named)

    patch.setattr(what, name, call)
    return lambda: raised[0]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "RETRY_INTERVAL", 0.02)
    monkeypatch.setattr(client, "REFUSED", 0.1)


@pytest.fixture
def cut(zookeeper: EmbeddedZooKeeper) -> Iterator[tuple[Proxy, ZooKeeperStore]]:
    """A store whose session is some seconds long, and the network before its server."""
    proxy = Proxy(zookeeper.port)
    with connect(proxy.hosts, 1.0) as store:
        yield proxy, store
    proxy.close()


@pytest.mark.parametrize("cause", CAUSES, ids=repr)
def test_the_session_is_looked_after_again_whatever_the_look_raised(
    cut: tuple[Proxy, ZooKeeperStore], cause: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = cut
    raised = fail(monkeypatch, KazooClient, "exists_async", cause)
    wait_until(lambda: raised() == TIMES)
    proven = store.proven_until
    wait_until(lambda: store.active() and store.proven_until > proven)


@pytest.mark.parametrize("cause", CAUSES, ids=repr)
def test_a_dead_client_is_built_anew_once_that_can_be_done(
    cut: tuple[Proxy, ZooKeeperStore], cause: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = cut
    before, session = store.client, store.session
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    before._connection._connect_attempt = lambda *_: (_ for _ in ()).throw(RuntimeError("dead"))
    raised = fail(monkeypatch, KazooClient, "start_async", cause)
    proxy.cut()
    wait_until(lambda: before._state == KeeperState.CLOSED)
    wait_until(lambda: raised() == TIMES)
    wait_until(lambda: store.active() and store.session != session)
    assert store.client is not before


@pytest.mark.parametrize("cause", CAUSES, ids=repr)
def test_a_second_client_is_begun_once_that_can_be_done(
    cut: tuple[Proxy, ZooKeeperStore], cause: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker had no free descriptor while ZooKeeper restarted, and never came back."""
    proxy, store = cut
    raised = fail(monkeypatch, KazooClient, "start_async", cause)
    proxy.refusing = True
    proxy.cut()
    wait_until(lambda: raised() == TIMES)
    assert repr(store.trouble) == repr(cause), "said with why it is silent"
    wait_until(lambda: store.fresh is not None and store.fresh.refused)
    proxy.refusing = False
    wait_until(store.active)
    wait_until(lambda: store.trouble is None and store.fresh is None)


@pytest.mark.parametrize("cause", CAUSES, ids=repr)
def test_a_watchdog_goes_on_whatever_its_look_raised(cause: Exception) -> None:
    ended, noted, looks = [0], list[Exception](), [0]

    def look() -> int:
        looks[0] += 1
        if looks[0] <= TIMES:
            raise cause
        return 1

    def end() -> None:
        ended[0] += 1
        if ended[0] == 1:
            raise cause

    with Watchdog(look, lambda: True, end, 0.01 * TICKS, noted.append):
        wait_until(lambda: ended[0] == 2)
    assert noted == [cause] * (TIMES + 1)


EXHAUSTED = """
from rota.cli import main
from rota.group.usage import Usage
def read_news(self):
    raise OSError(24, "Too many open files")
Usage.read_news = read_news
import sys
sys.argv = ["rota", "worker", *sys.argv[1:]]
main()
"""


def test_a_worker_whose_loop_finds_no_descriptor_ends_in_one_line(start: Start) -> None:
    """Its supervisor starts it again. A live process that does nothing is never started again."""
    worker = start("w1", program=("-c", EXHAUSTED))
    assert worker.ends() == 2
    assert worker.said("Worker w1 ends: OSError.24, 'Too many open files'.. Its session ends: start it again")
    assert not worker.said("Traceback")


def test_a_log_goes_on_whatever_a_line_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    log = Log(lambda lines: f"dropped {lines}", writer)
    with monkeypatch.context() as patch:
        raised = fail(patch, os, "write", MemoryError())
        for number in range(TIMES):
            log.write(str(number))
        wait_until(lambda: raised() == TIMES)
    log.write("the end")
    log.close()
    assert os.read(reader, 1000) == f"dropped {TIMES}\nthe end\n".encode()
    os.close(reader)
    os.close(writer)
