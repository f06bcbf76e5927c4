"""A worker's own Spark Connect server, really: advertised, used, killed, started again, ended with its worker."""

import os
import re
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rota.catalog import load
from rota.consume import CommittedBatch, Event, consume
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.overrides import cordon
from rota.dataplane.spark import session
from rota.dataplane.spark.deadline import limit
from rota.dataplane.spark.probe import explain_silence
from rota.dataplane.spark.spark_server import ENDED
from rota.errors import EnvironmentFailed
from rota.pipeline import Pipeline
from rota.rebalance import observe, rebalance
from rota.registry import open_ports
from tests.conformance.processes import ROOT, Start, Worker
from tests.waiting import wait_until

OWN = ("--master", "local[1]", "--conf", "spark.driver.memory=600m")
PATIENT = (str(Path(__file__).with_name("patient_worker.py")),)
PIPELINE = """
from rota import Pipeline, delta, files
source = files({landing!r}, format="json", schema="n int", settle=0.0)
pipeline = Pipeline(source=source, table=delta({table!r}), group={group!r})
"""
QUERY = """
import sys
from rota.dataplane.spark.session import open_session
spark = open_session(sys.argv[1])
print(spark.range(10).selectExpr("sum(id)").collect()[0][0], spark.conf.get("spark.driver.memory"))
spark.stop()
"""


def endpoint(tree: GroupState, worker: str) -> str | None:
    """What a live worker advertises."""
    return next((v.record.endpoint for v in tree.live() if v.worker == worker and v.record), None)


def answer(url: str) -> str:
    """What a thin client, in a process of its own, gets from the server."""
    words = [sys.executable, "-W", "ignore", "-c", QUERY, url]
    done = subprocess.run(words, capture_output=True, timeout=120, cwd=ROOT)
    return done.stdout.decode().strip() or done.stderr.decode()


def spark_of(worker: Worker) -> int:
    """The pid of the server that was started last."""
    pid = re.search(r"pid=(\d+)", worker.said("event=spark-started")[-1])
    assert pid is not None
    return int(pid[1])


def test_a_worker_owns_its_spark(start: Start, zookeeper: EmbeddedZooKeeper, group: str) -> None:
    first, second, hopeless = start("w1", *OWN), start("w2", *OWN), start("w3", "--master", "nonsense")
    with connect(zookeeper.hosts) as store:
        tree = GroupState(store, group)
        tree.found()
        url = wait_until(lambda: endpoint(tree, "w1"), 90)
        assert first.hears(f"event=spark-ready endpoint={url}"), "it is advertised once it is ready"
        assert "prepared=yes" in first.said("event=spark-ready")[0], (
            "it started from the archive of `rota prepare`: make prepare"
        )
        assert answer(url) == "45 600m"
        stranger = SparkSession.builder.remote(url).create()
        with pytest.raises(PySparkException, match="No authentication token"):
            stranger.range(1).count()
        stranger.release_session_on_close = False
        stranger.stop()  # else it stays this process's active session, which PySpark asks for its settings

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


def test_a_spark_that_hangs_is_replaced(start: Start, zookeeper: EmbeddedZooKeeper, group: str, tmp_path: Path) -> None:
    """What waits on it fails as the environment's fault and parks nobody, and consuming goes on. Without the guard it
    hangs for ever: nobody but the kernel answers, and the worker does not know."""
    landing, table, pipelines = tmp_path / "land", tmp_path / "table", tmp_path / "pipelines"
    for folder in (landing / "a", pipelines):
        folder.mkdir(parents=True)
    (landing / "a/0.json").write_text('{"n": 1}\n{"n": 2}\n')
    (pipelines / "p.py").write_text(PIPELINE.format(landing=str(landing), table=str(table), group=group))
    catalog = load(pipelines)
    (guarded, deaf) = (start(name, silence, program=PATIENT) for name, silence in (("w1", "2"), ("w2", "inf")))
    with connect(zookeeper.hosts) as store:
        tree = GroupState(store, group)
        tree.found()
        url = wait_until(lambda: endpoint(tree, "w1"), 90)
        wait_until(lambda: endpoint(tree, "w2"), 90)
        cordon(tree, "w2")
        observe(store, catalog, group)
        rebalance(tree, "rebalance")
        incarnation = wait_until(lambda: tree.owned(["p:a"])["p:a"].incarnation, 20)
        hung, abandoned = spark_of(guarded), spark_of(deaf)

        def hanging(frame: object) -> object:
            for spark in (hung, abandoned):
                os.kill(spark, signal.SIGSTOP)
            return frame

        def run(name: str, pipeline: Pipeline) -> list[Event]:
            clients: list[SparkSession] = []

            def connected(address: str | None) -> SparkSession:
                clients.append(session.open_session(address))
                return clients[-1]

            try:
                ports = open_ports(pipeline, tree.group, tree.meta().id, connected)
                return list(consume(tree, pipeline, incarnation, ["p:a"], name, ports))
            finally:
                clients[0].release_session_on_close = False  # nobody may be there to be told
                clients[0].stop()  # as the end of a run's process does; else it stays this process's active session

        plain = catalog.pipelines["p"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the client says how often it tried
            with pytest.raises(EnvironmentFailed, match="No partition is parked"):
                run("caught", replace(plain, transform=hanging))
        assert guarded.hears("event=spark-silent").split()[-2] == f"pid={hung}"
        assert not tree.parked()
        wait_until(lambda: len(guarded.said("event=spark-ready")) == 2, 90)
        assert endpoint(tree, "w1") == url, "its address is the former one, and nobody had to be told"
        (event,) = run("next", plain)
        assert isinstance(event, CommittedBatch)
        assert (event.rows, DeltaTable(table / "main").count()) == (2, 2)

        assert spark_of(deaf) == abandoned
        assert not deaf.said("event=spark-(silent|died)")
        assert explain_silence(endpoint(tree, "w2") or "", 1) == "it says nothing for 1 s"


SLEEP = """
import sys
from pyspark.sql.functions import udf
from rota.dataplane.spark import session
spark, told = session.open_session(sys.argv[1]), sys.argv[2]
@udf("long")
def slow(number):
    import time
    open(told, "w").close()
    time.sleep(1e6)
    return number
spark.range(0, 1, 1, 1).select(slow("id")).collect()
"""
ENDLESS = "aggregate(sequence(0, id + 1000000), 0L, (n, x) -> n + aggregate(sequence(0, x), 0L, (m, y) -> m + y))"


def test_a_slot_comes_back_whatever_held_it(
    start: Start, zookeeper: EmbeddedZooKeeper, group: str, tmp_path: Path
) -> None:
    """A server has one slot. Its holder is killed; then it is ended and goes on all the same, as no Java code must stop."""
    quick = dict.fromkeys(ENDED, "1s") | {"spark.task.reaper.enabled": "true", "spark.task.reaper.threadDump": "false"}
    quick["spark.task.reaper.killTimeout"] = "3s"
    worker = start("w1", *OWN, *(word for name, value in quick.items() for word in ("--conf", f"{name}={value}")))
    with connect(zookeeper.hosts) as store:
        tree = GroupState(store, group)
        tree.found()
        url = wait_until(lambda: endpoint(tree, "w1"), 90)
    asleep = tmp_path / "asleep"
    holder = subprocess.Popen([sys.executable, "-W", "ignore", "-c", SLEEP, url, str(asleep)])
    wait_until(asleep.exists, 90)
    holder.kill()
    holder.wait()
    assert answer(url) == "45 600m", "what a client that died was doing is ended"
    assert not worker.said("event=spark-stuck"), "a task that took long, and then ended when it was told to"

    client = session.open_session(url)
    with pytest.raises(EnvironmentFailed, match="not done after 5 s"), limit(client, 5.0):
        client.range(0, 1, 1, 1).selectExpr(ENDLESS).collect()
    worker.hears("event=spark-stuck pid=.* reason=.Killed task .* could not be stopped", 60)
    client.release_session_on_close = False
    client.stop()
    wait_until(lambda: len(worker.said("event=spark-ready")) == 2, 90)
    assert answer(url) == "45 600m"


def test_half_a_minute_after_its_death_a_run_holds_no_slot() -> None:
    longest = [seconds for name, seconds in ENDED.items() if "connect" in name]
    assert sum(float(seconds.removesuffix("s")) for seconds in longest) <= 30, longest
