"""A line of real parts on which situations are played: ZooKeeper, a shared Spark, workers, Dagster with its daemon and page,
and a pipeline file whose alert sensor appends to a file."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import dagster as dg
import psutil

from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from rota.ids import partition_id
from tests.dataplane.world import BRIEF
from tests.face.dagster_dev import OWN, ROOT, DagsterDev
from tests.face.line import PIPELINE, Line
from tests.processes import list_below, strike_host
from tests.situations.situation import Situation
from tests.waiting import LONG, wait_until

ALERTS = """
import json, time
from rota import Group
from rota.dagster.sensors.alerts import make_alert_sensor


def tell(alert):
    with open({heard!r}, "a") as file:
        file.write(json.dumps([time.time(), alert.title, alert.text]) + "\\n")


group = Group("many")
alerts = make_alert_sensor(tell)
"""
HURRIED = """
import sys
from rota.dagster.sensors import alerts as alarms, checks

if "pytest" not in sys.modules:  # which loads this file, too, and has other tests
    checks.TICK, checks.MIN_PAUSE, checks.MAX_PAUSE, alarms.TICK = 5, 8.0, 12.0, 10
"""  # looks come more often; how long a need may heal is as it is
THREADS = 64  # there are many sensors: with fewer threads ticks wait for each other


class Stage(Line):
    """The line, its situations, and what a person sees of them. Everything of a situation has its name."""

    def __init__(self, folder: Path, situations: Iterable[Situation], slots: int = 12, hurried: bool = False) -> None:
        self.server = EmbeddedZooKeeper(folder / "zookeeper").start()
        self.folder, self.zookeeper, self.workers = folder, self.server.hosts, {}
        self.spark = SparkServer("shared", SparkSettings("local[2]", BRIEF), folder / "spark")
        self.own_sparks: dict[str, SparkServer] = {}
        self.situations = {one.pipeline: one for one in situations}
        self.landing, self.tables, self.pipelines = folder / "landing", folder / "tables", folder / "pipelines"
        self.heard, self.slots = folder / "heard", slots
        self.alarm = (HURRIED if hurried else "") + ALERTS.format(heard=str(self.heard))
        self.instance: dg.DagsterInstance | None = None  # Dagster's storage, once it is asked for
        self.kept: dict[str, object] = {}  # what a situation puts aside, by its name

    def start(self) -> None:
        """Everything runs and every pipeline has been consumed."""
        for path in (self.landing, self.tables, self.pipelines, self.folder / "logs", self.folder / "aside"):
            path.mkdir()
        self.heard.touch()
        (self.pipelines / "alarm.py").write_text(self.alarm)
        self.spark.start()
        self.environ = {
            "ROTA_ZOOKEEPER": self.zookeeper, "ROTA_PIPELINES": str(self.pipelines), "ROTA_LANDING": str(self.landing),
            "ROTA_TABLES": str(self.tables), "ROTA_SESSION_TIMEOUT": "6", "ROTA_LINGER": "10", "PYTHONPATH": str(ROOT),
            "DAGSTER_GRPC_MAX_WORKERS": str(THREADS), "DAGSTER_CODE_SERVER_MAX_WORKERS": str(THREADS),
        }  # fmt: skip
        settings = self.folder / "dagster.yaml"
        text = (OWN / "dagster.yaml").read_text().replace("num_workers: 24", f"num_workers: {THREADS}")
        text = text.replace("max_concurrent_runs: 12", f"max_concurrent_runs: {self.slots}")
        settings.write_text(text)
        for one in self.situations.values():
            self.declare(one)
            for number, key in enumerate(one.keys):
                (self.landing / one.pipeline / key).mkdir(parents=True)
                if one.lands:
                    self.land(one.pipeline, key, number + 1)
        self.dev = DagsterDev(self.folder / "dagster", self.environ, settings=settings)
        os.environ.update(self.environ, ROTA_DAGSTER=self.dev.url, DAGSTER_HOME=str(self.dev.home))
        self.store = connect(self.zookeeper, 10)
        wait_until(self.spark.ready, timeout=LONG)
        for one in self.situations.values():
            for worker, options in one.workers.items() if not one.group else ():
                self.hire(one.pipeline, worker, *options)
        self.hire("many", "w", "--spark", self.spark.url)
        self.dev.start()

    def stop(self) -> None:
        super().stop()
        if self.instance is not None:
            self.instance.dispose()
        for server in (self.spark, *self.own_sparks.values()):
            with suppress(ProcessLookupError):
                server.stop()
        self.server.stop()

    def declare(self, one: Situation, more: str | None = None, functions: str | None = None) -> None:
        """The situation's pipeline file, written at once."""
        given, made = one.more if more is None else more, one.functions if functions is None else functions
        text = one.declared or PIPELINE
        text = text.format(name=one.pipeline, group=one.of).replace(
            "pipeline = Pipeline(", f"pipeline = Pipeline({given}"
        )
        aside = self.folder / "aside" / f"{one.pipeline}.py"
        aside.write_text(made + text)
        aside.replace(self.pipelines / f"{one.pipeline}.py")

    # --- workers

    def hire(self, group: str, worker: str, *options: str) -> None:
        """A worker `<group>-<worker>` of the group."""
        self.run(f"{group}-{worker}", f"{group}-{worker}", group, *options)

    def run(self, process: str, worker: str, group: str, *options: str) -> None:
        """A process of a worker, by the name `process`."""
        options = [option.replace("SHARED", self.spark.url) for option in options]
        command = ["-m", "rota", "worker", "--id", worker, "--group", group, *options]
        with (self.folder / "logs" / f"{process}.log").open("ab") as log:
            self.workers[process] = subprocess.Popen(
                [sys.executable, *command], cwd=self.folder, env={**os.environ, **self.environ}, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def signal(self, process: str, how: signal.Signals) -> None:
        """To all of the worker's processes."""
        strike_host(self.workers[process].pid, how)

    # --- parts of Dagster

    def find_parts(self, *words: str) -> list[psutil.Process]:
        """The processes of Dagster's whose command holds each of the words."""
        assert self.dev.process is not None
        below = list_below(self.dev.process.pid)
        return [one for one, command in below.items() if all(word in " ".join(command) for word in words)]

    def find_spark(self, server: SparkServer) -> psutil.Process:
        """The process of a Spark server of the stage."""
        assert server.pid is not None
        return psutil.Process(server.pid)

    # --- what a person types and sees

    def type(self, *words: str) -> str:
        """A command of rota's, as typed; what it printed. Raises where it fails."""
        command = [sys.executable, "-m", "rota", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, start_new_session=True)
        if done.returncode:
            raise RuntimeError(f"rota {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def find_red(self, asset: str, check: str) -> str:
        """What the page shows at the check if it fails as an error; empty else. Read where the page reads it."""
        from rota.dagster.assets.checks import read_evaluation

        if self.instance is None:
            self.instance = dg.DagsterInstance.from_config(str(self.dev.home))
        last = read_evaluation(self.instance, dg.AssetCheckKey(dg.AssetKey(asset.split("/")), check))
        if last is None or last[0].passed or last[0].severity != dg.AssetCheckSeverity.ERROR:
            return ""
        return last[0].description or "it failed"

    def read_alerts(self) -> list[tuple[float, str, str]]:
        """When, the title and the text of each alert."""
        return [(at, title, text) for at, title, text in map(json.loads, self.heard.read_text().splitlines())]

    # --- records

    def path(self, name: str, folder: str, key: str = "x") -> str:
        """The znode of the situation's partition, or of what `key` names, in that folder."""
        last = partition_id(name, key) if folder in ("own", "parked", "checkpoints") else key
        return "/".join(filter(None, (f"/rota/{self.situations[name].of}", folder, last)))

    def spoil(self, path: str) -> None:
        """Something else writes the node."""
        assert self.store is not None
        node = self.store.get(path)
        self.kept[path] = node.data if node else None
        self.store.set(path, b"garbage", -1) if node else self.store.create(path, b"garbage")

    def restore(self, path: str) -> None:
        """The node is as it was."""
        assert self.store is not None
        before = self.kept.pop(path)
        if not isinstance(before, bytes):
            self.store.delete(path)
        elif self.store.get(path) is None:
            self.store.create(path, before)
        else:
            self.store.set(path, before, -1)

    def group_tree(self, name: str) -> GroupState:
        """The records of the situation's group."""
        assert self.store is not None
        return GroupState(self.store, self.situations[name].of)

    def is_consumed(self, name: str, files: int = 1) -> bool:
        """Whether each key of the situation has its first files in the table."""
        tree = self.group_tree(name)
        if not tree.exists():
            return False
        partitions = [partition_id(name, key) for key in self.situations[name].keys]
        if self.situations[name].lands:
            said = tree.checkpoints(partitions)
            return all(p in said and said[p].record.offset >= files for p in partitions)
        owners = tree.owned(partitions)
        return all(p in owners and owners[p].incarnation for p in partitions)


def now() -> float:
    """Seconds since 1970."""
    return time.time()
