"""The broker is killed at several moments of a batch: every message is in the table once."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.rabbitmq.inbox import Inbox
from rota.errors import EnvironmentFailed
from rota.ledger.ledger import Ledger
from rota.rabbitmq import Publisher
from rota.run.consume import CommittedBatch
from tests.dataplane.conftest import log
from tests.dataplane.rabbitmq.broker import Broker
from tests.dataplane.world import World

TEXT = """
from rota.rabbitmq import queues
pipeline = Pipeline(source=queues({url!r}, prefix="orders", count=2, schema="n int"), table=delta({{table!r}}), group="g")
"""
MOMENTS: dict[str, tuple[Any, str]] = {
    "taking": (Inbox, "take"),  # the run holds some messages, and others are in transit
    "committing": (Ledger, "commit"),  # it holds all of them, and Spark has written them
}


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Broker]:
    """A broker for this test only."""
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    yield broker
    broker.stop()


def kill_before(real: Callable[..., Any], broker: Broker, killed: list[int], last: int) -> Callable[..., Any]:
    """Kill the broker once, before the `last` of these calls."""

    def call(*args: Any, **more: Any) -> Any:
        killed.append(len(killed))
        if len(killed) == last:
            broker.kill()
        return real(*args, **more)

    return call


def test_every_message_is_in_the_table_once(
    tmp_path: Path, endpoint: str, spark: SparkSession, mortal: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, endpoint, TEXT.format(url=mortal.url), spark=spark)
    published = Counter[int]()
    for round_, (moment, (owner, name)) in enumerate(MOMENTS.items()):
        numbers = range(100 * round_, 100 * round_ + 80)
        with Publisher(mortal.url, "orders", 2) as publisher:
            publisher.publish((f"k{n}", json.dumps({"n": n}).encode()) for n in numbers)
        published.update(numbers)
        world.give("0", "1")
        calls: list[int] = []
        last = 40 if moment == "taking" else 1
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, kill_before(getattr(owner, name), mortal, calls, last))
            if moment == "taking":
                with pytest.raises(EnvironmentFailed, match="RabbitMQ at"):
                    world.run("0", "1")
            else:
                assert all(isinstance(e, CommittedBatch) for e in world.run("0", "1"))
        assert len(calls) >= last, moment
        assert not mortal.answers()
        mortal.start()
        world.until_idle("0", "1")
        assert Counter(r["n"] for r in log(world.table / "main").rows()) == published, moment
        assert world.ports.source.observe(("p:0", "p:1")).ends == {
            p: one.record.offset for p, one in world.tree.checkpoints(("p:0", "p:1")).items()
        }, "nothing waits"
