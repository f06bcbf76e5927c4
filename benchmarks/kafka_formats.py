"""How fast a topic of Avro is read and decoded beside one of JSON: `python -m benchmarks.kafka_formats`.

Both topics hold the same records. Spark reads each to a sink that drops them, in one session of `local[2]`, in turn, after a
round that is not counted. A stand-in answers for the registry: a job asks it once.
"""

import io
import json
import os
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any, cast

import fastavro
from confluent_kafka import Producer

from benchmarks.kafka_peers import open_spark
from rota.dataplane.spark.spark_source import SparkSource
from rota.kafka import kafka
from rota.local.kafka_broker import KafkaBroker
from rota.pipeline import Pipeline, delta
from rota.registry import open_ports

PARTITIONS, ROUNDS, RECORDS = 4, 5, 200_000
DDL = "id bigint, shop string, amount double, note string"
TYPES = {"id": "long", "shop": "string", "amount": "double", "note": ["null", "string"]}
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": name, "type": of} for name, of in TYPES.items()]}


class StandIn(BaseHTTPRequestHandler):
    """Knows one schema, by the id 1."""

    def do_GET(self) -> None:
        """Answer."""
        body = json.dumps({"id": 1, "version": 1, "schema": json.dumps(SCHEMA)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def fill(broker: KafkaBroker) -> None:
    """The same records in the topics `json` and `avro`."""
    producer, parsed = Producer({"bootstrap.servers": broker.servers, "linger.ms": 5}), fastavro.parse_schema(SCHEMA)
    for topic in ("json", "avro"):
        broker.make(topic, PARTITIONS)
    for n in range(RECORDS):
        one = {"id": n, "shop": f"shop {n % 50}", "amount": n / 4, "note": None if n % 3 else f"note {n}"}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, one)
        for topic, value in (("json", json.dumps(one).encode()), ("avro", b"\x00\x00\x00\x00\x01" + out.getvalue())):
            producer.produce(topic, value, partition=n % PARTITIONS)
        if not n % 10_000:
            producer.flush()
    producer.flush()


def main() -> None:
    """Print the records a second of each format."""
    server = HTTPServer(("127.0.0.1", 0), StandIn)
    Thread(target=server.serve_forever, daemon=True).start()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as name:
        broker = KafkaBroker(Path(name) / "kafka")
        try:
            fill(broker)
            spark = open_spark()
            took: dict[str, list[float]] = {"json": [], "avro": []}
            for turn in range(ROUNDS + 1):
                for topic, times in took.items():
                    more: Any = (
                        {"format": "avro", "registry": f"http://127.0.0.1:{server.server_port}"}
                        if topic == "avro"
                        else {}
                    )
                    declared = Pipeline(
                        kafka(broker.servers, topic, schema=DDL, **more), delta(f"{name}/table"), name="p"
                    )
                    source = cast(SparkSource, open_ports(declared, "g", "0" * 32).source)
                    began = time.monotonic()
                    with source.read(
                        spark, {f"p:{n}": (0, RECORDS // PARTITIONS) for n in range(PARTITIONS)}, "a"
                    ) as found:
                        found.frame.write.format("noop").mode("overwrite").save()
                    if turn:
                        times.append(time.monotonic() - began)
            for topic, times in took.items():
                print(f"{topic}: {RECORDS / median(times):,.0f} records/s (median of {ROUNDS})")  # noqa: T201
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
