"""`rota try` on a topic: the first records of each partition, and one for which the transform fails."""

from confluent_kafka import ConsumerGroupTopicPartitions

from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.topics import Worlds, number
from tests.dataplane.tried import try_file


def test_the_first_records_of_a_topic_are_tried_and_none_is_consumed(
    worlds: Worlds, broker: Broker, topic: str
) -> None:
    world = worlds.make(2, more=", start='latest'")
    broker.produce(topic, 0, number(50))
    broker.produce(topic, 1, [*number(3), b"no json", *number(46, 4)])
    file = world.folder / "pipelines" / "p.py"
    tried = try_file(file, str(world.endpoint), "--records", "5")
    assert tried.code == 0
    assert [(one["rows"], one["bad"]) for one in tried.seen["partitions"]] == [(5, 0), (4, 1)]
    assert [row["n"] for row in tried.seen["rows"]] == [0, 1, 2, 3, 4, 0, 1, 2, 4]
    assert [one["raw"] for one in tried.seen["bad_records"]] == ["no json"]
    world.write(world.text.replace("transform=None", "transform=lambda f: f.withColumn('m', F.expr('1 / (n - 4)'))"))
    tried = try_file(file, str(world.endpoint), "--records", "10", "--key", "0")
    assert (tried.code, tried.seen["partitions"][0]["rows"]) == (1, 4)
    assert "DIVIDE_BY_ZERO" in tried.errors[0]
    assert "in offset 4" in tried.errors[0]
    group = ConsumerGroupTopicPartitions("rota-p")
    offsets = broker.admin.list_consumer_group_offsets([group])["rota-p"].result(30).topic_partitions
    assert not [one for one in offsets or () if one.topic == topic]
    assert not world.table.exists()
