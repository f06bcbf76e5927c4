"""What the tests of the face share: one ZooKeeper for the sensors, one whole line for everything that a person sees."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.coordination.embedded import EmbeddedZooKeeper
from tests.face.line import Line


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    line = Line(Path(tmp_path_factory.mktemp("line")))
    try:
        line.start()
        yield line
    finally:
        line.stop()
