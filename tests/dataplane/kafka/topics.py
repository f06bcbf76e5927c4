"""Worlds over topics of a broker, and what is in their tables."""

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rota.errors import EnvironmentFailed
from rota.run.consume import CommittedBatch
from tests.dataplane.conftest import log
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.world import World

TEXT = """
from pyspark.sql import functions as F
from rota.kafka import kafka
pipeline = Pipeline(
    source=kafka({servers!r}, {topic!r}, schema={schema!r}{more}),
    table=delta({{table!r}}), group="g", max_bad_ratio=1, transform={transform},
)
"""


def declare(broker: Broker, topic: str, schema: str = "n int", more: str = "", transform: str = "") -> str:
    """The rest of a pipeline file, as `World` takes it. `transform`: what follows the frame; empty for no transform."""
    function = f"lambda frame: frame{transform}" if transform else None
    return TEXT.format(servers=broker.servers, topic=topic, schema=schema, more=more, transform=function)


class Worlds:
    """Makes the topic and a world over it."""

    def __init__(self, folder: Path, endpoint: str, spark: SparkSession, broker: Broker, topic: str) -> None:
        self.folder, self.endpoint, self.spark, self.broker, self.topic = folder, endpoint, spark, broker, topic

    def make(self, partitions: int = 1, **more: str) -> World:
        """A world over a topic of so many partitions."""
        self.broker.make(self.topic, partitions)
        return self.open(**more)

    def open(self, **more: str) -> World:
        """A world over the topic that is there."""
        return World(self.folder, self.endpoint, declare(self.broker, self.topic, **more), spark=self.spark)


def commit(world: World, *keys: str) -> dict[str, CommittedBatch]:
    """A batch of each of these."""
    events = world.run(*keys)
    assert all(isinstance(e, CommittedBatch) for e in events), events
    return {e.partition: e for e in events if isinstance(e, CommittedBatch)}


def commit_some(world: World, *keys: str) -> dict[str, CommittedBatch]:
    """A batch of those of these that have something."""
    return {e.partition: e for e in world.run(*keys) if isinstance(e, CommittedBatch)}


def catch_up(world: World, *keys: str) -> bool:
    """Whether runs consume all that is new. A broker that comes back may refuse the first ones: Dagster launches others."""
    try:
        world.until_idle(*keys)
    except EnvironmentFailed:
        return False
    return True


def read(world: World, *columns: str, table: str = "main") -> list[Any]:
    """These columns of all rows, in some order."""
    rows = log(world.table / table).rows()
    return sorted((tuple(r[c] for c in columns) for r in rows), key=repr)


def number(count: int, first: int = 0) -> list[bytes]:
    """Records of numbers."""
    return [b'{"n": %d}' % n for n in range(first, first + count)]


def count_damage(world: World, expected: dict[str, list[int]]) -> dict[str, int]:
    """What the table has against what was produced and committed, in its order: all 0 if nothing is wrong."""
    rows = sorted(log(world.table / "main").rows(), key=lambda r: (r["_partition"], r["_offset"]))
    found: dict[str, list[object]] = {p: [r["n"] for r in rows if r["_partition"] == p] for p in expected}
    wanted, have = (Counter((p, n) for p, of in one.items() for n in of) for one in (expected, found))
    return {
        "lost": sum((wanted - have).values()),
        "beyond": sum((have - wanted).values()),
        "disordered": sum(
            sorted(of, key=str) == sorted(expected[p], key=str) and of != expected[p] for p, of in found.items()
        ),
        "elsewhere": sum(r["_partition"] not in expected for r in rows),
    }


UNHURT = {"lost": 0, "beyond": 0, "disordered": 0, "elsewhere": 0}
