"""The two stores behind one face, with the faults that both can suffer."""

from collections.abc import Callable
from typing import Protocol

from kazoo.client import KazooClient

from rota.coordination.client import ZooKeeperStore, connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.store import Store
from rota.errors import CoordinationError
from simulator.memory_store import MemoryServer, MemoryStore
from tests.conformance.proxy import Proxy
from tests.waiting import wait_until

TIMEOUT = 10.0  # seconds of a session: no test waits for its end, see `expire`


class World(Protocol):
    """A server and its clients."""

    def connect(self) -> Store: ...
    def expire(self, store: Store) -> None: ...
    def lose(self, store: Store, what: str) -> None: ...
    def disconnect(self, store: Store) -> None: ...
    def reconnect(self, store: Store) -> None: ...
    def close(self) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.server = MemoryServer()
        self.stores: list[MemoryStore] = []

    def connect(self) -> MemoryStore:
        self.stores.append(self.server.connect())
        return self.stores[-1]

    def expire(self, store: MemoryStore) -> None:
        self.server.expire(store.session)

    def lose(self, store: MemoryStore, what: str) -> None:
        store.lose_reply() if what == "reply" else store.lose_request()

    def disconnect(self, store: MemoryStore) -> None:
        store.disconnect()

    def reconnect(self, store: MemoryStore) -> None:
        store.reconnect()

    def close(self) -> None:
        for store in self.stores:
            store.reconnect()
            store.close()


class RealWorld:
    """Every client goes through a proxy of its own."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self.server = server
        self.proxies: dict[int, Proxy] = {}
        self.stores: list[ZooKeeperStore] = []

    def connect(self, timeout: float = TIMEOUT) -> ZooKeeperStore:
        proxy = Proxy(self.server.port)
        store = connect(proxy.hosts, timeout, call_timeout=20)
        self.proxies[id(store)] = proxy
        self.stores.append(store)
        return store

    def proxy(self, store: Store) -> Proxy:
        return self.proxies[id(store)]

    def expire(self, store: ZooKeeperStore) -> None:
        """A second client with the same session ends it: the server expires it at once."""
        before = store.session
        twin = KazooClient(self.server.hosts, client_id=store.client.client_id, timeout=TIMEOUT)
        twin.start()
        twin.stop()
        twin.close()
        wait_until(lambda: store.session != before and store.active())

    def lose(self, store: Store, what: str) -> None:
        self.proxy(store).lose(what)

    def disconnect(self, store: Store) -> None:
        self.proxy(store).refusing = True
        self.proxy(store).cut()
        wait_until(lambda: not store.active())

    def reconnect(self, store: Store) -> None:
        self.proxy(store).refusing = False
        wait_until(store.active)

    def close(self) -> None:
        for store in self.stores:
            self.proxy(store).refusing = False
            store.close()
            self.proxy(store).close()


def again(call: Callable[[], object]) -> object:
    """The call's result, once it no longer fails for want of a connection or session."""
    found: list[object] = []

    def works() -> bool:
        try:
            found.append(call())
        except CoordinationError:
            return False
        return True

    wait_until(works)
    return found[-1]
