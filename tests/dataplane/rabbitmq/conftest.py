"""One broker for all tests of RabbitMQ; each test has its own queues."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from rota.dataplane.rabbitmq import numbered_source, stream_source
from tests.dataplane.rabbitmq.broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("rabbitmq"))
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker on a busy machine pauses longer: a run would, correctly, leave late messages to the next run."""
    monkeypatch.setattr(numbered_source, "QUIET", 5.0)
    monkeypatch.setattr(stream_source, "STILL", 1.5)


@pytest.fixture
def prefix() -> str:
    return f"orders-{uuid4().hex[:8]}-"
