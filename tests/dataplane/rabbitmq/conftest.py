"""One broker for all tests of RabbitMQ; each has queues of its own."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.dataplane.rabbitmq.broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("rabbitmq"))
    yield running
    running.stop()


@pytest.fixture
def prefix() -> str:
    return f"orders-{uuid4().hex[:8]}-"
