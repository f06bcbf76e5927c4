"""Staging and production on one shared instance: the built wheel, a code server of its own for each, Dagster's storage on
PostgreSQL.

Both have a pipeline `p` in a group `default` with a worker `w1`. One has a `key_prefix`; each has its own ZooKeeper.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.dagster.sensors.runs import LOCATION_TAG
from rota.dataplane.spark.spark_server import SparkServer
from rota.machine import free_port
from tests.face.dagster_dev import OWN, ROOT, DagsterDev
from tests.face.line import Line
from tests.face.postgres import Postgres
from tests.face.scratch import plain_environment
from tests.waiting import LONG, wait_until

LOCATION = """
import dagster as dg
{more}
import rota.dagster

defs = rota.dagster.definitions(
    "{folder}/pipelines",
    key_prefix={prefix!r},
    resources={{"rota_zookeeper": rota.dagster.ZooKeeperResource(hosts=dg.EnvVar("{name}_ZOOKEEPER"))}},
)
"""
PIPELINE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("{folder}/landing/p", format="json", schema="n int", settle=0.2), table=delta("{folder}/tables/p"),
)
"""
WORKSPACE = """
load_from:
  - grpc_server: {{host: 127.0.0.1, port: {staging}, location_name: staging}}
  - grpc_server: {{host: 127.0.0.1, port: {production}, location_name: production}}
"""
SETTINGS = "telemetry: {{enabled: false}}\nstorage: {{postgres: {{postgres_url: '{url}'}}}}\n"
NAMES = {"staging": "staging", "production": None}
MORE = {"staging": "from warm import warm\nwarm()", "production": ""}


class Neighbour(Line):
    """One of the two deployments."""

    def __init__(self, name: str, folder: Path, zookeeper: str, spark: SparkServer) -> None:
        self.name, self.folder, self.zookeeper, self.spark = name, folder, zookeeper, spark
        self.landing, self.tables = folder / "landing", folder / "tables"
        for path in (folder / "pipelines", folder / "logs", self.landing, self.tables):
            path.mkdir(parents=True)
        (folder / "pipelines" / "p.py").write_text(PIPELINE.format(folder=folder))
        location = LOCATION.format(folder=folder, name=name.upper(), prefix=NAMES[name], more=MORE[name])
        (folder.parent / f"{name}.py").write_text(location)
        self.environ = {"ROTA_ZOOKEEPER": zookeeper, "ROTA_SESSION_TIMEOUT": "4", "PYTHONPATH": str(ROOT)}
        self.workers: dict[str, subprocess.Popen[bytes]] = {}


class SharedDagster(DagsterDev):
    """A code server for each deployment, the page and the daemon: each a process. `dagster dev` would start three more, and
    be what the tests of the line have already."""

    def start(self) -> None:
        """Returns when the page answers and the code locations are loaded."""
        self.processes: list[subprocess.Popen[bytes]] = []
        folder, ports = self.workspace.parent, {name: free_port() for name in NAMES}
        self.workspace.write_text(WORKSPACE.format(**ports))
        for name, port in ports.items():
            served = "-f", str(folder / f"{name}.py"), "--location-name", name, "-h", "127.0.0.1", "-p", str(port)
            self._launch("dagster", "api", "grpc", *served, *(("-d", str(folder)) if name == "staging" else ()))
        for port in ports.values():
            wait_until(lambda port=port: self._listens(port), pause=0.3)
        self._launch("dagster_webserver", "-w", str(self.workspace), "-h", "127.0.0.1", "-p", str(self.port))
        self._launch("dagster._daemon", "run", "-w", str(self.workspace))
        wait_until(self.is_loaded, pause=0.5)

    def _launch(self, *words: str) -> None:
        group = self.process.pid if self.process else 0
        with (self.home / "dev.log").open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=self.home, env=self.environ, stdout=log, stderr=log,
                process_group=group,
            )  # fmt: skip
        self.process = self.process or started
        self.processes.append(started)

    def _listens(self, port: int) -> bool:
        assert all(one.poll() is None for one in self.processes), self.log()[-3000:]
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    def stop(self, kill: bool = True) -> None:
        super().stop(kill)
        for process in self.processes:
            process.wait(LONG)


@pytest.fixture
def shared(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper, starting: SparkServer, installed: Path
) -> Iterator[tuple[DagsterDev, dict[str, Neighbour]]]:
    """Both, with files that landed before they began. Production's runs are processes that import everything, as Dagster
    starts them, at 5 s each; staging's location has the file beside it with which the checkout's own forks them."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as another, Postgres() as postgres:
        hosts = {"staging": another.hosts, "production": zookeeper.hosts}
        both = {name: Neighbour(name, tmp_path / name, hosts[name], starting) for name in NAMES}
        shutil.copy(OWN / "warm.py", tmp_path)
        (tmp_path / "dagster.yaml").write_text(SETTINGS.format(url=postgres.url))
        environ = {**plain_environment(installed, tmp_path / "home"), "ROTA_SESSION_TIMEOUT": "4", "ROTA_LINGER": "60"}
        environ |= {f"{name.upper()}_ZOOKEEPER": hosts[name] for name in NAMES}
        dev = SharedDagster(tmp_path / "home", environ, tmp_path / "workspace.yaml", tmp_path / "dagster.yaml")
        both["staging"].land("p", "x", 1, 2)
        both["production"].land("p", "x", 3)
        both["production"].land("p", "y", 4, 5)
        for one in both.values():
            one.join("w1", "default")
        try:
            dev.start()
            wait_until(starting.ready)
            yield dev, both
        finally:
            for one in both.values():
                one.stop()
            dev.stop()


def rota(dev: DagsterDev, *words: str) -> str:
    """What a command says that asks the page."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ROTA_DAGSTER": dev.url}
    command = [sys.executable, "-m", "rota", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LONG)
    return done.stdout or done.stderr


def test_two_deployments_on_one_instance_do_not_touch_each_other(
    shared: tuple[DagsterDev, dict[str, Neighbour]],
) -> None:
    dev, both = shared
    staging, production = both["staging"], both["production"]
    staging.holds("p", {"x": [1, 2]})
    production.holds("p", {"x": [3], "y": [4, 5]})
    with dg.DagsterInstance.from_config(str(dev.home)) as instance:

        def list_runs(location: str, *statuses: dg.DagsterRunStatus) -> list[dg.DagsterRun]:
            tags = {LOCATION_TAG: f"__repository__@{location}"}
            return list(instance.get_runs(dg.RunsFilter(tags=tags, statuses=list(statuses))))

        assert type(instance.run_storage).__name__ == "PostgresRunStorage"
        assert instance.get_dynamic_partitions("staging/p/partitions") == ["p:x"]
        assert instance.get_dynamic_partitions("p/partitions") == ["p:x", "p:y"]
        for location, job in (("staging", "staging__p__consume"), ("production", "p__consume")):
            assert {run.job_name for run in list_runs(location)} >= {job}
        shown = {str(m["partition"]) for m in dev.materializations("staging", "p", "checkpoints")}
        assert shown <= {"p:x"}
        for asked, job in (("replay", "p:x", "--from", "0", "--to", "1"), "p__replay"), (("purge",), "rota__purge"):
            refused = rota(dev, *asked)
            assert f"2 deployments at {dev.url} have the job {job}: production, staging. Give --location" in refused
        replay = "replay", "p:x", "--from", "0", "--to", "1", "--location", "staging"
        assert rota(dev, *replay) == "p:x: 1 offsets replayed\n"
        assert "runs can be removed" in rota(dev, "purge", "--dry-run", "--location", "staging")
        asked_for = {"staging__p__replay", "staging__rota__purge"}
        assert {run.job_name for run in list_runs("staging")} > asked_for
        assert {run.job_name for run in list_runs("production")} == {"default__rebalance", "p__consume"}
        staging.land("p", "x", 7)
        staging.holds("p", {"x": [1, 2, 7]})
        assert list_runs("staging", dg.DagsterRunStatus.STARTED)
        serving = list_runs("production", dg.DagsterRunStatus.STARTED)
        staging.kill("w1")  # its runs are for a worker that is gone: its sensor cancels them, and no others
        going = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.QUEUED)
        wait_until(lambda: not list_runs("staging", *going), pause=1)
        production.land("p", "y", 6)
        production.holds("p", {"x": [3], "y": [4, 5, 6]})
        assert not list_runs("production", dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE)
        assert {run.run_id for run in serving} <= {run.run_id for run in list_runs("production")}
