"""Runs over a topic of a real broker, on a real Spark and real tables."""

import time
from collections import Counter
from collections.abc import Iterable

import pytest
from deltalake import DeltaTable

from rota import registry
from rota.dataplane.kafka import kafka_source, reading
from rota.dataplane.kafka.declaration import Kafka
from rota.dataplane.kafka.kafka_source import KafkaSource
from rota.dataplane.kafka.topic import Topic
from rota.dataplane.ports import ASSIGN, Job
from rota.dataplane.spark.bisection import Bisection
from rota.errors import ConfigError
from rota.people.skip import skip
from rota.run.consume import CommittedBatch, IdlePartition, ParkedPartition
from rota.run.replay import RefusedReplay, ReplayedRange, replay
from rota.run.spans import Choice, choose_spans
from rota.run.work import find_work
from rota.stores import choose_options
from tests.dataplane.conformance.job_suite import JobBench, JobSuite
from tests.dataplane.conftest import log
from tests.dataplane.flaky_reader import CAUSES, Cause, fail_reader
from tests.dataplane.kafka.lettered import LETTERS, LetteredSource
from tests.dataplane.kafka.raw_records import send
from tests.dataplane.kafka.topics import Worlds, commit, commit_some, number, read
from tests.dataplane.striking import strike_at

POISON = '.withColumn("n", F.when(frame["_partition"] == "p:poison", F.raise_error(F.lit("poison")))' + (
    '.otherwise(frame["n"]).cast("int"))'
)


class TopicOnSpark:
    """A bench of records, read by the Spark of the tests."""

    def __init__(self, worlds: Worlds) -> None:
        self.world, self.broker = worlds.make(len(LETTERS), transform=POISON), worlds.broker
        self.endpoint, self.topic = worlds.endpoint, worlds.topic

    def open(self, counts: dict[str, int]) -> Job:
        for partition, count in counts.items():
            self.broker.produce(self.topic, LETTERS.index(partition.removeprefix("p:")), number(count))
        assert self.world.ports.source.observe(tuple(counts), ASSIGN).ends == counts
        return self.world.ports.job


class TestTopicOnSpark(JobSuite):
    @pytest.fixture
    def place(self, worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> JobBench:
        sources = {**registry.SOURCES, Kafka: lambda *of: LetteredSource.letter(KafkaSource.of(*of))}
        monkeypatch.setattr(registry, "SOURCES", sources)
        return TopicOnSpark(worlds)


def test_a_batch_looks_at_the_topic_once_to_observe_and_once_after_spark(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker got six requests per batch, and the record with the topic's id was read as often."""
    world, asked = worlds.make(2), Counter[str]()
    read, note = Topic.read_metadata, kafka_source.read
    monkeypatch.setattr(Topic, "read_metadata", lambda topic: (asked.update(["metadata"]), read(topic))[1])
    monkeypatch.setattr(kafka_source, "read", lambda *at: (asked.update(["note"]), note(*at))[1])
    world.give("0", "1")
    for batch in (1, 2):
        worlds.broker.produce(worlds.topic, 0, number(3))
        assert commit_some(world, "0", "1")["p:0"].end == 3 * batch
        assert asked == {"metadata": 2 * batch, "note": 2 * batch}


def test_what_is_produced_is_in_the_table_once_and_what_is_bad_aside(worlds: Worlds) -> None:
    world = worlds.make(3)
    worlds.broker.produce(
        worlds.topic, 0, [*number(3), b"no JSON", b'{"n": 1}{"n": 2}', None, b"[]", b'{"n": "x"}', b"{}"]
    )
    worlds.broker.produce(worlds.topic, 1, number(2, 10))
    world.give("0", "1", "2")
    (work,) = find_work(world.tree, world.pipeline, world.ports.source)
    assert dict(work.lags) == {"p:0": (0, 9), "p:1": (0, 2)}
    done = commit_some(world, "0", "1", "2")
    assert (done["p:0"].end, done["p:0"].rows, done["p:0"].bad_rows, done["p:0"].lag) == (9, 4, 5, 0)
    want = [("p:0", 0, 0), ("p:0", 1, 1), ("p:0", 2, 2), ("p:0", 8, None), ("p:1", 0, 10), ("p:1", 1, 11)]
    assert read(world, "_partition", "_offset", "n") == sorted(want, key=repr)
    t = worlds.topic
    assert [
        (p, o, f, raw) for p, o, f, raw in read(world, "_partition", "_offset", "_file", "_raw", table="quarantine")
    ] == [
        ("p:0", 3, f"{t}[0]@3", "no JSON"),
        ("p:0", 4, f"{t}[0]@4", '{"n": 1}{"n": 2}'),
        ("p:0", 5, f"{t}[0]@5", ""),
        ("p:0", 6, f"{t}[0]@6", "[]"),
        ("p:0", 7, f"{t}[0]@7", '{"n": "x"}'),
    ]
    assert {type(e) for e in world.run("0", "1", "2")} == {IdlePartition}
    again, refused = (list(replay(world.tree, world.ports, {"p:0": r}, "again")) for r in ((1, 4), (0, 99)))
    assert isinstance(again[0], ReplayedRange)
    assert (again[0].rows, again[0].bad_rows) == (2, 1)
    assert isinstance(refused[0], RefusedReplay)
    assert read(world, "_partition", "_offset", "n") == sorted(want, key=repr)


def test_columns_beside_the_value_are_there_and_tombstones_are_kept_on_request(worlds: Worlds) -> None:
    world = worlds.make(more=', columns=("key", "timestamp", "headers"), tombstones="keep"')
    worlds.broker.produce(
        worlds.topic,
        0,
        [b'{"n": 1}', None, b"bad"],
        key=lambda n: b"k%d" % n if n else None,
        headers=[("a", b"1"), ("b", None)],
    )
    world.give("0")
    done = commit(world, "0")["p:0"]
    assert (done.rows, done.bad_rows) == (2, 1)
    rows = sorted(log(world.table / "main").rows(), key=lambda r: r["_offset"])
    assert [(r["_offset"], r["n"], r["_key"]) for r in rows] == [(0, 1, None), (1, None, b"k1")]
    assert [[(one["key"], one["value"]) for one in r["_headers"]] for r in rows] == [[("a", b"1"), ("b", None)]] * 2
    assert all(abs(r["_timestamp"].timestamp() * 1000 - worlds.broker.produced) < 600_000 for r in rows)
    (aside,) = read(world, "_offset", "_reason", table="quarantine")
    assert aside[0] == 2
    assert "_key" not in aside[1]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_record_that_can_be_read_alone_is_not_blamed(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, cause: Cause
) -> None:
    world = worlds.make()
    worlds.broker.produce(worlds.topic, 0, number(2))
    world.give("0")
    fail_reader(monkeypatch, KafkaSource, cause)
    assert [commit(world, "0")["p:0"].end for _ in range(2)] == [1, 2]
    assert read(world, "_offset", "n") == [(0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("tombstones", "kept"), [("skip", [b"", b"x"]), ("keep", [b"", b"x", None]), ("bad", [b"", b"x", None])]
)
def test_bytes_are_as_they_are(worlds: Worlds, tombstones: str, kept: Iterable[bytes | None]) -> None:
    world = worlds.make(schema="body binary", more=f', format="bytes", tombstones={tombstones!r}')
    worlds.broker.produce(worlds.topic, 0, [b"", None, b"x"])
    world.give("0")
    done = commit(world, "0")["p:0"]
    assert (done.end, done.rows, done.bad_rows) == (3, len(list(kept)), 0)
    assert sorted((r["body"] for r in log(world.table / "main").rows()), key=repr) == sorted(kept, key=repr)


@pytest.mark.parametrize("transform", ["", '.where("n % 2 = 0")', '.select("*", F.lit(1).alias("one"))'])
def test_offsets_with_holes_are_consumed_to_their_end_whatever_the_transform_shows(
    worlds: Worlds, transform: str
) -> None:
    """Aborted transactions, markers, and a range of markers alone."""
    world, broker, topic = worlds.make(transform=transform), worlds.broker, worlds.topic
    world.give("0")
    broker.transact(topic, 0, number(4), commit=False)
    broker.settle(topic, 0, 5)
    done = commit(world, "0")["p:0"]
    assert (done.start, done.end, done.rows) == (0, 5, 0)
    broker.transact(topic, 0, number(6, 10), commit=True)
    broker.transact(topic, 0, number(3, 20), commit=False)
    broker.settle(topic, 0, 16)
    done = commit(world, "0")["p:0"]
    assert (done.start, done.end) == (5, 16)
    want = {n for n in range(10, 16) if n % 2 == 0 or "where" not in transform}
    assert sorted(n for _, n in read(world, "_offset", "n")) == sorted(want)


def test_what_compaction_left_is_read_and_what_it_took_is_no_loss(worlds: Worlds) -> None:
    broker, topic = worlds.broker, worlds.topic
    broker.make(
        topic, 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100", max_compaction_lag_ms="100",
        delete_retention_ms="0",
    )  # fmt: skip
    for first in range(0, 30, 10):
        broker.produce(topic, 0, number(10, first), key=lambda n: b"k%d" % (n % 2))
    broker.wait_compacted(topic, 0, most=12)
    world = worlds.open()
    world.give("0")
    done = commit(world, "0")["p:0"]
    assert done.end >= 30
    assert 2 <= done.rows <= 12
    assert {29, 28} <= {n for _, n in read(world, "_offset", "n")}


def test_what_the_retention_took_parks_with_one_line_and_one_skip_goes_on(worlds: Worlds) -> None:
    world, broker, topic = worlds.make(2), worlds.broker, worlds.topic
    world.give("0", "1")
    for n in (0, 1):
        broker.produce(topic, n, number(5))
    commit(world, "0", "1")
    for n in (0, 1):
        broker.produce(topic, n, number(5, 5))
    broker.drop(topic, 0, before=8)
    events = {e.partition: e for e in world.run("0", "1")}
    parked = events["p:0"]
    assert isinstance(parked, ParkedPartition)
    assert parked.retry_at is None
    assert "begins at 8: the retention deleted the records from offset 5 on" in parked.reason
    assert isinstance(events["p:1"], CommittedBatch), "the other goes on"
    assert skip(world.tree, world.ports, "p:0") == (5, 8)
    assert commit(world, "0")["p:0"].rows == 2


def test_odd_times_and_headers_stop_no_partition(worlds: Worlds) -> None:
    """-1 ms means that a record has no time. Nanoseconds in place of milliseconds are out of the range of a timestamp."""
    worlds.broker.make(worlds.topic, 1, message_timestamp_after_max_ms=str(2**63 - 1), retention_ms="-1")
    world = worlds.open(more=', columns=("timestamp", "headers")')
    now = round(time.time(), 3)
    stamps = [-0.001, now, -0.005, -62_135_596_800.0, 253_402_300_799.0, -62_135_596_801.0, 1.7e12, 1.7e15]
    worlds.broker.produce(worlds.topic, 0, number(len(stamps)), stamps=stamps)
    send(worlds.broker.servers, worlds.topic, ["f\u00fcr".encode("latin-1")])
    world.give("0")
    assert commit(world, "0")["p:0"].rows == len(stamps) + 1
    rows = sorted(log(world.table / "main").rows(), key=lambda r: r["_offset"])
    kept = [None, now, -0.005, -62_135_596_800.0, 253_402_300_799.0, None, None, None]
    assert [r["_timestamp"] and round(r["_timestamp"].timestamp(), 3) for r in rows[:-1]] == kept
    assert [r["n"] for r in rows] == [*range(len(stamps)), 1]
    assert [r["_headers"] for r in rows[-2:]] == [None, [{"key": None, "value": None}]]


@pytest.mark.parametrize("moment", ["look_again", "write_together"])
def test_what_the_retention_takes_once_it_was_read_is_in_the_table(worlds: Worlds, moment: str) -> None:
    """The range was read completely, then dropped, and an operator could only skip it. Now it parks before it is read."""
    world, broker, topic = worlds.make(1), worlds.broker, worlds.topic
    world.give("0")
    broker.produce(topic, 0, number(8))
    with strike_at(Bisection, moment, lambda: broker.drop(topic, 0, before=5), before=True):
        (event,) = world.run("0")
    if moment == "look_again":
        assert isinstance(event, CommittedBatch)
        assert Counter(read(world, "n")) == Counter((n,) for n in range(8))
    else:
        assert isinstance(event, ParkedPartition)
        assert "begins at 5: the retention deleted the records from offset 0 on" in event.reason


def test_a_topic_made_anew_is_noticed_before_anything_is_written(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition at offset 0 lost nothing, but parks like the others. No skip skips a record of the new topic."""
    world, broker, topic = worlds.make(2), worlds.broker, worlds.topic
    world.give("0", "1")
    broker.produce(topic, 0, number(3))
    assert [type(e) for e in world.run("0", "1")] == [IdlePartition, CommittedBatch]
    broker.remove(topic)
    broker.make(topic, 2)
    for n in (0, 1):
        broker.produce(topic, n, number(9))
    events = world.run("0", "1")
    for partition in ("p:0", "p:1"):
        (parked,) = (e for e in events if e.partition == partition)
        assert isinstance(parked, ParkedPartition)
        assert "was created again" in parked.reason
        assert "Give the pipeline another name and table" in parked.reason
        with pytest.raises(ConfigError, match=r"was created again.* Give the pipeline another name and table"):
            skip(world.tree, world.ports, partition)
    assert len(read(world, "n")) == 3
    monkeypatch.setattr(KafkaSource, "find_broken", lambda *_: {})  # the ablation
    assert skip(world.tree, world.ports, "p:1") == (0, 1)


def test_partitions_that_were_added_are_consumed_as_a_whole(worlds: Worlds) -> None:
    world, broker, topic = worlds.make(more=', start="latest"'), worlds.broker, worlds.topic
    broker.produce(topic, 0, number(3))
    world.give("0")
    assert [type(e) for e in world.run("0")] == [IdlePartition]
    broker.grow(topic, 2)
    assert world.ports.source.list_keys() == ("0", "1")
    broker.produce(topic, 1, number(2, 50))
    world.give("0", "1")
    assert commit_some(world, "0", "1").keys() == {"p:1"}
    assert [n for (n,) in read(world, "n")] == [50, 51]


def test_what_was_stamped_in_a_time_is_replayed_as_long_as_it_is_there(worlds: Worlds) -> None:
    world, broker, topic = worlds.make(2), worlds.broker, worlds.topic
    at = float(round(time.time()) - 3600)  # the retention would delete older records
    world.give("0", "1")
    broker.produce(topic, 0, number(4), stamps=[at + n for n in range(4)])
    broker.produce(topic, 1, number(2, 10), stamps=[at, at + 900])
    commit(world, "0", "1")
    broker.produce(topic, 0, number(4, 4), stamps=[at + n for n in range(4, 8)])  # not consumed
    both, asked = ("p:0", "p:1"), Choice(time=(at + 2, at + 6), stamped=True)
    assert choose_spans(world.ports, both, asked) == {"p:0": [(2, 4)]}
    (again,) = replay(world.tree, world.ports, {"p:0": (2, 4)}, "again")
    assert isinstance(again, ReplayedRange)
    assert again.rows == 2
    broker.drop(topic, 0, before=3)
    assert choose_spans(world.ports, both, asked) == {"p:0": [(3, 4)]}, "what the retention took has no time any more"
    assert [n for (n,) in read(world, "n")] == [0, 1, 10, 11, 2, 3]


def test_a_topic_fills_a_table_in_a_bucket(worlds: Worlds, bucket: str) -> None:
    world, place = worlds.make(2), f"{bucket}/tables/p"
    world.write(world.text.replace("{table!r}", repr(place)))
    broker, topic = worlds.broker, worlds.topic
    world.give("0", "1")
    for n in (0, 1):
        broker.produce(topic, n, [*number(3, 10 * n), b"no JSON"])
    assert {(e.rows, e.bad_rows) for e in commit(world, "0", "1").values()} == {(3, 1)}
    rows = DeltaTable(f"{place}/main", storage_options=choose_options(f"{place}/main")).to_pyarrow_table().to_pylist()
    assert sorted(r["n"] for r in rows) == [0, 1, 2, 10, 11, 12]
    broker.remove(topic)
    broker.make(topic, 2)
    broker.produce(topic, 0, number(9))
    (parked,) = world.run("0")
    assert isinstance(parked, ParkedPartition)
    assert f"{place}/index/topic.json" in parked.reason


def test_a_hot_partition_is_read_by_as_many_tasks_as_spark_has_cores(worlds: Worlds) -> None:
    count = 3 * reading.MIN_SHARE
    world = worlds.make(2)
    worlds.broker.produce(worlds.topic, 0, number(count))
    worlds.broker.produce(worlds.topic, 1, number(5))
    world.give("0", "1")
    commit(world, "0", "1")
    assert sorted(n for (n,) in read(world, "n")) == sorted([*range(count), *range(5)])
    assert len(log(world.table / "main").files) > 2, "of several tasks"
