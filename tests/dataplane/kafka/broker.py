"""A Kafka broker for the tests, with its data in a folder of the test; and other producers."""

import signal
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, OffsetSpec

from rota.local.kafka_broker import SETTINGS, KafkaBroker
from tests.waiting import LONG, wait_until


class Broker(KafkaBroker):
    """A broker that deletes expired data at once."""

    settings = SETTINGS | {
        "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "300",
        "log.cleaner.backoff.ms": "200",
        "log.segment.delete.delay.ms": "0",
    }

    def freeze(self) -> None:
        """Freeze it: it answers and closes nothing. On a busy machine its threads run for a while after the signal."""
        self.process.signal_group(signal.SIGSTOP)
        threads = Path(f"/proc/{self.process.process.pid}/task")
        wait_until(lambda: all(one.read_text().rpartition(")")[2].split()[0] == "T" for one in threads.glob("*/stat")))

    def thaw(self) -> None:
        """Continue after `freeze`."""
        self.process.signal_group(signal.SIGCONT)

    # --- clients that share no code with rota

    def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions to this."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(LONG)
        wait_until(lambda: len(self.admin.list_topics(topic, 5).topics[topic].partitions) == partitions)

    def remove(self, topic: str) -> None:
        """Delete the topic."""
        self.admin.delete_topics([topic])[topic].result(LONG)
        wait_until(lambda: topic not in self.admin.list_topics(timeout=5).topics)

    def drop(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before this offset, as the retention does."""
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
        stamps: Sequence[float] = (),
    ) -> None:
        """Produce records, each confirmed; `stamps` are their times in seconds."""
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
                timestamp=round(stamps[n] * 1000) if stamps else 0,
            )
            producer.poll(0)
        assert producer.flush(LONG) == 0
        assert not failed, failed

    def open_producer(self) -> Producer:
        """A producer that reports nothing."""
        return Producer({"bootstrap.servers": self.servers, "log_level": 0})

    @contextmanager
    def undecided(self, topic: str, partition: int, values: Iterable[bytes]) -> Iterator[None]:
        """Produce records in a transaction that is open in the context, and then committed."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(LONG)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, None, partition)
        producer.flush(LONG)
        yield
        producer.commit_transaction(LONG)

    def transact(self, topic: str, partition: int, values: Iterable[bytes], commit: bool) -> None:
        """Produce records in one transaction. Commit it, or abort it once all of them are in the log."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(LONG)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, None, partition)
        producer.flush(LONG)
        (producer.commit_transaction if commit else producer.abort_transaction)(LONG)

    def read_end(self, topic: str, partition: int) -> int:
        """Return the last stable offset."""
        place = TopicPartition(topic, partition)
        (found,) = self.admin.list_offsets(
            {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
        ).values()
        return int(found.result(LONG).offset)

    def settle(self, topic: str, partition: int, end: int) -> None:
        """Wait until the markers of the transactions are written."""
        wait_until(lambda: self.read_end(topic, partition) == end)

    def wait_settled(self, topic: str, partition: int) -> None:
        """Wait until no transaction is undecided: the last stable offset is the end."""

        def is_settled() -> bool:
            place = TopicPartition(topic, partition)
            (found,) = self.admin.list_offsets({place: OffsetSpec.latest()}).values()
            return int(found.result(LONG).offset) == self.read_end(topic, partition)

        wait_until(is_settled)

    def read_all(self, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
        """Return offset and value of the records that a plain consumer reads."""
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
        """Wait until so few records are left. The active segment is not cleaned: another record ends it."""

        def is_compacted() -> bool:
            self.produce(topic, partition, [b'{"n": -1}'], key=lambda _: b"other")
            return len(self.read_all(topic, partition)) <= most

        wait_until(is_compacted)
