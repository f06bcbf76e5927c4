"""A topic as a source, without Spark, on a real broker: the laws of every source, and those of Kafka."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from rota.dataplane.kafka import reading
from rota.dataplane.kafka import topic as topic_of_kafka
from rota.dataplane.kafka.kafka_source import KafkaSource
from rota.dataplane.kafka.topic import Topic
from rota.dataplane.ports import ASSIGN, INSPECT, Query, Withheld
from rota.errors import ConfigError, EnvironmentFailed, RotaError, SourceChanged
from rota.kafka import kafka
from rota.pipeline import Pipeline, delta
from rota.registry import open_source
from tests.dataplane.conformance.source_suite import (
    Beyond,
    HoldingSuite,
    LosingSuite,
    ReplayingSuite,
    SharingSuite,
    SourceSuite,
    StartingSuite,
    TimingSuite,
)
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.topic_bench import TopicBench
from tests.waiting import wait_until


@pytest.fixture
def bench(tmp_path: Path, broker: Broker, topic: str) -> TopicBench:
    return TopicBench(tmp_path, broker, topic)


class TestKafkaSource(SourceSuite, SharingSuite, StartingSuite, LosingSuite, ReplayingSuite, HoldingSuite, TimingSuite):
    @pytest.fixture
    def place(self, bench: TopicBench) -> TopicBench:
        return bench


def test_the_end_of_a_partition_is_where_an_open_or_undecided_transaction_begins(
    bench: TopicBench, broker: Broker
) -> None:
    bench.land("a", 2)
    broker.transact(bench.topic, 0, [b"{}"] * 3, commit=False)
    broker.transact(bench.topic, 0, [b"{}"] * 3, commit=True)
    wait_until(lambda: bench.open().source.observe(("p:a",)).ends == {"p:a": 10})  # with two markers, written after it
    with broker.undecided(bench.topic, 0, [b"{}"]):
        bench.land("a", 2)
        assert bench.open().source.observe(("p:a",)).ends == {"p:a": 10}
        source = bench.open().source
        assert source.find_broken({"p:a": (0, 11)})
        for then, old in ((time.time() - 60, False), (time.time() + 60, True)):
            (held,) = source.observe(("p:a",), Query(open_since=then)).withheld.values()
            why = f"{bench.topic}[0]: a transaction is open since offset 10, and 3 offsets wait"
            assert held == Withheld(10, why, old)
    wait_until(lambda: bench.open().source.observe(("p:a",)).ends == {"p:a": 14})
    assert not source.observe(("p:a",), Query(open_since=0.0)).withheld


def test_what_the_retention_took_is_reported_with_where_the_partition_begins(bench: TopicBench, broker: Broker) -> None:
    bench.land("a", 5)
    source = bench.open().source
    starts = Query(starts=("p:a",))
    assert source.observe(("p:a",), starts).starts == {"p:a": 0}
    broker.drop(bench.topic, 0, before=3)
    (error,) = source.find_broken({"p:a": (1, 5)}).values()
    assert isinstance(error, SourceChanged)
    assert error.facts["behind"] == 3
    assert f"{bench.topic}[0] begins at 3: the retention deleted the records from offset 1 on" in str(error)
    assert str(error).endswith("rota skip p:a")
    (error,) = source.reread({"p:a": (1, 5)}).find_broken({"p:a": (1, 5)}).values()
    assert str(error).endswith("Replay what is left, from 3 on"), "a skip would pass over what is unread"
    assert not source.find_broken({"p:a": (3, 5)})
    assert bench.open().source.observe(("p:a",), starts).starts == {"p:a": 3}
    assert bench.open(4).source.observe(("p:a",), starts).starts == {"p:a": 4}


@pytest.mark.parametrize("records", [1, 9], ids=["shorter", "longer"])
def test_a_topic_made_anew_has_lost_all_that_was_assigned_however_long_it_is(
    bench: TopicBench, broker: Broker, records: int
) -> None:
    bench.land("a", 4)
    bench.open().source.observe(("p:a",), ASSIGN)
    broker.remove(bench.topic)
    source = bench.open().source
    assert isinstance(source, KafkaSource)
    assert source.observe(("p:a",)).assigned["p:a"] > 1 << 60, "a broker that loads its metadata reports no topic, too"
    assert (source.observe(("p:a",)).ends, source.observe(("p:a",), ASSIGN).ends) == ({}, {})
    assert "It is retried automatically" in source.observe(("p:a",)).unreadable["p:a"]
    assert isinstance(source.find_broken({"p:a": (0, 1)})["p:a"], EnvironmentFailed)
    with pytest.raises(ConfigError, match="There is no topic"):
        source.observe((), INSPECT)
    bench.partitions = 0
    bench.land("a", records)
    assert source.observe(("p:a",)).assigned == {"p:a": 0}
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": records}, "and the note stays what it is"
    assert source.observe(("p:a",)).assigned == {"p:a": 0}
    lost = source.observe(("p:a",), Query(consumed=Beyond())).lost["p:a"]
    assert "was created again" in lost
    (error,) = source.find_broken({"p:a": (0, 1)}).values()
    assert "was created again" in str(error)
    assert error.step == lost.partition(". ")[2], "each partition has the same next step"
    Path(source.index, "topic.json").unlink()
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": records}
    assert source.observe(("p:a",)).assigned == {"p:a": records}
    assert json.loads(Path(source.index, "topic.json").read_text())["topic"] == bench.topic


def test_the_offsets_of_the_group_are_there_for_kafkas_own_tools(bench: TopicBench, broker: Broker) -> None:
    bench.land("b", 4)
    source = bench.open(client={"group.id": f"seen-{bench.topic}"}).source
    assert isinstance(source, KafkaSource)
    group = f"seen-{bench.topic}"

    def are_noted() -> bool:  # false while the group's coordinator starts
        source.acknowledge({"p:b": 3})
        source.acknowledge({})
        source.close()
        stored = broker.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
        return [(one.partition, one.offset) for one in stored.topic_partitions] == [(1, 3)]

    wait_until(are_noted)


def test_a_job_is_bounded_over_all_partitions(bench: TopicBench) -> None:
    source = bench.open(most=10, max_job_records=25).source
    starts, ends = dict.fromkeys(("p:c", "p:a", "p:b", "p:d"), 5), {"p:a": 100, "p:b": 12, "p:c": 100, "p:d": 100}
    assert source.plan_jobs(starts, ends) == ({"p:c": (5, 15), "p:a": (5, 15)}, {"p:b": (5, 12), "p:d": (5, 15)})


@pytest.mark.parametrize("weighed", [True, False])
def test_a_job_is_bounded_in_bytes_by_what_the_records_of_each_partition_weigh(
    bench: TopicBench, broker: Broker, monkeypatch: pytest.MonkeyPatch, weighed: bool
) -> None:
    sizes = {"p:a": 200_000, "p:b": 20, "p:c": 50_000}
    bench.land("c", 0)
    for n, size in enumerate(sizes.values()):
        broker.produce(bench.topic, n, [b"x" * size] * 60)
    source = bench.open(max_job_bytes=2_000_000).source
    starts, ends = dict.fromkeys(sizes, 0), source.observe(tuple(sizes)).ends
    if not weighed:
        monkeypatch.setattr(Topic, "weigh", lambda _, starts: (dict.fromkeys(range(3), 1.0), starts))
    jobs = source.plan_jobs(starts, ends)
    assert {p for job in jobs for p in job} == set(sizes), "each has something"
    assert sum(end for job in jobs for p, (_, end) in job.items() if p == "p:b") == 60
    heaviest = max(sum(sizes[p] * (end - at) for p, (at, end) in job.items()) for job in jobs)
    assert heaviest <= 2_000_000 if weighed else heaviest > 15_000_000


@pytest.mark.parametrize("room", [1 << 20, 1 << 30])
def test_a_task_holds_few_large_records_at_a_time(
    bench: TopicBench, broker: Broker, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    bench.land("a", 0)
    broker.produce(bench.topic, 0, [b"x" * 200_000] * 60)
    monkeypatch.setattr(reading, "ROOM", room)
    monkeypatch.setattr(reading, "POLL", 1.0)  # a fast network
    client = {"bootstrap.servers": broker.servers}
    batches = list(reading.read(bench.topic, client, ((0, 0, 60),), {0: "p:a"}, {}, True))
    assert sum(one.num_rows for one in batches) == 60
    found = max(one.nbytes for one in batches[1:])  # after the first, of `SAMPLE` records
    assert found <= 1 << 20 if room == 1 << 20 else found > 5 << 20


def test_a_silent_broker_is_an_error_within_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_of_kafka, "PATIENCE", 1.0)
    source = TopicBench(tmp_path, Nowhere(), "t").open().source  # type: ignore[arg-type]
    for ask in (source.list_keys, lambda: source.observe(("p:a",))):
        with pytest.raises(RotaError, match=r"topic t of Kafka at 127\.0\.0\.1:1.*127\.0\.0\.1:1.*refused"):
            ask()


def test_without_the_library_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    pipeline = Pipeline(kafka("h:1", "t", schema="n int"), delta(str(tmp_path / "t")), name="p")
    with pytest.raises(ConfigError, match=r"confluent-kafka. Type: pip install confluent-kafka"):
        open_source(pipeline)


class Nowhere:
    servers = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"client": {"sasl.password": "hunter22"}}, "from the environment alone"),
        ({"client": {"sasl.password": "x${SET}"}}, "from the environment alone"),
        ({"client": {"ssl.key.pem": "-----BEGIN"}}, "from the environment alone"),
        ({"client": {"sasl.oauthbearer.assertion.private.key.passphrase": "hunter22"}}, "from the environment alone"),
        ({"client": {"sasl.jaas.config": "password=hunter22"}}, "from the environment alone"),
        ({"client": {"enable.auto.commit": "true"}}, "is for rota to set"),
        ({"columns": ("key", "key")}, "Known, each once"),
        ({"columns": ("keys",)}, "'keys'"),
        ({"columns": ("key",), "schema": "_KEY string"}, "is in columns= too"),
        ({"tombstones": "drop"}, "Known: bad, keep, skip"),
        ({"start": "soon"}, "give 'earliest'"),
        ({"max_records": 0}, "give 1 or more"),
        ({"max_job_bytes": 0}, "give 1 or more"),
        ({"format": "parquet"}, "Known: csv, json, bytes"),
        ({"topic": " "}, "the name of a topic"),
    ],
)
def test_a_value_that_no_run_could_work_with_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        kafka(**{"servers": "h:1", "topic": "t", "schema": "n int", **more})
    assert "hunter22" not in str(caught.value)
    assert "BEGIN" not in str(caught.value)


def test_a_secret_is_in_no_text_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_WORD", "correct-horse")
    declared = kafka("h:1", "t", schema="n int", client={"sasl.password": "${MY_WORD}"})
    assert declared.read_client()["sasl.password"] == "correct-horse"
    assert "correct-horse" not in f"{declared!r}{RotaError('it said correct-horse')}"
