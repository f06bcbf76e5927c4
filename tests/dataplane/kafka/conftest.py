"""One broker for all tests of Kafka; each test has its own topic."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.gate import Gate, open_gate
from tests.dataplane.kafka.registry_server import RegistryServer
from tests.dataplane.kafka.topics import Worlds


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("kafka"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """One registry for all tests of schemas."""
    running = RegistryServer(tmp_path_factory.mktemp("registry"))
    yield running.wait()
    running.stop()


@pytest.fixture
def gate(registry: RegistryServer) -> Iterator[Gate]:
    with open_gate(registry.address) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid4().hex[:8]}"


@pytest.fixture
def worlds(tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, topic: str) -> Worlds:
    return Worlds(tmp_path, endpoint, spark, broker, topic)


@pytest.fixture
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for one test."""
    running = Broker(tmp_path_factory.mktemp("mortal"))
    yield running
    running.stop()
