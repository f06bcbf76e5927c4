"""Streams as a source, without Spark: the laws of every source, and a stream can be read again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rota.dataplane.ports import ASSIGN, Ports, Query
from rota.dataplane.rabbitmq import link
from rota.dataplane.rabbitmq.link import Link
from rota.dataplane.rabbitmq.queues import OFFSET
from rota.dataplane.rabbitmq.stream_source import StreamSource
from rota.errors import ConfigError, EnvironmentFailed
from rota.pipeline import Pipeline, delta
from rota.rabbitmq import Publisher, queues, streams
from rota.registry import open_ports
from tests.dataplane.conformance.source_suite import (
    HoldingSuite,
    LosingSuite,
    ReplayingSuite,
    SharingSuite,
    SourceSuite,
    StartingSuite,
)
from tests.dataplane.rabbitmq.broker import Broker

STREAM = {"x-queue-type": "stream"}


class StreamsBench:
    """A bench of streams; a message is one offset. Messages never change, and no single one is lost."""

    def __init__(self, folder: Path, broker: Broker, prefix: str) -> None:
        self.folder, self.broker, self.prefix = folder, broker, prefix
        self.opened: list[StreamSource] = []

    def open(self, start: str | int = "earliest", most: int = 1000) -> Ports:
        self.close()
        first = 0 if start == "earliest" else start
        source = streams(self.broker.url, prefix=self.prefix, count=1, schema="n int", start=first, max_messages=most)  # type: ignore[arg-type]
        ports = open_ports(Pipeline(source, delta(str(self.folder / "table")), group="g", name="p"), "g", "0" * 32)

        def make() -> StreamSource:
            assert isinstance(ports.source, StreamSource)
            self.opened.append(replace(ports.source, keys=("a", "b", "c", "d"), inboxes={}))
            return self.opened[-1]

        return replace(ports, source=make(), reread=lambda _: replace(ports, source=make()))

    def land(self, key: str, count: int = 1) -> None:
        with self.broker.connect() as connection:
            channel = connection.channel()
            channel.queue_declare(f"{self.prefix}{key}", durable=True, arguments=STREAM)
            channel.confirm_delivery()
            for _ in range(count):
                channel.basic_publish("", f"{self.prefix}{key}", b'{"n": 1}')

    def close(self) -> None:
        for one in self.opened:
            one.close()
        self.opened.clear()


@pytest.fixture
def bench(tmp_path: Path, broker: Broker, prefix: str) -> Iterator[StreamsBench]:
    made = StreamsBench(tmp_path, broker, prefix)
    yield made
    made.close()


class TestStreamSource(SourceSuite, SharingSuite, StartingSuite, LosingSuite, ReplayingSuite, HoldingSuite):
    @pytest.fixture
    def place(self, bench: StreamsBench) -> StreamsBench:
        return bench


@pytest.mark.parametrize("gives_back", [False, True], ids=["as it is", "pika's own way"])
def test_what_comes_while_a_consumer_is_cancelled_ends_no_connection(
    bench: StreamsBench, broker: Broker, monkeypatch: pytest.MonkeyPatch, gives_back: bool
) -> None:
    with Publisher(broker.url, bench.prefix, 1, streams=True) as publisher:
        publisher.publish(("k", b"x" * 1_000) for _ in range(2_500))
    connection = Link(broker.url)
    if gives_back:
        monkeypatch.setattr(link, "reject_nothing", connection.channel.basic_reject)
    connection.limit(2_000)
    try:
        for _ in range(20):
            connection.cancel(connection.consume(f"{bench.prefix}0", lambda *_: None, arguments={OFFSET: "first"}))
        ended = ""
    except EnvironmentFailed as error:
        ended = str(error)
    finally:
        connection.close()
    assert ("not supported by stream queues" in ended) is gives_back, ended


def test_what_was_acknowledged_is_read_again_in_the_same_order(bench: StreamsBench, broker: Broker) -> None:
    with Publisher(broker.url, bench.prefix, 1, streams=True) as publisher:
        publisher.publish(("k", b"%d" % n) for n in range(2_500))
    source = replace(bench.open(most=1_000).source, keys=("0",), inboxes={})  # type: ignore[type-var]
    assert isinstance(source, StreamSource)
    bench.opened.append(source)
    ends = source.observe(("p:0",), ASSIGN).ends
    assert ends == {"p:0": 2_500}
    (job,) = source.plan_jobs({"p:0": 0}, ends)
    assert job == {"p:0": (0, 1_000)}
    assert not source.find_broken(job)
    source.acknowledge({"p:0": 1_000})
    source.close()
    assert not source.find_broken({"p:0": (500, 2_100)}), "a replay is not cut by the caps of a run"
    assert list(source.list_raw("p:0", 500)) == ["500"]
    assert list(source.list_raw("p:0", 2_099)) == ["2099"]


def test_a_pipeline_that_starts_at_the_latest_takes_nothing_of_what_is_there(bench: StreamsBench) -> None:
    bench.land("a", 3)
    source = bench.open("latest").source
    assert isinstance(source, StreamSource)
    seen = source.observe(("p:a",), Query(assign=True, starts=("p:a",), founding=("p:a",)))
    assert (seen.ends, seen.starts) == ({"p:a": 3}, {"p:a": 3})
    assert not source.inboxes
    with pytest.raises(ConfigError, match="of queues"):
        queues("amqp://h", prefix="q", count=1, schema="n int", start="latest")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give 'latest' or an offset"):
        streams("amqp://h", prefix="q", count=1, schema="n int", start=-1)
