"""How fast records of a topic come into Spark: rota's reader beside Spark's own connector, in one run on one broker.

    python -m benchmarks.kafka --records 1000000

Both give value, partition and offset of the same offsets to a sink that drops them, in one session of `local[2]`, in
turn, after a round that is not counted. The connector is 4.2.0, the newest on Maven Central, on the Spark that is installed.
Beside each stands the load of the machine: what counts is the ratio of one run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import cast

import pyspark
from pyspark.sql import DataFrame, SparkSession

from rota.dataplane.spark.spark_source import SparkSource
from rota.java import find_java
from rota.kafka import kafka
from rota.pipeline import Pipeline, delta
from rota.registry import open_ports
from tests.dataplane.kafka.broker import Broker

CONNECTOR = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0")
JARS = Path(sys.prefix, "share", "rota", "spark-kafka")
PARTITIONS, ROUNDS, TOPIC = 16, 5, "flood"


def get_connector() -> list[Path]:
    """The connector's jars, by the Ivy of PySpark."""
    if not JARS.exists():
        (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
        command = [str(find_java()), "-jar", str(ivy), "-error", "-m2compatible", "-dependency", *CONNECTOR]
        command += ["-confs", "default", "-types", "jar", "bundle", "-cache", str(JARS.with_name("ivy"))]
        command += ["-retrieve", f"{JARS}/[artifact]-[revision].[ext]"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wanted = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    return [jar for jar in JARS.glob("*.jar") if jar.name.startswith(wanted)]


def main() -> None:
    """Prints a line for each reader, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records // PARTITIONS * PARTITIONS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker = Broker(folder)
        try:
            broker.make(TOPIC, PARTITIONS)
            for n in range(PARTITIONS):
                broker.produce(TOPIC, n, (b'{"n": %d, "pad": "%070d"}' % (i, i) for i in range(records // PARTITIONS)))
            measure(folder, broker, records)
        finally:
            broker.stop()


def measure(folder: Path, broker: Broker, records: int) -> None:
    """Both readers in turn."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", ",".join(map(str, get_connector())))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
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


if __name__ == "__main__":
    main()
