"""A worker's own Spark Connect server, really: advertised, used, killed, started again, ended with its worker.

A Spark takes some eight CPU seconds to start, so one worker lives through all of it, in one test."""

import os
import re
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rota.catalog import load
from rota.coordination import membership
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.overrides import cordon
from rota.coordination.records import Live
from rota.dataplane.spark import session
from rota.dataplane.spark.deadline import limit
from rota.dataplane.spark.probe import explain_silence
from rota.dataplane.spark.spark_server import ENDED, TIERS
from rota.errors import EnvironmentFailed
from rota.group.found import follow
from rota.group.rebalance import rebalance
from rota.pipeline import Pipeline
from rota.registry import open_ports
from rota.run.consume import CommittedBatch, Event, consume
from tests.conformance.processes import Start, Worker
from tests.processes import list_below
from tests.waiting import LONG, wait_until

JAVA = "spark.driver.extraJavaOptions"
OWN = ("--master", "local[1]", "--conf", "spark.driver.memory=600m", "--conf", f"{JAVA}=-XX:+PrintFlagsFinal")
SOON = dict.fromkeys(ENDED, "3s") | {"spark.task.reaper.enabled": "true", "spark.task.reaper.threadDump": "false"}
SOON |= {
    "spark.task.reaper.killTimeout": "5s",
    "spark.python.task.killTimeout": "500ms",  # Python code that was ended is killed long before
    "spark.task.reaper.pollingInterval": "1s",
}  # by itself it looks every 10 s
QUICK = tuple(word for name, value in SOON.items() for word in ("--conf", f"{name}={value}"))
HOPELESS = ("--conf", f"{JAVA}=-javaagent:/nowhere.jar")
PATIENT = (str(Path(__file__).with_name("patient_worker.py")),)
PIPELINE = """
from rota import Pipeline, delta, files
source = files({landing!r}, format="json", schema="n int", settle=0.0)
pipeline = Pipeline(source=source, table=delta({table!r}), group={group!r})
"""
SLEEP = """
import sys
from pyspark.sql.functions import udf
from rota.dataplane.spark import session
spark, started = session.open_session(sys.argv[1]), sys.argv[2]
@udf("long")
def slow(number):
    import time
    open(started, "w").close()
    time.sleep(1e6)
    return number
spark.range(0, 1, 1, 1).select(slow("id")).collect()
"""
ENDLESS = "aggregate(sequence(0, id + 1000000), 0L, (n, x) -> n + aggregate(sequence(0, x), 0L, (m, y) -> m + y))"


def endpoint(tree: GroupState, worker: str) -> str | None:
    """What a live worker advertises."""
    return next((v.record.endpoint for v in tree.live() if v.worker == worker and v.record), None)


def answer(url: str) -> str:
    """What a thin client gets from the server."""
    spark = session.open_session(url)
    (row,) = spark.range(10).selectExpr("sum(id)").collect()
    memory = spark.conf.get("spark.driver.memory")
    spark.stop()
    return f"{row[0]} {memory}"


def find_scratch(worker: Worker) -> Path:
    """The folder of the server that was started last."""
    log = re.search(r"log=(\S+)", worker.said("event=spark-started")[-1])
    assert log is not None
    return Path(log[1]).parent


def spark_of(worker: Worker) -> int:
    """The pid of the server that was started last."""
    pid = re.search(r"pid=(\d+)", worker.said("event=spark-started")[-1])
    assert pid is not None
    return int(pid[1])


def find_python(spark: int) -> list[int]:
    """Spark's Python daemons: processes that fork those of the tasks."""
    return [one.pid for one, command in list_below(spark).items() if "rota.dataplane.spark.python_daemon" in command]


@dataclass
class Life:
    """A worker that gives its Spark up after 10 s of silence, a deaf one that never does, and their group."""

    tree: GroupState
    first: Worker
    deaf: Worker
    url: str = ""
    starts: int = 1  # of the first one's Spark, that were ready

    def sees_it_start_again(self) -> None:
        self.starts += 1
        wait_until(lambda: len(self.first.said("event=spark-ready")) == self.starts)
        assert endpoint(self.tree, "w1") == self.url, "its address is the former one"


def test_a_worker_owns_its_spark(start: Start, zookeeper: EmbeddedZooKeeper, group: str, tmp_path: Path) -> None:
    with connect(zookeeper.hosts) as store:
        tree = GroupState(store, group)
        tree.found()
        former = membership.join(tree, "w0", Live())  # the others warm their Sparks: they are not the first
        first, deaf = (
            start(
                name, *OWN, *QUICK, silence, program=PATIENT, max_shutdown=6
            )  # which its leaving takes: there is no controller
            for name, silence in (("w1", "10"), ("w2", "inf"))
        )
        life = Life(tree, first, deaf)
        see_it_advertised_once_it_is_ready(life)
        wait_until(lambda: endpoint(tree, "w2"))
        membership.leave(tree, former)
        see_a_slot_come_back_whatever_held_it(life, tmp_path)
        see_one_that_hangs_be_replaced(life, tmp_path)
        see_one_that_is_killed_start_again(life)
        see_it_end_with_its_worker(life, start)


def see_it_advertised_once_it_is_ready(life: Life) -> None:
    life.url = wait_until(lambda: endpoint(life.tree, "w1"))
    assert life.first.hears(f"event=spark-ready endpoint={life.url}")
    assert find_python(spark_of(life.first)), "it was warmed before: its Python runs, with the imports of a task"
    assert "prepared=yes" in life.first.said("event=spark-ready")[0], (
        "it started from the archive of `rota prepare`: make prepare"
    )
    # the user's own option prints the flags, and takes none of rota's away
    printed = (find_scratch(life.first) / "spark.log").read_text()
    found = dict(re.findall(r"(\w+) += (\w+) .*\{command line\}", printed))
    assert {f"Tier4{name}Threshold": str(count) for name, count in TIERS.items()}.items() <= found.items()
    assert (found["PrintFlagsFinal"], found["UseSerialGC"]) == ("true", "true")
    assert re.search(r"TieredStopAtLevel += 4 ", printed), "Java's best compiler is on"
    assert answer(life.url) == "45 600m"
    stranger = SparkSession.builder.remote(life.url).create()
    with pytest.raises(PySparkException, match="No authentication token"):
        stranger.range(1).count()
    stranger.release_session_on_close = False
    stranger.stop()  # else it stays this process's active session, which PySpark asks for its settings


def see_a_slot_come_back_whatever_held_it(life: Life, tmp_path: Path) -> None:
    """A server has one slot. Its holder is killed; then it is ended and goes on all the same, as no Java code must stop."""
    asleep = tmp_path / "asleep"
    holder = subprocess.Popen([sys.executable, "-W", "ignore", "-c", SLEEP, life.url, str(asleep)])
    wait_until(asleep.exists)
    holder.kill()
    holder.wait()
    assert answer(life.url) == "45 600m", "what a client that died was doing is ended"
    assert not life.first.said("event=spark-stuck"), "a task that took long, and then ended when it was asked to"

    client = session.open_session(life.url)
    with pytest.raises(EnvironmentFailed, match="not done after 1 s"), limit(client, 1.0):
        client.range(0, 1, 1, 1).selectExpr(ENDLESS).collect()
    life.first.hears("event=spark-stuck pid=.* reason=.Killed task .* could not be stopped")
    client.release_session_on_close = False
    client.stop()
    life.sees_it_start_again()


def see_one_that_hangs_be_replaced(life: Life, tmp_path: Path) -> None:
    """The batch that waits for it fails as a fault of the environment and parks no partition, and consuming continues.
    Without the guard the batch hangs for ever: only the kernel answers, and the worker does not notice."""
    tree, first, deaf = life.tree, life.first, life.deaf
    landing, table, pipelines = tmp_path / "land", tmp_path / "table", tmp_path / "pipelines"
    for folder in (landing / "a", pipelines):
        folder.mkdir(parents=True)
    (landing / "a/0.json").write_text('{"n": 1}\n{"n": 2}\n')
    (pipelines / "p.py").write_text(PIPELINE.format(landing=str(landing), table=str(table), group=tree.group))
    catalog = load(pipelines)
    wait_until(lambda: endpoint(tree, "w2"))
    cordon(tree, "w2")
    follow(tree.store, catalog, tree.group)
    rebalance(tree, "rebalance")
    incarnation = wait_until(lambda: tree.owned(["p:a"])["p:a"].incarnation)
    hung, abandoned = spark_of(first), spark_of(deaf)

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
            clients[0].release_session_on_close = False  # the server may be gone
            clients[0].stop()  # as the end of a run's process does; else it stays this process's active session

    plain = catalog.pipelines["p"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client logs its attempts
        with pytest.raises(EnvironmentFailed, match="No partition is parked"):
            run("caught", replace(plain, transform=hanging))
    assert first.hears("event=spark-silent").split()[-2] == f"pid={hung}"
    assert not tree.parked()
    life.sees_it_start_again()
    (event,) = run("next", plain)
    assert isinstance(event, CommittedBatch)
    assert (event.rows, DeltaTable(table / "main").count()) == (2, 2)

    assert spark_of(deaf) == abandoned
    assert not deaf.said("event=spark-(silent|died)")
    assert explain_silence(endpoint(tree, "w2") or "", 1).endswith("for 1 s")


def see_one_that_is_killed_start_again(life: Life) -> None:
    spark = spark_of(life.first)
    assert os.getpgid(spark) == life.first.find_pid(), "killing the worker's group kills its Spark"
    died = len(life.first.said("event=spark-died"))
    os.kill(spark, signal.SIGKILL)
    wait_until(lambda: len(life.first.said("event=spark-died")) > died)
    life.sees_it_start_again()
    assert answer(life.url) == "45 600m"


def see_it_end_with_its_worker(life: Life, start: Start) -> None:
    """Whether the worker is asked to leave or is killed alone, not its group; a successor clears up, and gives up in the end
    if no Spark comes up."""
    scratch = find_scratch(life.first)
    assert scratch.is_dir()
    life.first.signal(signal.SIGTERM)
    assert life.first.ends() == 0
    assert not psutil.pid_exists(spark_of(life.first))
    assert not scratch.exists()

    orphan, left = psutil.Process(spark_of(life.deaf)), find_scratch(life.deaf)
    life.deaf.signal(signal.SIGKILL)
    orphan.wait(LONG)
    assert left.is_dir()
    hopeless = start("w2", *HOPELESS, anew=True)
    hopeless.hears("event=spark-started")
    assert not left.exists(), "a successor clears up"
    assert hopeless.ends() == 2
    assert len(hopeless.said("event=spark-died")) == 3
    assert "Check --master and --conf" in hopeless.log.read_text().splitlines()[-1]
    assert not hopeless.said("event=(spark-ready|joined)")


def test_half_a_minute_after_its_death_a_run_holds_no_slot() -> None:
    longest = [seconds for name, seconds in ENDED.items() if "connect" in name]
    assert sum(float(seconds.removesuffix("s")) for seconds in longest) <= 30, longest
