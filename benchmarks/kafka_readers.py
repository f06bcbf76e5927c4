"""Measures how fast Spark reads records of a topic: by rota's reader, and by Spark's connector; see `benchmarks.kafka
--readers`.

Both pass value, partition and offset of the same offsets to a sink that drops them, in one session of `local[2]`, in turn,
after a round that is not counted. The connector is 4.2.0, the newest on Maven Central, on the installed Spark. Each row has
the load of the machine; compare the ratios within one run.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import cast

from confluent_kafka import Producer
from pyspark.sql import DataFrame

from benchmarks.kafka_peers import open_spark
from rota.dataplane.spark.spark_source import SparkSource
from rota.kafka import kafka
from rota.local.kafka_broker import KafkaBroker
from rota.pipeline import Pipeline, delta
from rota.registry import open_ports

PARTITIONS, ROUNDS, TOPIC = 16, 5, "flood"


def fill(broker: KafkaBroker, topic: str, records: int) -> None:
    """A topic of so many records of 90 bytes."""
    broker.make(topic, PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": broker.servers, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    )
    for n in range(PARTITIONS):
        for i in range(records // PARTITIONS):
            producer.produce(topic, b'{"n": %d, "pad": "%070d"}' % (i, i), partition=n)
            if not i % 10_000:
                producer.flush()
    producer.flush()


def measure(folder: Path, broker: KafkaBroker, records: int) -> None:
    """Both readers in turn; prints a line for each, and the ratio."""
    fill(broker, TOPIC, records)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = open_spark()
    each = records // PARTITIONS
    declared = kafka(broker.servers, TOPIC, schema="value binary", format="bytes")
    source = cast(
        SparkSource, open_ports(Pipeline(declared, delta(str(folder / "table")), name="p"), "g", "0" * 32).source
    )
    ends = {str(n): each for n in range(PARTITIONS)}

    def read_by_rota(consume: Callable[[DataFrame], None]) -> None:
        with source.read(spark, {f"p:{n}": (0, each) for n in range(PARTITIONS)}, "attempt") as found:
            consume(found.frame)

    def read_by_connector(consume: Callable[[DataFrame], None]) -> None:
        options = {
            "kafka.bootstrap.servers": broker.servers,
            "assign": json.dumps({TOPIC: list(range(PARTITIONS))}),
            "startingOffsets": json.dumps({TOPIC: dict.fromkeys(ends, 0)}),
            "endingOffsets": json.dumps({TOPIC: ends}),
            "kafka.isolation.level": "read_committed",
        }
        consume(spark.read.format("kafka").options(**options).load().select("value", "partition", "offset"))

    readers = {"rota": read_by_rota, "Spark's connector": read_by_connector}
    took: dict[str, list[float]] = {name: [] for name in readers}
    for name, reader in readers.items():
        counts: list[int] = []
        reader(lambda frame: counts.append(frame.count()))  # noqa: B023
        assert counts == [records], (name, counts)
    for _ in range(ROUNDS):
        for name, reader in readers.items():
            began = time.monotonic()
            reader(lambda frame: frame.write.format("noop").mode("overwrite").save())
            took[name].append(time.monotonic() - began)
    for name, seconds in took.items():
        sys.stdout.write(
            f"{name:18} {records / median(seconds):>12,.0f} records/s (median of {ROUNDS}: {median(seconds):.2f} s, least "
            f"{min(seconds):.2f} s), load {os.getloadavg()[0]:.1f}\n"
        )
    ratio = median(took["Spark's connector"]) / median(took["rota"])
    sys.stdout.write(f"rota is {ratio:.1f} times as fast, by the medians\n")
    spark.stop()
