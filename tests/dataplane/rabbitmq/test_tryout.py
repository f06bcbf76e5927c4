"""`rota try` on RabbitMQ: a stream is read and keeps its messages; queues are refused, because reading removes messages."""

from pathlib import Path

from pyspark.sql import SparkSession

from rota.rabbitmq import Publisher
from tests.dataplane.rabbitmq.broker import Broker
from tests.dataplane.tried import try_file
from tests.dataplane.world import World

TEXT = """
from rota.rabbitmq import {kind}
pipeline = Pipeline(source={kind}({url!r}, prefix={prefix!r}, count=2, schema="n int"), table=delta({{table!r}}))
"""


def test_streams_are_tried_and_queues_are_not(
    tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, prefix: str
) -> None:
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in (f"{prefix}0", f"{prefix}1"):
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
            for n in range(20):
                channel.basic_publish("", queue, b'{"n": %d}' % n)
    world = World(tmp_path, endpoint, TEXT.format(kind="streams", url=broker.url, prefix=prefix), spark=spark)
    file = world.folder / "pipelines" / "p.py"
    for _ in range(2):
        tried = try_file(file, endpoint, "--records", "4")
        assert tried.code == 0
        assert [row["n"] for row in tried.seen["rows"]] == [0, 1, 2, 3] * 2
    with Publisher(broker.url, f"{prefix}q", 2) as publisher:
        publisher.publish([("key", b'{"n": 1}')])
    world.write(TEXT.format(kind="queues", url=broker.url, prefix=f"{prefix}q"))
    refused = try_file(file, endpoint)
    assert refused.code == 2
    assert refused.error.startswith("RabbitQueues cannot be tried: a message that is read is taken from its queue")
