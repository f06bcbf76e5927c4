"""Three brokers: the leader of a partition dies in the middle of a batch; a partition has no leader."""

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from rota.dataplane.kafka import reading
from rota.dataplane.kafka import topic as looking
from rota.errors import ConfigError
from rota.people.skip import skip
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane.conformance.source_suite import WaitingSuite
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.lettered import LETTERS
from tests.dataplane.kafka.slow import make_slowly
from tests.dataplane.kafka.topic_bench import TopicBench
from tests.dataplane.kafka.topics import UNHURT, Worlds, catch_up, commit, commit_some, count_damage, number
from tests.waiting import LONG, wait_until

SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "1",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


@dataclass(frozen=True)
class Brokers:
    """Three brokers of one cluster. The first is the controller, and no test kills it."""

    nodes: tuple[Broker, Broker, Broker]

    @property
    def servers(self) -> str:
        return ",".join(one.servers for one in self.nodes)

    def make(self, topic: str, *replicas: list[int]) -> None:
        """Create a topic with a partition for each list of nodes; the first node of a list is the leader."""
        admin = self.nodes[0].admin
        admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=list(replicas))])[topic].result(LONG)
        wait_until(lambda: all(self.find_leader(topic, n) == of[0] for n, of in enumerate(replicas)))

    def find_leader(self, topic: str, partition: int) -> int:
        """Return the node that leads the partition; -1 if none does."""
        known = self.describe(topic)
        return int(known[partition].leader) if partition in known else -1

    def describe(self, topic: str) -> dict[int, Any]:
        """Return what the brokers know of each partition. librdkafka may ask a frozen broker; then it asks again."""

        def ask() -> list[dict[int, Any]]:
            with suppress(KafkaException):
                return [self.nodes[0].admin.list_topics(topic, 5).topics[topic].partitions]
            return []

        return wait_until(ask)[0]

    def wait_in_sync(self, topic: str, partition: int, *nodes: int) -> None:
        """Wait until these nodes are the partition's replicas in sync."""
        wait_until(lambda: set(self.describe(topic)[partition].isrs) == {*nodes})

    def elect_uncleanly(self, topic: str, partition: int, node: int) -> None:
        """Make a replica the leader although it is not in sync."""

        def is_elected() -> bool:
            with suppress(KafkaException):
                self.nodes[0].admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, partition)]).result(LONG)
            return self.find_leader(topic, partition) == node

        wait_until(is_elected)

    def end(self, node: int, topic: str, partition: int) -> None:
        """Kill a node with -9. Wait until another node leads the partition, or none."""
        self.strike("kill", node, topic, partition)

    def strike(self, how: str, node: int, topic: str, partition: int) -> None:
        """Kill or freeze a node. Wait until it does not lead the partition."""
        getattr(self.nodes[node - 1], how)()
        wait_until(lambda: self.find_leader(topic, partition) != node)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    first = Broker(tmp_path_factory.mktemp("first"), SETTINGS)
    try:
        second = Broker(tmp_path_factory.mktemp("second"), SETTINGS, first=first, node=2)
        try:
            third = Broker(tmp_path_factory.mktemp("third"), SETTINGS, first=first, node=3)
            yield Brokers((first, second, third))
            third.stop()
        finally:
            second.stop()
    finally:
        first.stop()


class ClusterBench(TopicBench):
    """A bench whose partition `a` is on its own broker."""

    def __init__(self, folder: Path, brokers: Brokers, topic: str) -> None:
        super().__init__(folder, brokers.nodes[0], topic)
        self.brokers, self.partitions = brokers, 2
        brokers.make(topic, [2], [1])

    def blind(self, key: str) -> None:
        self.brokers.end(2, self.topic, LETTERS.index(key))

    def mend(self, key: str) -> None:
        self.brokers.nodes[1].start()
        wait_until(lambda: self.brokers.find_leader(self.topic, LETTERS.index(key)) == 2)


class TestClusterSource(WaitingSuite):
    @pytest.fixture
    def place(self, tmp_path: Path, brokers: Brokers, topic: str) -> ClusterBench:
        return ClusterBench(tmp_path, brokers, topic)


def test_a_partition_without_a_leader_waits_alone_with_one_line(
    tmp_path: Path, endpoint: str, spark: SparkSession, brokers: Brokers, topic: str
) -> None:
    worlds = Worlds(tmp_path, endpoint, spark, brokers.nodes[0], topic)
    brokers.make(topic, [2], [1], [3])
    world, keys = worlds.open(), ("0", "1", "2")
    world.give(*keys)
    for n in range(3):
        brokers.nodes[0].produce(topic, n, number(5))
    commit(world, *keys)
    for n in range(3):
        brokers.nodes[0].produce(topic, n, number(5, 5))
    brokers.end(2, topic, 0)
    events = {e.partition: e for e in world.run(*keys)}
    waiting = events.pop("p:0")
    assert isinstance(waiting, ParkedPartition)
    assert waiting.retry_at is not None, "it is tried again by itself"
    assert waiting.reason == f"p:0: {topic}[0] has no leader. Bring its brokers back; it is retried automatically"
    assert all(isinstance(e, CommittedBatch) for e in events.values()), events
    assert list(world.tree.parked()) == ["p:0"], "and no other"
    brokers.nodes[1].start()
    wait_until(lambda: "p:0" in commit_some(world, *keys))
    assert count_damage(world, {f"p:{n}": list(range(10)) for n in range(3)}) == UNHURT


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_a_leader_that_is_lost_in_a_batch_is_followed_by_another_and_each_record_is_there_once(
    tmp_path: Path,
    endpoint: str,
    spark: SparkSession,
    brokers: Brokers,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """A frozen leader keeps its connections: the run ends at its own deadline, and the next one reads from another."""
    monkeypatch.setattr(looking, "PATIENCE", 5.0)
    monkeypatch.setattr(reading, "SILENCE", 5.0)
    worlds = Worlds(tmp_path, endpoint, spark, brokers.nodes[0], topic)
    brokers.make(topic, [3, 1, 2], [1, 2, 3])
    world, count = worlds.open(), 3_000
    world.give("0", "1")
    for n in (0, 1):
        values = (b'{"n": %d, "pad": "%s"}' % (i, b"x" * 2_000) for i in range(count))
        brokers.nodes[0].produce(topic, n, values)
    mark, slow = tmp_path / "reading", make_slowly(tmp_path / "reading")
    cloudpickle.register_pickle_by_value(sys.modules[make_slowly.__module__])
    with monkeypatch.context() as patched:
        patched.setattr(reading, "MAX_RECORDS", 50)
        patched.setattr(reading, "ROOM", 1 << 16)
        patched.setattr(reading, "make_batch", slow)
        struck: list[Any] = []
        strike = partial(brokers.strike, how, 3, topic, 0)
        killer = threading.Thread(target=lambda: (wait_until(mark.exists), struck.append(strike())))
        killer.start()
        in_one = catch_up(world, "0", "1")
        killer.join()
    try:
        assert len(struck) == 1
        assert in_one or how == "freeze"
        wait_until(lambda: catch_up(world, "0", "1"))
        assert not world.tree.parked()
        assert count_damage(world, {f"p:{n}": list(range(count)) for n in (0, 1)}) == UNHURT
    finally:
        (brokers.nodes[2].start if how == "kill" else brokers.nodes[2].thaw)()
    brokers.nodes[0].produce(topic, 0, number(5, count))
    wait_until(lambda: catch_up(world, "0", "1"))
    assert count_damage(world, {"p:0": list(range(count + 5)), "p:1": list(range(count))}) == UNHURT


def test_an_unclean_election_parks_the_partition_that_lost_records_and_no_other(
    tmp_path: Path, endpoint: str, spark: SparkSession, brokers: Brokers, topic: str
) -> None:
    """The new leader has the first 10 of the table's 30 records, and assigns the offsets of the others to 40 new records."""
    worlds = Worlds(tmp_path, endpoint, spark, brokers.nodes[0], topic)
    brokers.make(topic, [2, 3], [1, 3])
    world, (first, second, third) = worlds.open(), brokers.nodes
    world.give("0", "1")
    for n in (0, 1):
        first.produce(topic, n, number(10))
    brokers.wait_in_sync(topic, 0, 2, 3)
    brokers.end(3, topic, 0)
    brokers.wait_in_sync(topic, 0, 2)
    first.produce(topic, 0, number(20, 10))
    assert {p: e.end for p, e in commit(world, "0", "1").items()} == {"p:0": 30, "p:1": 10}
    brokers.end(2, topic, 0)
    third.start()
    brokers.elect_uncleanly(topic, 0, 3)
    for n in (0, 1):
        first.produce(topic, n, number(40, 1000))
    events = {e.partition: e for e in world.run("0", "1")}
    parked, committed = events["p:0"], events["p:1"]
    assert isinstance(parked, ParkedPartition), parked
    assert parked.retry_at is None
    assert f"is at 30, and {topic}[0] lost the records from 10 on and gave their offsets to others" in parked.reason
    assert isinstance(committed, CommittedBatch)
    with pytest.raises(ConfigError, match="lost the records from 10 on"):
        skip(world.tree, world.ports, "p:0")
    second.start()
    brokers.wait_in_sync(topic, 0, 2, 3)
    with pytest.raises(ConfigError, match="lost the records from 10 on"):  # the former leader cut its log, too
        skip(world.tree, world.ports, "p:0")
    assert count_damage(world, {"p:0": list(range(30)), "p:1": [*range(10), *range(1000, 1040)]}) == UNHURT
