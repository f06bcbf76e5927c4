"""A guarded ZooKeeper, an empty tree in it, and a connection of each role."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from rota.coordination.client import ZooKeeperStore
from rota.errors import Conflict, Forbidden
from tests.conformance.access.connections import SCHEMES, open_store
from tests.guarded import ROLES, Guarded, guard


@pytest.fixture(scope="session")
def known() -> Iterator[None]:
    """What there is before these tests is not looked through again and again: neither what was imported, see
    tests/conftest.py, nor what other tests made. In the end it is: libraries report what is left as leaks."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def collected(known: None) -> Iterator[None]:
    """kazoo leaves the sockets of handshakes that failed to the garbage collector: it comes here, and not elsewhere."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guard(tmp_path_factory.mktemp("guarded")) as server:
        yield server


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def persons(guarded: Guarded) -> Iterator[list[ZooKeeperStore]]:
    """A connection of an operator for each scheme of identities."""
    stores = [open_store(guarded.environment(scheme, "person")) for scheme in SCHEMES]
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def fresh(persons: list[ZooKeeperStore]) -> None:
    """Empty the tree, whichever identity made it, so that this test makes it."""
    for path in reversed(list_nodes(persons, "/rota")):
        for store in persons:
            with suppress(Forbidden, Conflict):
                store.delete(path)
    assert persons[0].get("/rota") is None


def list_nodes(persons: Sequence[ZooKeeperStore], path: str) -> list[str]:
    for store in persons:
        with suppress(Forbidden):
            if store.get(path) is None:
                return []
            names = store.children(path)
            return [path, *(one for name in names for one in list_nodes(persons, f"{path}/{name}"))]
    return [path]


@pytest.fixture
def stores(guarded: Guarded, scheme: str, fresh: None) -> Iterator[dict[str, ZooKeeperStore]]:
    """A connection of each role."""
    made = {role: open_store(guarded.environment(scheme, role)) for role in ROLES}
    yield made
    for store in made.values():
        store.close()
