"""A whole line on real parts: ZooKeeper, workers by `rota worker` on one shared Spark, the page with its daemon."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.coordination.store import Store
from rota.dataplane.spark.spark_server import SparkServer
from tests.face.dagster_dev import ROOT, DagsterDev
from tests.processes import strike_host
from tests.waiting import LONG, wait_until

PIPELINE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("${{ROTA_LANDING}}/{name}", format="json", schema="n int", settle=0.2),
    table=delta("${{ROTA_TABLES}}/{name}"), group="{group}",
)
"""
BELOW = """
import dagster as dg


@dg.asset(
    deps=[["c", "records"]],
    partitions_def=dg.DynamicPartitionsDefinition(name="c/partitions"),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def below() -> None: ...
"""
SESSION = 4.0


class Line:
    """Two pipelines `a`, `b` in group `day`, `c` in group `night` with an asset `below` it; what the tests do to them, and
    what came of it."""

    store: Store | None = None

    def __init__(self, folder: Path, zookeeper: str, spark: SparkServer) -> None:
        self.folder, self.zookeeper, self.spark = folder, zookeeper, spark
        self.landing, self.tables, self.pipelines = folder / "landing", folder / "tables", folder / "pipelines"
        for path in (self.landing, self.tables, self.pipelines, folder / "logs"):
            path.mkdir()
        for name, group, more in (("a", "day", ""), ("b", "day", ""), ("c", "night", BELOW)):
            (self.pipelines / f"{name}.py").write_text(PIPELINE.format(name=name, group=group) + more)
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.dev: DagsterDev

    def start(self) -> None:
        """Workers and page at once, while Spark still starts."""
        self.environ = {
            "ROTA_ZOOKEEPER": self.zookeeper,
            "ROTA_PIPELINES": str(self.pipelines),
            "ROTA_LANDING": str(self.landing),
            "ROTA_TABLES": str(self.tables),
            "ROTA_SESSION_TIMEOUT": f"{SESSION:g}",
            "ROTA_REPORT": "6",
            "ROTA_LINGER": "10",  # tests wait for runs to end
            "PYTHONPATH": str(ROOT),
        }
        self.dev = DagsterDev(self.folder / "dagster", self.environ)
        for worker, group in (("w1", "day"), ("w2", "day"), ("n1", "night")):
            self.join(worker, group)
        self.dev.start()
        wait_until(self.spark.ready)
        self.store = connect(self.zookeeper, 10)

    def stop(self) -> None:
        for worker in list(self.workers):
            self.kill(worker)
        if self.store is not None:
            self.store.close()
            self.store = None
        if hasattr(self, "dev"):
            self.dev.stop(kill=True)

    # --- what a user does

    @contextmanager
    def change(self, pipeline: str, transform: str, functions: str = "") -> Iterator[None]:
        """Meanwhile the pipeline's file has this transform. A run loads the file as it is, so nothing is reloaded."""
        file = self.pipelines / f"{pipeline}.py"
        before = file.read_text()
        given = f"{functions}\npipeline = Pipeline(\n    transform={transform},"
        file.write_text(before.replace("pipeline = Pipeline(", given))
        try:
            yield
        finally:
            file.write_text(before)

    def land(self, pipeline: str, key: str, *numbers: int) -> None:
        """One file of these records in the folder of one key, written aside and renamed."""
        folder = self.landing / pipeline / key
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{numbers[0]:06d}.json"
        aside = folder / f".{file.name}"
        aside.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        aside.rename(file)

    def join(self, worker: str, group: str) -> None:
        """A worker that uses the shared Spark."""
        command = ["-m", "rota", "worker", "--id", worker, "--group", group, "--spark", self.spark.url]
        with (self.folder / "logs" / f"{worker}.log").open("ab") as log:
            self.workers[worker] = subprocess.Popen(
                [sys.executable, *command], cwd=self.folder, env={**os.environ, **self.environ}, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def kill(self, worker: str) -> None:
        """SIGKILL to all of the worker's processes: no session is ended."""
        process = self.workers.pop(worker)
        strike_host(process.pid, signal.SIGKILL)
        process.wait(LONG)

    # --- what came of it

    @contextmanager
    def tree(self, group: str) -> Iterator[GroupState]:
        """The group's records, over one session for all tests."""
        assert self.store is not None
        yield GroupState(self.store, group)

    def rows(self, pipeline: str, column: str = "n") -> list[tuple[str, Any]]:
        """(partition, value) of every row that the table holds, sorted; read past all of rota, each file once."""
        folder = self.tables / pipeline / "main"
        if not DeltaTable.is_deltatable(str(folder)):
            return []
        found: list[tuple[str, Any]] = []
        for file in DeltaTable(str(folder)).file_uris():
            found += read_rows(file, column)
        return sorted(found)

    def holds(self, pipeline: str, expected: Mapping[str, list[int]]) -> None:
        """Waits until the table holds exactly these rows of these keys; other keys are other tests' business."""
        wanted = sorted((f"{pipeline}:{key}", n) for key, numbers in expected.items() for n in numbers)
        mine = {partition for partition, _ in wanted}
        wait_until(lambda: [row for row in self.rows(pipeline) if row[0] in mine] == wanted, pause=0.3)

    def epoch(self, group: str) -> Any:
        """The audit of the group's last publication; None before the first."""
        with self.tree(group) as tree:
            return (tree.epochs(1) or (None,))[-1] if tree.exists() else None

    def epoch_where(self, group: str, true: Any) -> Any:
        """The first last publication for which `true` holds."""
        return wait_until(lambda: (e := self.epoch(group)) and true(e) and e, pause=0.3)


@cache
def read_rows(file: str, column: str) -> list[tuple[str, Any]]:
    """(partition, value) of every row of a file; files that a table names never change."""
    table = pq.ParquetFile(file).read(columns=["_partition", column]).to_pydict()
    return list(zip(table["_partition"], table[column], strict=True))


def find_newest(line: Line, *key: str) -> dict[str, dict[str, object]]:
    """partition -> the metadata of its newest materialization."""
    found: dict[str, dict[str, object]] = {}
    for one in line.dev.materializations(*key):
        found.setdefault(str(one["partition"]), {**one["metadata"], "run": one["runId"]})
    return found
