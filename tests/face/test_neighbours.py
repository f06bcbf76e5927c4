"""Staging and production on one shared instance: the built wheel, the example of `deploy/two`, Dagster's storage on
PostgreSQL, and Dagster's own queue with a limit that is the instance's: of both one run at a time may consume.

Both serve one folder with a pipeline `p` in a group `default`, with a worker `w1`, and an asset below its table that runs
for the keys that changed. One has a `key_prefix`; each has its own chroot in one ZooKeeper, its own folder and table.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dotenv import dotenv_values

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.dagster.private import LOCATION_TAG
from rota.dataplane.spark.spark_server import SparkServer
from tests.face.dagster_dev import OWN, ROOT, DagsterDev
from tests.face.line import PIPELINE, Line
from tests.face.postgres import Postgres
from tests.face.scratch import plain_environment
from tests.waiting import LONG, wait_until

EXAMPLE = ROOT / "deploy" / "two"
SETTINGS = """
telemetry: {{enabled: false}}
storage: {{postgres: {{postgres_url: '{url}'}}}}
concurrency: {{runs: {{max_concurrent_runs: 3, tag_concurrency_limits: [{{key: rota/consume, limit: 1}}]}}}}
"""
FOLLOWS = """
import dagster as dg

WHEN = dg.AutomationCondition
BATCH = WHEN.any_deps_match(WHEN.newly_updated()).since(WHEN.newly_requested())
FIRST = (WHEN.missing() & WHEN.any_deps_match(~WHEN.missing())).newly_true()


@dg.asset(
    key=["p", "follows"],
    deps=[["p", "records"]],
    partitions_def=dg.DynamicPartitionsDefinition(name="p/partitions"),
    automation_condition=(BATCH | FIRST) & ~WHEN.in_progress(),
)
def follows() -> None: ...
"""
MORE = "import dagster as dg\ndefs = dg.Definitions.merge(defs, dg.Definitions(executor=dg.in_process_executor))\n"
NAMES = ("staging", "production")


class Neighbour(Line):
    """One of the two deployments, as its `.env` describes it."""

    def __init__(self, name: str, folder: Path, spark: SparkServer) -> None:
        self.folder, self.spark = folder / name, spark
        said = {key: str(value) for key, value in dotenv_values(folder / f"{name}.env").items()}
        self.landing, self.tables = Path(said["ROTA_LANDING"]), Path(said["ROTA_TABLES"])
        for path in (self.folder / "logs", self.landing, self.tables):
            path.mkdir(parents=True)
        self.environ = {**said, "ROTA_SESSION_TIMEOUT": "4", "PYTHONPATH": str(ROOT)}
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def rota(self, *words: str) -> str:
        """The output of a command under the settings of this deployment."""
        command = [sys.executable, "-m", "rota", *words]
        environ = {**os.environ, **self.environ}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LONG)
        return done.stdout or done.stderr

    def list_needs(self) -> list[dict[str, Any]]:
        """What needs an operator by `rota status`."""
        return list(json.loads(self.rota("status", "--json"))["needs"])


def write_example(folder: Path, changed: Mapping[str, str]) -> None:
    """The example, with what is one's own in it. Production's runs are processes that import everything, as Dagster starts
    them, at 5 s each; staging's location has the file beside it with which the checkout's own forks them."""
    for file in EXAMPLE.iterdir():
        text = file.read_text()
        for theirs, mine in changed.items():
            text = text.replace(theirs, mine)
        (folder / file.name).write_text(text + MORE * (file.suffix == ".py"))
    warm = f"import sys\nsys.path.append({str(folder)!r})\nfrom warm import warm\nwarm()\n"
    (folder / "staging.py").write_text((folder / "staging.py").read_text() + warm)
    shutil.copy(OWN / "warm.py", folder)
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "p.py").write_text(PIPELINE.format(name="p", group="default") + FOLLOWS)


@pytest.fixture
def shared(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper, starting: SparkServer, installed: Path
) -> Iterator[tuple[DagsterDev, dict[str, Neighbour]]]:
    """Both, with files that landed before they began."""
    with Postgres() as postgres:
        (tmp_path / "dagster.yaml").write_text(SETTINGS.format(url=postgres.url))
        environ = {**plain_environment(installed, tmp_path / "home"), "ROTA_SESSION_TIMEOUT": "4", "ROTA_LINGER": "15"}
        dev = DagsterDev(tmp_path / "home", environ, tmp_path / "workspace.yaml", tmp_path / "dagster.yaml")
        dev.environ["PYTHONPATH"] = str(installed)
        write_example(
            tmp_path, {"127.0.0.1:2181": zookeeper.hosts, "/srv/rota": str(tmp_path), "http://127.0.0.1:3000": dev.url}
        )
        both = {name: Neighbour(name, tmp_path, starting) for name in NAMES}
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
            dev.stop(kill=True)


@pytest.mark.release  # test_deployments.py has the choice of a deployment, without the stack
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
        assert type(instance.run_coordinator).__name__ == "QueuedRunCoordinator"
        assert instance.get_dynamic_partitions("staging/p/partitions") == ["p:x"]
        assert instance.get_dynamic_partitions("p/partitions") == ["p:x", "p:y"]
        for location, job in (("staging", "staging__p__consume"), ("production", "p__consume")):
            assert {run.job_name for run in list_runs(location)} >= {job}
        shown = {str(m["partition"]) for m in dev.materializations("staging", "p", "checkpoints")}
        assert shown <= {"p:x"}
        assert staging.rota("replay", "p:x", "--from", "0", "--to", "1") == "p:x: 1 offset replayed\n"
        assert "runs can be removed" in staging.rota("purge", "--dry-run")
        asked_for = {"staging__p__replay", "staging__rota__purge"}
        assert {run.job_name for run in list_runs("staging")} > asked_for
        assert {run.job_name for run in list_runs("production")} <= {"default__rebalance", "p__consume", "__ASSET_JOB"}
        del staging.environ["ROTA_LOCATION"]
        for asked, job in (("replay", "p:x", "--from", "0", "--to", "1"), "p__replay"), (("purge",), "rota__purge"):
            refused = staging.rota(*asked)
            assert f"2 deployments at {dev.url} have the job {job}: production, staging. Give --location" in refused
        staging.environ["ROTA_LOCATION"] = "staging"
        staging.land("p", "x", 7)
        staging.holds("p", {"x": [1, 2, 7]})
        assert list_runs("staging", dg.DagsterRunStatus.STARTED)
        production.land("p", "y", 6)
        serving = list_runs("production", dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.QUEUED)
        staging.kill("w1")  # its runs are for a worker that is gone: its sensor cancels them, and no others
        going = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.QUEUED)
        wait_until(lambda: not list_runs("staging", *going), pause=1)
        production.holds("p", {"x": [3], "y": [4, 5, 6]})
        assert not list_runs("production", dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE)
        assert {run.run_id for run in serving} <= {run.run_id for run in list_runs("production")}
        assert wait_until(staging.list_needs)
        assert production.list_needs() == []
    wait_until(lambda: have_followed(dev, "p") == {"p:x", "p:y"}, pause=1)
    assert have_followed(dev, "staging", "p") <= {"p:x"}


def have_followed(dev: DagsterDev, *place: str) -> set[str]:
    """The keys for which the asset below ran after the newest batch, and at most once for each that was reported."""
    reported, ran = (group_times(dev, *place, asset) for asset in ("records", "follows"))
    assert all(len(ran[key]) <= len(reported[key]) for key in ran)
    return {key for key, times in ran.items() if max(times) > max(reported[key])}


def group_times(dev: DagsterDev, *key: str) -> dict[str, list[float]]:
    """Partition -> when it was materialized."""
    found: dict[str, list[float]] = {}
    for one in dev.materializations(*key):
        found.setdefault(str(one["partition"]), []).append(float(one["timestamp"]))
    return found
