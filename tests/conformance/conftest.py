"""One real server for all of these tests; each test has clients and a group of its own."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.machine import free_port
from simulator.memory_store import MemoryServer
from tests.conformance.balanced_group import Group
from tests.conformance.processes import Start, Worker
from tests.conformance.targets import found_with
from tests.conformance.worlds import MemoryWorld, RealWorld, World
from tests.waiting import LONG

_numbers = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A real server, started once. Kill it only if you start it again."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def group() -> str:
    """A group's name that no other test has."""
    return f"g{next(_numbers)}"


@pytest.fixture(params=["memory", "real"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Both stores, one after the other."""
    if request.param == "memory":
        here: World = MemoryWorld()
    else:
        here = RealWorld(request.getfixturevalue("zookeeper"))
    yield here
    here.close()


@pytest.fixture
def tree(world: World, group: str) -> GroupState:
    """A founded group."""
    tree = GroupState(world.connect(), group)
    tree.found()
    return tree


@pytest.fixture
def real(zookeeper: EmbeddedZooKeeper, group: str) -> Iterator[GroupState]:
    """A founded group with two free partitions."""
    with connect(zookeeper.hosts) as store:
        yield found_with(GroupState(store, group))


@pytest.fixture
def memory() -> MemoryServer:
    """A server in memory whose clock only tests move."""
    return MemoryServer(clock=lambda: 1000.0)


@pytest.fixture
def balanced(memory: MemoryServer) -> Group:
    return Group(memory)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder for a server of one's own."""
    return tmp_path / "server"


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EmbeddedZooKeeper]]:
    """Three real servers, started once. Kill one only if you start it again."""
    tmp_path = tmp_path_factory.mktemp("ensemble")
    ports = [(free_port(), free_port(), free_port()) for _ in range(3)]
    quorum = [f"server.{i}=127.0.0.1:{peer}:{vote}" for i, (_, peer, vote) in enumerate(ports, 1)]
    servers = []
    for number, (port, _, _) in enumerate(ports, 1):
        folder = tmp_path / f"server{number}"
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "myid").write_text(str(number))
        servers.append(EmbeddedZooKeeper(folder, port, heap="128m", extra=quorum))
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda server: server.start(LONG), servers))
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def start(tmp_path: Path, zookeeper: EmbeddedZooKeeper, group: str) -> Iterator[Start]:
    """Starts a worker without Spark; all of them are gone at the end."""
    workers: list[Worker] = []

    def begin(name: str, *words: str, hosts: str = zookeeper.hosts, **more: Any) -> Worker:
        log = tmp_path / f"{name}-{len(workers)}.log"
        workers.append(Worker(log, hosts, group, "--id", name, *(words or ("--no-spark",)), **more))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.kill()
