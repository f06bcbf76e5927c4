"""Runs over streams of several segments, on a real broker: it uses one offset of each itself, and its retention deletes
the oldest segment. By default a segment has 500 MB; here it has some 20 messages."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.ports import Query
from rota.dataplane.rabbitmq.numbered_source import NumberedSource
from rota.dataplane.rabbitmq.stream_source import StreamSource
from rota.people.skip import skip
from rota.run.consume import CommittedBatch, ParkedPartition
from rota.run.replay import ReplayedRange, replay
from tests.dataplane.conftest import log
from tests.dataplane.rabbitmq.broker import Broker
from tests.dataplane.world import World
from tests.waiting import wait_until

SEGMENT = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 5_000}
SHORT = {**SEGMENT, "x-max-length-bytes": 15_000}
TEXT = """
from rota.rabbitmq import streams
pipeline = Pipeline(
    source=streams({url!r}, prefix={prefix!r}, count=1, schema="n int, word string", max_messages=200),
    table=delta({{table!r}}), group="g",
)
"""
Publish = Callable[[int, dict[str, object]], None]


@pytest.fixture
def world(tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, prefix: str) -> World:
    made = World(tmp_path, endpoint, TEXT.format(url=broker.url, prefix=prefix), spark=spark)
    made.give("0")
    return made


@pytest.fixture
def publish(broker: Broker, prefix: str) -> Publish:
    def publish(count: int, arguments: dict[str, object]) -> None:
        with broker.connect() as connection:
            channel = connection.channel()
            channel.queue_declare(f"{prefix}0", durable=True, arguments=arguments)
            channel.confirm_delivery()
            for n in range(count):
                channel.basic_publish("", f"{prefix}0", b'{"n": %d, "word": "%s"}' % (n, b"w" * 200))

    return publish


def list_numbers(world: World) -> list[object]:
    return sorted(row["n"] for row in log(world.table / "main").rows())  # type: ignore[type-var]


def test_the_offsets_that_the_broker_keeps_for_itself_are_passed_over(world: World, publish: Publish) -> None:
    """A partition stopped for ever at the end of the first segment: `did not give offset 14 in time`."""
    publish(100, SEGMENT)
    (batch,) = world.run("0")
    assert isinstance(batch, CommittedBatch)
    assert (batch.start, batch.rows, batch.lag) == (0, 100, 0)
    assert batch.end > 104, "so many offsets have no message"
    assert list_numbers(world) == list(range(100))
    (done,) = replay(world.tree, world.ports, {"p:0": (0, batch.end)}, "again")
    assert isinstance(done, ReplayedRange), done
    assert done.rows == 100
    assert list_numbers(world) == list(range(100))


def find_first(world: World) -> int:
    """Return the first offset after the retention."""
    return world.ports.source.observe(("p:0",), Query(starts=("p:0",))).starts["p:0"]


@pytest.mark.parametrize("guard", [True, False], ids=["asked where it begins", "passed over as any other"])
def test_what_the_retention_took_is_skipped_in_one_step_and_never_unseen(
    world: World, publish: Publish, monkeypatch: pytest.MonkeyPatch, guard: bool
) -> None:
    if not guard:
        monkeypatch.setattr(StreamSource, "find_broken", NumberedSource.find_broken)
    publish(5, SHORT)
    (first,) = world.run("0")
    assert isinstance(first, CommittedBatch)
    publish(150, SHORT)
    wait_until(lambda: find_first(world) > first.end)
    (event,) = world.run("0")
    if not guard:
        assert isinstance(event, CommittedBatch)
        assert 155 - first.rows - event.rows > 20, "rows are lost without a report"
        return
    assert isinstance(event, ParkedPartition)
    assert (
        "the retention deleted the messages from offset 5 on. To continue without them: rota skip p:0" in event.reason
    )
    assert event.retry_at is None
    start, end = skip(world.tree, world.ports, "p:0")
    assert (start, find_first(world)) == (5, end)
    skipped, rest = world.run("0")
    assert isinstance(skipped, CommittedBatch)
    assert isinstance(rest, CommittedBatch)
    assert (skipped.start, skipped.end, skipped.rows) == (5, end, 0), "the skip is reported"
    assert (rest.start, rest.lag) == (end, 0)
    assert list_numbers(world)[-rest.rows :] == list(range(150 - rest.rows, 150))
