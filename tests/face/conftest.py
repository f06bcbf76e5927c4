"""What the tests of the face share: one ZooKeeper, one Spark, one whole line for everything that a person sees."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from tests.dataplane.world import BRIEF
from tests.face.desk import Desk
from tests.face.line import Line
from tests.face.reload import (
    PROTOCOLS,
    Reload,
    copy_flights,
    declare_alone,
    forget_day,
    land_flights,
    reload_in_a_tick,
)
from tests.face.scratch import build_wheel, install_wheel
from tests.waiting import wait_until


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def starting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    """One Spark for all workers: what a session costs is not what is tested here. It is ready some seconds later."""
    server = SparkServer("shared", SparkSettings("local[2]", BRIEF), tmp_path_factory.mktemp("spark"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Path:
    """The folder where the wheel is installed, for PYTHONPATH."""
    return install_wheel(wheel, wheel.parent / "installed")


@pytest.fixture(scope="session")
def spark(starting: SparkServer) -> SparkServer:
    wait_until(starting.ready)
    return starting


LINE = pytest.StashKey[Line]()


@pytest.fixture(scope="session")
def line(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    zookeeper: EmbeddedZooKeeper,
    starting: SparkServer,
) -> Iterator[Line]:
    """It ends after the last test that asks for it: its sensors and workers look around as long as it lives."""
    line = Line(Path(tmp_path_factory.mktemp("line")), zookeeper.hosts, starting)
    request.config.stash[LINE] = line
    try:
        line.start()
        yield line
    finally:
        line.stop()


@pytest.fixture(scope="session")
def reload(line: Line) -> Reload:
    """The user's file and three groups whose workers decide alone are there, by one reload, and group `day` is no more. The
    user's files have landed."""
    forget_day(line)
    line.join("u1", "default")
    copy_flights(line)
    declare_alone(line, **dict(zip(PROTOCOLS, PROTOCOLS, strict=True)))
    done = reload_in_a_tick(line)
    for worker in ("w1", "w2"):  # not before: its sensor would ask for a job that the new code does not have
        line.kill(worker)
    land_flights(line)
    return done


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After what the test itself takes down. The tests that ask for the line stand together: see tests/conftest.py."""
    line = item.config.stash.get(LINE, None)
    if line and (nextitem is None or "line" not in getattr(nextitem, "fixturenames", ())):
        line.stop()


@pytest.fixture
def desk(zookeeper: EmbeddedZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("ROTA_TICK", "0")
    monkeypatch.setattr("rota.dagster.sensors.checks.PAUSE_FACTOR", 0)
    monkeypatch.setattr("rota.dagster.sensors.checks.MIN_PAUSE", 0.0)
    with dg.DagsterInstance.ephemeral() as instance:
        desk = Desk(zookeeper.hosts, tmp_path, instance)
        yield desk
        for store in desk.stores:
            store.close()
