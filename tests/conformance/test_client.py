"""Laws of the wrapper over kazoo, on a real server behind a network that fails."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.coordination.client import FRACTION, ZooKeeperStore, connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.errors import ConfigError, Unavailable, Unknown
from rota.machine import free_port
from tests.conformance.proxy import Proxy
from tests.waiting import LONG, wait_until

SESSION = 2.0
QUICK = 20.0  # seconds: kazoo alone waits as long as a session lasts, of which these have longer ones


@pytest.fixture
def proxy(zookeeper: EmbeddedZooKeeper) -> Iterator[Proxy]:
    proxy = Proxy(zookeeper.port)
    yield proxy
    proxy.close()


@pytest.fixture
def root(zookeeper: EmbeddedZooKeeper, group: str) -> str:
    with connect(zookeeper.hosts) as store:
        store.ensure(f"/rota/{group}")
    return f"/rota/{group}"


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A server that tests may freeze and kill."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("fragile")) as server:
        yield server


@pytest.fixture
def own_server(fragile: EmbeddedZooKeeper) -> Iterator[EmbeddedZooKeeper]:
    """It runs when the test begins."""
    if fragile.process is None:
        fragile.start()
    yield fragile
    fragile.kill(signal.SIGCONT)


def freeze(server: EmbeddedZooKeeper) -> None:
    """Stops the server and waits until each of its threads is stopped: a signal reaches a busy one a little later."""
    process = server.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)

    def states() -> set[str]:
        stats = Path(f"/proc/{process.pid}/task").glob("*/stat")
        return {stat.read_text().rpartition(")")[2].split()[0] for stat in stats}

    wait_until(lambda: states() == {"T"})


def busy(store: ZooKeeperStore, stop: threading.Event) -> threading.Thread:
    """Keeps sending, which is what keeps kazoo from noticing a dead link."""

    def send() -> None:
        while not stop.is_set():
            store.client.exists_async("/")
            stop.wait(0.02)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("deadline", [True, False], ids=["deadline", "kazoo-alone"])
def test_the_gate_closes_before_the_server_expires_the_session(
    zookeeper: EmbeddedZooKeeper, proxy: Proxy, root: str, deadline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent cut under load. kazoo alone still reports CONNECTED when another process already owns the partitions."""
    stop = threading.Event()
    if not deadline:  # it never passes, whatever is noted
        never = property(lambda store: math.inf, lambda store, until: None)
        monkeypatch.setattr(ZooKeeperStore, "proven_until", never, raising=False)
    session = 6.0  # what is left of it when the gate closes is longer than a busy machine needs to look
    with connect(zookeeper.hosts) as observer, connect(proxy.hosts, session) as store:
        store.create(f"{root}/e", ephemeral=True)
        sender = busy(store, stop)
        before = store.session
        proxy.stalled = True
        wait_until(lambda: not store.active() or observer.get(f"{root}/e") is None, pause=0.005)
        alive, open_ = observer.get(f"{root}/e") is not None, store.active()
        if deadline:
            assert (alive, open_) == (True, False), "closed while the session was still alive"
            with pytest.raises(Unavailable, match="nothing was sent"):
                store.set(f"{root}/e", b"", -1)
        else:
            assert (alive, open_) == (False, True), "expired at the server, and still open here"
        wait_until(lambda: observer.get(f"{root}/e") is None)
        stop.set()
        sender.join()
        proxy.stalled = False
        wait_until(lambda: store.active() and store.session != before)


def test_an_idle_client_stays_active(zookeeper: EmbeddedZooKeeper, root: str) -> None:
    session = 4.0  # on a busy machine a heartbeat is late by tenths of a second
    with connect(zookeeper.hosts, session) as store:
        end = time.monotonic() + 2 * session
        looks = 0

        def always() -> bool:
            nonlocal looks
            looks += 1
            assert store.active(), "the gate closed on a healthy, idle session"
            return time.monotonic() > end

        wait_until(always, pause=0.01)
        assert looks > 50
        assert store.proven_until - time.monotonic() <= FRACTION * session


def test_the_servers_session_timeout_counts_not_the_wish(zookeeper: EmbeddedZooKeeper) -> None:
    with connect(zookeeper.hosts, 0.2) as store:
        assert store.negotiated == pytest.approx(2 * zookeeper.tick_ms / 1000)


def test_a_short_cut_keeps_the_session(zookeeper: EmbeddedZooKeeper, proxy: Proxy, root: str) -> None:
    with connect(proxy.hosts, 20.0) as store:
        store.create(f"{root}/e", ephemeral=True)
        session = store.session
        for _ in range(3):
            proxy.cut()
            assert store.get(f"{root}/e") is not None, "a read waits for the connection"
        wait_until(store.active)
        assert store.session == session


def test_a_frozen_server_is_unknown_for_a_write_and_unavailable_for_a_read(own_server: EmbeddedZooKeeper) -> None:
    with connect(own_server.hosts, 60.0) as store:
        store.ensure("/rota/frozen")
        freeze(own_server)
        store.call_timeout, patience = 0.5, store.call_timeout
        with pytest.raises(Unknown, match="Read back before deciding"):
            store.set("/rota/frozen", b"x", 0)
        for call in (lambda: store.get("/rota/frozen"), lambda: store.children("/rota"), store.sync):
            with pytest.raises(Unavailable, match=r"did not answer within 0\.5 s"):
                call()
        own_server.kill(signal.SIGCONT)
        store.call_timeout = patience
        assert store.wait_active(LONG)
        store.sync()
        node = store.get("/rota/frozen")
        assert node is not None
        assert node.version == 1, "the late write arrived, and reading back shows it"


def test_a_connection_that_a_starting_server_forgets_does_not_cost_the_session(
    zookeeper: EmbeddedZooKeeper, proxy: Proxy, root: str
) -> None:
    """A real server does so in some of its starts: it takes the connection and never reads from it."""
    with connect(proxy.hosts, 12.0) as store:
        store.create(f"{root}/e", ephemeral=True)
        session = store.session
        proxy.deaf = 1
        proxy.cut()
        wait_until(lambda: not proxy.deaf)
        wait_until(store.active)
        assert store.session == session


def test_a_server_that_restarts_keeps_sessions_and_records(own_server: EmbeddedZooKeeper) -> None:
    with connect(own_server.hosts, 30.0) as store:
        store.ensure("/rota/a")
        store.create("/rota/e", ephemeral=True)
        session = store.session
        own_server.kill()
        wait_until(lambda: not store.active())
        own_server.start()
        wait_until(store.active)
        assert store.session == session
        assert store.get("/rota/e") is not None
        assert store.set("/rota/a", b"x", 0).version == 1


def test_a_dead_client_is_replaced_once_whichever_thread_notices(zookeeper: EmbeddedZooKeeper) -> None:
    """The caller that renews and the thread that proves may notice at the same time; after the end neither may. A client
    that is replaced unheard would keep its session, and what is live by it, for ever."""
    clients: list[Any] = []

    class Counting(ZooKeeperStore):
        def build_client(self) -> Any:
            clients.append(super().build_client())
            return clients[-1]

    store = Counting(zookeeper.hosts)
    assert store.wait_active(LONG)
    dead = store.client
    threads = [threading.Thread(target=store.rebuild, args=(dead,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clients) == 2
    assert store.wait_active(LONG)
    store.close()
    store.rebuild(store.client)
    assert len(clients) == 2
    dead.stop()
    dead.close()


# Python 3.12 warns of exactly what is tested here.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused_at_once(zookeeper: EmbeddedZooKeeper, root: str) -> None:
    with connect(zookeeper.hosts) as store:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:  # only system calls from here on: this is a copy of a process with threads
            said = b""
            for call in (lambda: store.get(root), lambda: store.create(f"{root}/x"), store.sync, store.renew):
                try:
                    call()
                    said += b"went through;"
                except Unavailable as error:
                    said += b"refused;" if f"process {os.getppid()}" in str(error) else b"other;"
            store.close()
            os.write(writer, said)
            os.kill(os.getpid(), signal.SIGKILL)  # without the handlers of a normal end
        os.waitpid(child, 0)
        assert os.read(reader, 200) == b"refused;" * 4
        os.close(reader)
        os.close(writer)
        assert store.active(), "the child's close did not touch the parent's session"
        assert store.create(f"{root}/x").version == 0


def test_many_threads_share_a_store(zookeeper: EmbeddedZooKeeper, root: str) -> None:
    with connect(zookeeper.hosts) as store:
        store.create(f"{root}/n")
        failed: list[BaseException] = []

        def work(name: int) -> None:
            try:
                for turn in range(50):
                    store.set(f"{root}/n", b"%d" % name, -1)
                    assert store.get(f"{root}/n") is not None, turn
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        node = store.get(f"{root}/n")
        assert node is not None
        assert node.version == 400


def test_no_zookeeper_is_one_line_with_the_next_step() -> None:
    hosts = f"127.0.0.1:{free_port()}/staging"
    with pytest.raises(Unavailable) as refused:
        connect(hosts, connect_timeout=0.3)
    line = str(refused.value)
    assert hosts in line
    assert "connection refused" in line
    assert "rota up" in line
    assert "\n" not in line


BAD_HOSTS = ("", "localhost", "a:b", "a:70000", "a:1,,b:2", ":2181", "/a", "a:1/b,c:2", "a:1//b", "a:1/..")


@pytest.mark.parametrize("hosts", BAD_HOSTS)
def test_bad_hosts_are_refused_before_a_connection(hosts: str) -> None:
    with pytest.raises(ConfigError, match="ROTA_ZOOKEEPER"):
        connect(hosts)


@pytest.mark.parametrize("end", [EmbeddedZooKeeper.kill, freeze], ids=["killed", "frozen"])
def test_closing_is_quick_also_without_a_server(
    own_server: EmbeddedZooKeeper, end: Callable[[EmbeddedZooKeeper], None]
) -> None:
    """A command or a sensor's tick must not hang at its end."""
    store = connect(own_server.hosts, 3 * QUICK)
    end(own_server)
    closer = threading.Thread(target=store.close, daemon=True)
    closer.start()
    wait_until(lambda: not closer.is_alive(), QUICK)
