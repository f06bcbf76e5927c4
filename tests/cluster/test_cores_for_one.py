"""Two workers, and a cluster that has cores for one of them."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.coordination.alone import found_own_records
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.local.cluster import SMALL, SparkCluster
from tests.conformance.processes import Start, Worker
from tests.waiting import wait_until

KEYS = ("a", "b", "c", "d")
ROOM = "3"  # seconds
IMPATIENT = (str(Path(__file__).with_name("impatient_worker.py")),)


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture
def tree(zookeeper: EmbeddedZooKeeper) -> Iterator[GroupState]:
    """A group whose workers decide alone, with four partitions."""
    with connect(zookeeper.hosts, 60) as store:
        tree = GroupState(store, "g")
        tree.found(protocol="claim")
        tree.grow("p", KEYS)
        found_own_records(tree, tree.ids())
        yield tree


@pytest.fixture
def start(zookeeper: EmbeddedZooKeeper, cluster: SparkCluster, tmp_path: Path) -> Iterator[Start]:
    """Starts a worker of this name on the cluster, which may have so many cores of it."""
    wait_until(lambda: not cluster.find_executors())
    started: list[Worker] = []

    def start(name: str, cores: int) -> Worker:
        conf = {**SMALL, "spark.cores.max": str(cores)}
        words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        words = ["--id", name, "--master", cluster.url, *words, ROOM]
        worker = Worker(tmp_path / name, zookeeper.hosts, "g", *words, program=IMPATIENT)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.kill()


def find_unable(tree: GroupState) -> list[str]:
    return [live.worker for live in tree.live() if live.record and live.record.unable]


def test_a_worker_for_which_the_cluster_has_no_core_owns_nothing_until_it_has_one(
    tree: GroupState, start: Start
) -> None:
    def owners() -> set[str]:
        return {str(own.incarnation).partition("@")[0] for own in tree.owned().values()}

    first = start("w1", 2)
    wait_until(lambda: owners() == {"w1"} and len(tree.owned()) == len(KEYS))
    second = start("w2", 1)
    second.hears("event=spark-unable")
    second.hears("event=joined")
    assert wait_until(lambda: find_unable(tree)) == ["w2"]
    assert owners() == {"w1"}
    first.signal(signal.SIGTERM)
    second.hears("event=spark-able")
    wait_until(lambda: owners() == {"w2"})
    assert not find_unable(tree)
    second.hears("event=claimed")
    words = [line.split("event=")[1].split()[0] for line in second.said("event=")]
    assert words.index("spark-able") < words.index("claimed"), "it took no partition on which it could not work"
