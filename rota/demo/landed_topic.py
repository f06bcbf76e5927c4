"""Reads a topic by a plain Kafka consumer, for the verifier, without rota's own reader."""

import io
import uuid
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pcsv

SILENT = 60.0  # seconds after which a silent broker fails the verifier


@dataclass(frozen=True, slots=True)
class LandedTopic:
    """A topic whose records are lines of CSV, below this header."""

    servers: str
    topic: str
    header: bytes

    def read(self, pipeline: str, options: pcsv.ConvertOptions) -> tuple[pa.Table, Counter[str]]:
        """Return all records with `_partition` and `_offset`, and the number of offsets per partition. Raises OSError."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
        )
        lines, places, counts = [self.header.rstrip()], list[tuple[str, int]](), Counter[str]()
        try:
            left = set(consumer.list_topics(self.topic, SILENT).topics[self.topic].partitions)
            consumer.assign([TopicPartition(self.topic, n, 0) for n in left])
            while left:
                if (one := consumer.poll(SILENT)) is None:
                    raise OSError(f"Kafka at {self.servers} did not answer for {SILENT:g} s")
                partition = f"{pipeline}:{one.partition()}"
                if one.error() is None:
                    lines.append(one.value())
                    places.append((partition, one.offset()))
                    counts[partition] = one.offset() + 1
                elif one.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(one.partition())
                else:
                    raise OSError(one.error().str())
        finally:
            consumer.close()
        rows = pcsv.read_csv(io.BytesIO(b"\n".join(lines)), convert_options=options)
        rows = rows.append_column("_partition", pa.array([p for p, _ in places], pa.string()))
        return rows.append_column("_offset", pa.array([o for _, o in places], pa.int64())), counts
