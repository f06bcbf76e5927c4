"""The peers of rota in `benchmarks.kafka`, each in its own process, which prints a line of JSON for each commit.

    python -m benchmarks.kafka_peers loop SERVERS TOPIC FOLDER        a consumer of a group, and a Delta writer
    python -m benchmarks.kafka_peers streaming SERVERS TOPIC FOLDER   Structured Streaming with Spark's connector

A line is `{"at": seconds since 1970, "ends": {partition: offset}}`; the first, with no ends, reports that the process is up.
Both parse a value of JSON. The loop commits its group's offsets after its table, so its successor writes the records between
the two commits again. Structured Streaming writes plain Parquet, because there are no Delta jars for this Spark.
"""

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0")
JARS = Path(sys.prefix, "share", "rota", "spark-kafka")
GROUP, ROOM, EVERY = "loop", 500_000, 0.5  # rows of a commit; seconds between two
SESSION = "6000"  # ms: the least that a broker takes by default


def get_connector() -> list[Path]:
    """The connector's jars, by the Ivy of PySpark."""
    import pyspark

    from rota.java import find_java

    if not JARS.exists():
        (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
        command = [str(find_java()), "-jar", str(ivy), "-error", "-m2compatible", "-dependency", *CONNECTOR]
        command += ["-confs", "default", "-types", "jar", "bundle", "-cache", str(JARS.with_name("ivy"))]
        command += ["-retrieve", f"{JARS}/[artifact]-[revision].[ext]"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wanted = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    return [jar for jar in JARS.glob("*.jar") if jar.name.startswith(wanted)]


def say(ends: dict[int, int]) -> None:
    """Print the commit that was just made."""
    sys.stdout.write(json.dumps({"at": time.time(), "ends": ends}) + "\n")
    sys.stdout.flush()


def make_table(place: str) -> None:
    """Make the loop's table. If two processes made it at once, one of them would fail."""
    import pyarrow as pa
    from deltalake import write_deltalake

    names = {"n": pa.int64(), "pad": pa.string(), "_partition": pa.int64(), "_offset": pa.int64()}
    write_deltalake(place, pa.schema(names).empty_table())


def loop(servers: str, topic: str, folder: str) -> None:
    """Consumes, parses, writes and commits, for ever."""
    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaException
    from deltalake import write_deltalake

    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": SESSION,
            "heartbeat.interval.ms": "1000", "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    say({})
    while True:
        rows: list[dict[str, object]] = []
        ends: dict[int, int] = {}
        until = time.monotonic() + EVERY
        while len(rows) < ROOM and (time.monotonic() < until or not rows):
            for one in consumer.consume(10_000, 0.1):
                if one.error() is None:
                    found = json.loads(one.value())
                    rows.append({**found, "_partition": one.partition(), "_offset": one.offset()})
                    ends[one.partition()] = one.offset() + 1
        write_deltalake(f"{folder}/loop", pa.Table.from_pylist(rows), mode="append")
        say(ends)
        with suppress(KafkaException):  # its group changed meanwhile: what it wrote is written again
            consumer.commit(asynchronous=False)


def open_spark() -> "SparkSession":
    """A Spark of two cores with its own connector of Kafka."""
    from pyspark.sql import SparkSession

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    jars = {"spark.jars": ",".join(map(str, get_connector()))}
    spark = SparkSession.builder.master("local[2]").config(map=quiet | jars).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def streaming(servers: str, topic: str, folder: str) -> None:
    """A query over a checkpoint, for ever."""
    from pyspark.sql import functions as F  # noqa: N812

    spark = open_spark()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    options |= {"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "4000000"}
    read = spark.readStream.format("kafka").options(**options).load()
    record = F.from_json(F.col("value").cast("string"), "n long, pad string")
    rows = read.select(record.alias("r"), "partition", "offset").select("r.*", "partition", "offset")
    out = rows.writeStream.format("parquet").option("path", f"{folder}/stream")
    query = out.option("checkpointLocation", f"{folder}/checkpoint").trigger(processingTime=f"{EVERY} seconds").start()
    say({})
    commits, said = Path(folder, "checkpoint", "commits"), -1
    while query.isActive:
        known = [int(one.name) for one in commits.glob("[0-9]*")] if commits.exists() else []
        if known and max(known) > said:
            said = max(known)
            offsets = Path(folder, "checkpoint", "offsets", str(said)).read_text().splitlines()[-1]
            say({int(n): end for n, end in json.loads(offsets)[topic].items()})
        time.sleep(0.02)


if __name__ == "__main__":
    {"loop": loop, "streaming": streaming}[sys.argv[1]](*sys.argv[2:])
