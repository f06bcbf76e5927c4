"""A partition loses records that the table has, and assigns their offsets to others."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.coordination.parking import unpark
from rota.dataplane.kafka.topic import Topic
from rota.dataplane.ports import ASSIGN
from rota.errors import ConfigError, EnvironmentFailed
from rota.people.skip import skip
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane.conftest import log
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.topics import Worlds, number
from tests.dataplane.world import World
from tests.waiting import wait_until


def lose(broker: Broker, topic: str, partition: int) -> None:
    """Lose the records that were never flushed, as after a power cut, and restart the broker."""
    broker.kill()
    data = broker.folder / "data"
    (data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    for file in (data / f"{topic}-{partition}").glob("*index"):
        file.unlink()
    next((data / f"{topic}-{partition}").glob("*.log")).write_bytes(b"")
    broker.start()


def count_differing(world: World, broker: Broker, topic: str, partition: int) -> int:
    """Return at how many offsets table and topic have different records."""
    rows = {r["_offset"]: r["n"] for r in log(world.table / "main").rows() if r["_partition"] == f"p:{partition}"}
    truth = dict(broker.read_all(topic, partition))
    return sum(truth[at] != (b'{"n": %d}' % rows[at] if at in rows else b"") for at in truth)


def test_a_partition_that_was_cut_and_filled_again_is_parked_and_one_that_was_not_goes_on(
    tmp_path: Path, endpoint: str, spark: SparkSession, mortal: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a new leader epoch. One lost its records, and now has more than before."""
    worlds = Worlds(tmp_path, endpoint, spark, mortal, "orders")
    world = worlds.make(2)
    world.give("0", "1")
    for n in (0, 1):
        mortal.produce("orders", n, number(100))
    world.until_idle("0", "1")
    reading = world.ports.source
    assert reading.observe(("p:0", "p:1"), ASSIGN).ends == {"p:0": 100, "p:1": 100}
    lose(mortal, "orders", 0)
    for n in (0, 1):
        mortal.produce("orders", n, number(300, 1000))
    broken = reading.find_broken({"p:0": (50, 100), "p:1": (50, 100)})
    assert broken.keys() == {"p:0"}, "a batch that was read meanwhile is not committed"
    assert isinstance(broken["p:0"], EnvironmentFailed)
    events = {e.partition: e for e in world.run("0", "1")}
    parked, committed = events["p:0"], events["p:1"]
    assert isinstance(parked, ParkedPartition)
    assert parked.retry_at is None
    assert "is at 100, and orders[0] lost the records from 0 on and gave their offsets to others" in parked.reason
    assert "Give the pipeline another name and table" in parked.reason
    assert isinstance(committed, CommittedBatch)
    assert (committed.start, committed.end) == (100, 400)
    with pytest.raises(ConfigError, match="lost the records from 0 on"):
        skip(world.tree, world.ports, "p:0")
    assert count_differing(world, mortal, "orders", 1) == 0

    # a topic that is missing for a while parks nothing
    mortal.produce("orders", 1, number(10))
    with monkeypatch.context() as patched:
        patched.setattr(Topic, "read_metadata", lambda _: None)
        (event,) = world.run("1")
        assert isinstance(event, ParkedPartition)
        assert event.retry_at is not None
    wait_until(lambda: [e for e in world.run("1") if isinstance(e, CommittedBatch)])

    # the ablation
    monkeypatch.setattr(Topic, "find_cut", lambda *_: {})
    unpark(world.tree, "p:0")
    world.until_idle("0")
    assert count_differing(world, mortal, "orders", 0) == 100, "100 records are in no table, and none reports it"


def test_a_skip_takes_back_the_leader_epoch(worlds: Worlds) -> None:
    """The skipped records may be of a later epoch than the stored one."""
    world, broker, topic = worlds.make(), worlds.broker, worlds.topic
    world.give("0")
    broker.produce(topic, 0, number(3))
    world.until_idle("0")
    assert world.ports.main.read_positions(("p:0",))["p:0"].leader_epoch == 0
    broker.produce(topic, 0, number(3))
    assert skip(world.tree, world.ports, "p:0", to=5) == (3, 5)
    assert world.ports.main.read_positions(("p:0",))["p:0"].leader_epoch == -1
    world.until_idle("0")
    assert world.ports.main.read_positions(("p:0",))["p:0"].leader_epoch == 0
