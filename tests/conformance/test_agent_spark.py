"""A worker's own Spark Connect server, really: advertised, used, killed, started again, ended with its worker."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.tree import Tree
from tests.conformance.processes import Start, Worker
from tests.waiting import wait_until

OWN = ("--master", "local[1]", "--conf", "spark.driver.memory=600m")
QUERY = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).create()
print(spark.range(10).selectExpr("sum(id)").collect()[0][0], spark.conf.get("spark.driver.memory"))
spark.stop()
"""


def endpoint(tree: Tree, worker: str) -> str | None:
    """What a live worker advertises."""
    return next((v.record.endpoint for v in tree.live() if v.worker == worker and v.record), None)


def answer(url: str) -> str:
    """What a thin client, in a process of its own, gets from the server."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", QUERY, url], capture_output=True, timeout=120)
    return done.stdout.decode().strip() or done.stderr.decode()


def spark_of(worker: Worker) -> int:
    """The pid of the server that was started last."""
    pid = re.search(r"pid=(\d+)", worker.said("event=spark-started")[-1])
    assert pid is not None
    return int(pid[1])


def test_a_worker_owns_its_spark(start: Start, zookeeper: EmbeddedZooKeeper, group: str) -> None:
    first, second, hopeless = start("w1", *OWN), start("w2", *OWN), start("w3", "--master", "nonsense")
    with connect(zookeeper.hosts) as store:
        tree = Tree(store, group)
        wait_until(tree.there, 30)
        url = wait_until(lambda: endpoint(tree, "w1"), 90)
        assert first.hears(f"event=spark-ready endpoint={url}"), "it is advertised once it is ready"
        assert answer(url) == "45 600m"

        spark = spark_of(first)
        assert os.getpgid(spark) == first.process.pid, "killing the worker's group kills its Spark"
        os.kill(spark, signal.SIGKILL)
        first.hears("event=spark-died")
        wait_until(lambda: len(first.said("event=spark-ready")) == 2, 90)
        assert endpoint(tree, "w1") == url, "a Spark started again has its former address"
        assert answer(url) == "45 600m"

        scratch = Path(re.search(r"log=(\S+)", first.said("event=spark-started")[-1])[1]).parent  # type: ignore[index]
        assert scratch.is_dir()
        first.signal(signal.SIGTERM)
        assert first.ends() == 0
        assert not psutil.pid_exists(spark_of(first))
        assert not scratch.exists()

        wait_until(lambda: endpoint(tree, "w2"), 90)
        orphan = psutil.Process(spark_of(second))
        second.signal(signal.SIGKILL)  # the agent alone, not its group
        orphan.wait(20)
        left = Path(re.search(r"log=(\S+)", second.said("event=spark-started")[-1])[1]).parent  # type: ignore[index]
        assert left.is_dir()
        start("w2", *OWN).hears("event=spark-started")
        assert not left.exists(), "a successor clears up"

        assert hopeless.ends(90) == 2
        assert len(hopeless.said("event=spark-died")) == 3
        assert "Check --master and --conf" in hopeless.log.read_text().splitlines()[-1]
        assert endpoint(tree, "w3") is None
