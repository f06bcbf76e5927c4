"""kill -9 at each step of the protocol, in a real process on a real ZooKeeper; then a clean run: nothing lost or doubled."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.store import Store
from rota.dataplane.delta.tables import open_table
from rota.run.consume import CommittedBatch, IdlePartition
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.counted_bad import make_counter
from tests.dataplane.dying_run import STEPS
from tests.dataplane.world import World
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


class Sessions:
    """Opens a store of a real server for each call, and closes them all at the end."""

    def __init__(self, hosts: str) -> None:
        self.hosts, self.stores = hosts, list[Store]()

    def connect(self) -> Store:
        self.stores.append(connect(self.hosts, 60.0))
        return self.stores[-1]

    def close(self) -> None:
        for store in self.stores:
            store.close()


@dataclass(frozen=True)
class Death:
    """A world in which a run killed itself, the exit code of the process, and its events."""

    world: World
    end: int
    said: str


@pytest.fixture(scope="module")
def deaths(
    tmp_path_factory: pytest.TempPathFactory, endpoint: str, spark: SparkSession, zookeeper: EmbeddedZooKeeper
) -> Iterator[Mapping[str, Death]]:
    """One run per step, each in its own group and folder; all die at the same time."""
    sessions, worlds, runs = Sessions(zookeeper.hosts), dict[str, World](), []
    for number, step in enumerate(STEPS):
        folder, group = tmp_path_factory.mktemp("dying"), f"g{number}"
        world = World(folder, endpoint, server=sessions, group=group, spark=spark)  # type: ignore[arg-type]
        world.give("a", "b")
        world.rows("a", "0", 20)
        world.land("b", "0", [*(f'{{"n": {i}}}' for i in range(20)), "bad"])
        worlds[step] = world
        out, pipelines = str(folder / "said"), str(folder / "pipelines")
        runs.append((out, zookeeper.hosts, group, pipelines, world.incarnation, step, "a", "b"))
    died = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("dying_run.py"))], input=json.dumps(runs),
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=folder, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    ends = zip(worlds.items(), json.loads(died.stdout), strict=True)
    yield {step: Death(world, end, (world.folder / "said").read_text()) for (step, world), end in ends}
    sessions.close()


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_dies_loses_and_doubles_nothing(deaths: Mapping[str, Death], step: str) -> None:
    world, said = deaths[step].world, deaths[step].said
    assert deaths[step].end == -9, said
    # the dead run's node lasts as long as its session, and keeps its partitions until then
    wait_until(lambda: not world.tree.runs())
    world.rows("a", "1", 5)
    events = world.until_idle("a", "b")
    assert all(isinstance(e, CommittedBatch | IdlePartition) for e in events), events
    assert damage(world.table / "main", {"p:a": {0: 20, 1: 5}, "p:b": {0: 20}}) == NO_DAMAGE
    counts = make_counter(open_table(world.table / "main", world.group, "").read_log())
    aside = log(world.table / "quarantine").rows()
    assert sum(counts(r["_partition"], r["_offset"], r["_attempt"]) for r in aside) == 1
    offsets = {p: c.record.offset for p, c in world.checkpoints.items()}
    assert offsets == {"p:a": 2, "p:b": 1}
    healed = [e for e in events if isinstance(e, CommittedBatch) and e.healed]
    assert bool(healed) == (step in ("committed", "reported")), events
    reported = {
        (e.partition, offset) for e in events if isinstance(e, CommittedBatch) for offset in range(e.start, e.end)
    }
    reported |= {(line.split()[1], 0) for line in said.splitlines() if line.startswith("CommittedBatch ")}
    assert reported == {("p:a", 0), ("p:b", 0), ("p:a", 1)}, "what is in the table was reported, by one or the other"
