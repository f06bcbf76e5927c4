"""A Kafka of the tests' own: a broker that is its own controller, on loopback, with its data in a folder of the test."""

import os
import signal
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from rota.java import find_java
from rota.local.child import Child
from rota.machine import free_port
from tests.waiting import LONG, wait_until

JARS = Path(sys.prefix, "share", "rota", "kafka")
SMALL = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "0",
}


@dataclass
class Broker:
    """A running broker; nobody else knows its ports. `more` are settings of its own, and `formatted` words for the storage
    tool, such as who may log in. `secured` is a second listener's protocol, at `secured_servers`."""

    folder: Path
    more: dict[str, str] = field(default_factory=dict)
    formatted: Sequence[str] = ()
    secured: str = ""

    def __post_init__(self) -> None:
        assert any(JARS.glob("kafka_2.13-*.jar")), "Kafka is not installed. Type: make tools"
        port, controller, other = free_port(), free_port(), free_port()
        self.servers, self.secured_servers = f"127.0.0.1:{port}", f"localhost:{other}"
        plain, second = (
            f"PLAINTEXT://{self.servers}",
            f",{self.secured}://{self.secured_servers}" if self.secured else "",
        )
        settings = {
            **SETTINGS,
            "log.dirs": str(self.folder / "data"),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{plain},CONTROLLER://127.0.0.1:{controller}{second}",
            "advertised.listeners": f"{plain}{second}",
            **self.more,
        }
        self.file = self.folder / "server.properties"
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        said = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.file), *self.formatted],
            capture_output=True, text=True, timeout=LONG, check=False,
        )  # fmt: skip
        assert said.returncode == 0, said.stdout + said.stderr
        self.start()

    def _java(self) -> list[str]:
        return [str(find_java()), *SMALL, "-cp", f"{JARS}/*"]

    def start(self) -> None:
        """Starts it, with what it had before if it was killed, and waits until it answers. It ends with this process."""
        command = [*self._java(), "kafka.Kafka", str(self.file)]
        self.process = Child("kafka", command, self.folder / "log", os.environ, signal.SIGTERM)
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        wait_until(self.answers)

    def answers(self) -> bool:
        """Whether the broker tells its topics."""
        assert self.process.running, self.process.read_log_end(20)
        try:
            return bool(self.admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        """kill -9."""
        self.process.signal_group(signal.SIGKILL)
        self.process.process.wait(LONG)

    def freeze(self) -> None:
        """It answers nothing, and closes nothing."""
        self.process.signal_group(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        self.process.signal_group(signal.SIGCONT)

    def stop(self) -> None:
        """Ends it."""
        self.process.end(5)

    # --- what a stranger does: no code of rota is in it

    def make(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """A topic with this many partitions."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(LONG)
        wait_until(lambda: len(self.admin.list_topics(topic, 5).topics[topic].partitions) == partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """So many partitions from now on."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(LONG)
        wait_until(lambda: len(self.admin.list_topics(topic, 5).topics[topic].partitions) == partitions)

    def remove(self, topic: str) -> None:
        """The topic is gone."""
        self.admin.delete_topics([topic])[topic].result(LONG)
        wait_until(lambda: topic not in self.admin.list_topics(timeout=5).topics)

    def drop(self, topic: str, partition: int, before: int) -> None:
        """The records before this offset are gone, as after their retention."""
        place = TopicPartition(topic, partition, before)
        (done,) = self.admin.delete_records([place]).values()
        done.result(LONG)

    def produce(
        self,
        topic: str,
        partition: int,
        values: Iterable[bytes | None],
        key: Callable[[int], bytes | None] = lambda _: None,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Records, each confirmed."""
        producer = Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000}
        )
        failed: list[object] = []
        self.produced = time.time() * 1000
        for n, value in enumerate(values):
            producer.produce(
                topic,
                value,
                key(n),
                partition,
                on_delivery=lambda error, _: error and failed.append(error),
                headers=headers,
            )
            producer.poll(0)
        assert producer.flush(LONG) == 0
        assert not failed, failed

    @contextmanager
    def undecided(self, topic: str, partition: int, values: Iterable[bytes]) -> Iterator[None]:
        """Records in a transaction that is open meanwhile, and is committed then."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(LONG)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, None, partition)
        producer.flush(LONG)
        yield
        producer.commit_transaction(LONG)

    def transact(self, topic: str, partition: int, values: Iterable[bytes], commit: bool) -> None:
        """Records in a transaction of their own, which is committed, or aborted once all of them are in the log."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(LONG)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, None, partition)
        producer.flush(LONG)
        (producer.commit_transaction if commit else producer.abort_transaction)(LONG)

    def read_end(self, topic: str, partition: int) -> int:
        """The last stable offset."""
        place = TopicPartition(topic, partition)
        (told,) = self.admin.list_offsets(
            {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
        ).values()
        return int(told.result(LONG).offset)

    def settle(self, topic: str, partition: int, end: int) -> None:
        """Waits until the markers of the transactions are written."""
        wait_until(lambda: self.read_end(topic, partition) == end)

    def wait_settled(self, topic: str, partition: int) -> None:
        """Waits until no transaction is undecided: the last stable offset is the end."""

        def is_settled() -> bool:
            place = TopicPartition(topic, partition)
            (told,) = self.admin.list_offsets({place: OffsetSpec.latest()}).values()
            return int(told.result(LONG).offset) == self.read_end(topic, partition)

        wait_until(is_settled)

    def read_all(self, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
        """Offset and value of what a plain consumer finds."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[tuple[int, bytes | None]] = []
        try:
            while (one := consumer.poll(LONG)) is not None and one.error() is None:
                found.append((one.offset() or 0, one.value()))
        finally:
            consumer.close()
        return found

    def wait_compacted(self, topic: str, partition: int, most: int) -> None:
        """Waits until so few records are left. A segment that is written to is left as it is: another record ends it."""

        def is_compacted() -> bool:
            self.produce(topic, partition, [b'{"n": -1}'], key=lambda _: b"other")
            return len(self.read_all(topic, partition)) <= most

        wait_until(is_compacted)
