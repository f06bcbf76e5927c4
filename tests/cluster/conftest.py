"""One standalone cluster for all of these tests, and one Spark on it whose executors see nothing of the checkout."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from rota.local.cluster import SMALL, SparkCluster
from tests.cluster.executors_python import FRESH, ExecutorsPython
from tests.dataplane.world import BRIEF, World
from tests.waiting import wait_until


@dataclass(frozen=True)
class Place:
    """A cluster, an application on it that has two executors, and the Python that they use."""

    cluster: SparkCluster
    server: SparkServer
    python: ExecutorsPython


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=1) as one:
        yield one


@pytest.fixture(scope="module")
def place(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    python = ExecutorsPython(tmp_path_factory.mktemp("python"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(python.path))
        server = SparkServer(
            "cluster",
            SparkSettings(cluster.url, {**SMALL, **BRIEF, "spark.cores.max": "2", **FRESH}),
            tmp_path_factory.mktemp("spark"),
        )
        server.start()
    try:
        wait_until(lambda: server.ready() and not server.explain_unable())
        yield Place(cluster, server, python)
    finally:
        server.stop()


@pytest.fixture
def world(tmp_path: Path, place: Place) -> World:
    place.python.become("like ours")
    return World(tmp_path, place.server.url)
