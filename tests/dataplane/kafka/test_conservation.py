"""Random records, transactions and batches: the table has each committed record once, and no other.

The checker compares with the produced records, not with a consumer's. Each ablation causes damage that it counts.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from rota.dataplane.kafka import reading
from rota.dataplane.kafka.kafka_source import KafkaSource
from rota.run.consume import ParkedPartition
from tests.dataplane.conftest import log
from tests.dataplane.kafka.topics import UNHURT, Worlds, commit_some, count_damage, number
from tests.dataplane.world import World

PARTITIONS = 3


def play(worlds: Worlds, seed: int) -> tuple[World, dict[str, list[int]], int]:
    """Return a world after random steps, the committed numbers of each partition, and how many are bad."""
    draw, broker, topic = random.Random(seed), worlds.broker, worlds.topic
    world = worlds.make(PARTITIONS, more=f', max_records={draw.choice((3, 17, 1000))}, tombstones="skip"')
    keys = tuple(map(str, range(PARTITIONS)))
    world.give(*keys)
    expected: dict[str, list[int]] = {f"p:{key}": [] for key in keys}
    first = bad = 0
    for _ in range(18):
        n, count = draw.randrange(PARTITIONS), draw.randrange(1, 12)
        values, first = number(count, first), first + count
        what = draw.choice(("plain", "committed", "aborted", "aborted", "consume"))
        if what == "plain":
            junk = [draw.choice((b"no JSON", None, b"[]")) for _ in range(draw.randrange(3))]
            bad += sum(one is not None for one in junk)
            broker.produce(topic, n, [*values, *junk])
        elif what == "consume":
            commit_some(world, *keys)
            continue
        else:
            broker.transact(topic, n, values, commit=what == "committed")
        if what != "aborted":
            expected[f"p:{n}"] += range(first - count, first)
    for n in range(PARTITIONS):
        broker.produce(topic, n, [b'{"n": -1}'])
        expected[f"p:{n}"].append(-1)
        broker.wait_settled(topic, n)
    world.until_idle(*keys)
    return world, expected, bad


@pytest.mark.parametrize("seed", range(4))
def test_each_committed_record_is_in_the_table_once_and_no_other(worlds: Worlds, seed: int) -> None:
    world, expected, bad = play(worlds, seed)
    assert count_damage(world, expected) == UNHURT
    aside = world.table / "quarantine"
    assert len(log(aside).rows() if aside.exists() else ()) == bad


def make_careless(isolation: str, patience: float) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Ablation: a reader in this isolation that ends when nothing came for so many seconds."""

    def read(
        topic: str, client: dict[str, str], share: Any, ids: dict[int, str], *_: object
    ) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**client, "isolation.level": isolation, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, number, start) for number, start, _ in share])
        ends, quiet = {number: end for number, _, end in share}, time.monotonic() + patience
        while time.monotonic() < quiet:
            came = [m for m in consumer.consume(100, 0.05) if m.error() is None and m.offset() < ends[m.partition()]]
            if came:
                quiet = time.monotonic() + patience
                yield reading.make_batch(came, [m.partition() for m in came], [m.offset() for m in came], ids, {})
        consumer.close()

    return read


@pytest.mark.parametrize(
    ("isolation", "patience", "hurt"), [("read_uncommitted", 2.0, "beyond"), ("read_committed", 0.0, "lost")]
)
def test_without_isolation_or_without_reading_to_the_end_there_is_damage(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, isolation: str, patience: float, hurt: str
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(reading, "read", make_careless(isolation, patience))
    world, expected, _ = play(worlds, seed=1)
    found = count_damage(world, expected)
    assert found[hurt] > 0, found


@pytest.mark.parametrize("noted", [True, False])
def test_without_the_note_of_its_id_the_records_of_a_topic_made_anew_are_lost(worlds: Worlds, noted: bool) -> None:
    world, broker, topic = worlds.make(), worlds.broker, worlds.topic
    world.give("0")
    broker.produce(topic, 0, number(5))
    commit_some(world, "0")
    broker.remove(topic)
    broker.make(topic, 1)
    broker.produce(topic, 0, number(8, 100))
    source = world.ports.source
    assert isinstance(source, KafkaSource)
    if not noted:
        Path(source.index, "topic.json").unlink()
    events = world.run("0")
    assert isinstance(events[0], ParkedPartition) == noted
    before = list(range(5))
    assert (count_damage(world, {"p:0": before}) == UNHURT) == noted
    assert count_damage(world, {"p:0": [*before, *range(100, 108)]})["lost"] == (8 if noted else 5)
