"""Faults that would disturb a shared Spark: its archive is damaged, its disk is full, and at last it is killed."""

import importlib
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from rota.dataplane.spark import session
from rota.dataplane.spark.spark_server import ARCHIVE, SparkServer, SparkSettings
from rota.errors import EnvironmentFailed
from rota.java import locate_archive
from rota.run.consume import CommittedBatch
from tests.conservation.engines import ENGINES
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.world import World
from tests.waiting import wait_until


@dataclass(frozen=True)
class OwnSpark:
    """A server for these tests alone."""

    server: SparkServer
    archive: Path
    sessions: list[SparkSession] = field(default_factory=list)

    def open_world(self, folder: Path) -> World:
        """A run of the world in its own session."""
        self.sessions.append(session.open_session(self.server.url))
        return World(folder, self.server.url, spark=self.sessions[-1])

    def kill(self) -> None:
        """Its sessions end first: otherwise each searches for the server for seconds when this process ends."""
        while self.sessions:
            self.sessions.pop().stop()
        self.server.kill()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnSpark]:
    """A Spark whose archive is damaged."""
    folder, sound = tmp_path_factory.mktemp("own"), locate_archive(ARCHIVE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "prefix", str(folder / "a folder"))
        damaged = locate_archive(ARCHIVE)
        damaged.parent.mkdir(parents=True)
        shutil.copyfile(sound, damaged)
        with damaged.open("r+b") as file:
            file.seek(sound.stat().st_size // 3)
            file.write(b"not what Java wrote")
        settings = SparkSettings("local[1]", {"spark.driver.memory": "600m", **ENGINES["interpreted"]})
        server = SparkServer("disturbed", settings, folder / "scratch")
        server.start()
    try:
        wait_until(server.ready)
        yield OwnSpark(server, damaged)
    finally:
        server.stop()


@pytest.fixture
def world(own: OwnSpark, tmp_path: Path) -> World:
    return own.open_world(tmp_path)


def test_a_damaged_archive_is_left_aside(own: OwnSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the start takes longer."""
    monkeypatch.setattr(sys, "prefix", str(own.archive.parents[2]))
    assert locate_archive(ARCHIVE) == own.archive
    assert f"-XX:SharedArchiveFile={own.archive}" in Path(f"/proc/{own.server.pid}/cmdline").read_text().split("\0")
    assert not own.server.mapped()


def test_a_disk_that_takes_no_more_ends_the_run_parks_no_partition_and_loses_nothing(
    world: World, own: OwnSpark
) -> None:
    """A limit to the size of a file replaces the full disk: a task gets the same error for the same write. (Writes of the
    run itself are in without_spark/test_environment_faults.)"""
    draw = random.Random(5)
    world.give("a")
    for name in range(3):
        world.land("a", str(name), (f'{{"n": {i}, "word": "{draw.randbytes(40).hex()}"}}' for i in range(8000)))
    server = psutil.Process(own.server.pid)
    before = server.rlimit(psutil.RLIMIT_FSIZE)
    for one in (server, *server.children(recursive=True)):  # tasks write by Python
        one.rlimit(psutil.RLIMIT_FSIZE, (300 << 10, before[1]))
    try:
        with pytest.raises(EnvironmentFailed, match="File too large"):
            world.run("a")
    finally:
        for one in (server, *server.children(recursive=True)):
            one.rlimit(psutil.RLIMIT_FSIZE, before)
    assert not world.tree.parked()
    assert {type(e) for e in world.run("a")} == {CommittedBatch}
    assert damage(world.table / "main", {"p:a": dict.fromkeys(range(3), 8000)}) == NO_DAMAGE


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "each its own"])
def test_runs_leave_no_process_behind(own: OwnSpark, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run left a Python process: with a run each five minutes, a worker lost 10 GB in a day."""
    if not shared:
        monkeypatch.setattr(session, "share_python", session.make_active)
    call(own, str)
    server = psutil.Process(own.server.pid)
    before = len(server.children())  # each is the parent of its workers
    for _ in range(3):
        call(own, str)
    assert len(server.children()) - before == (0 if shared else 3)


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "whatever code"])
def test_a_session_runs_the_code_of_now(own: OwnSpark, marked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that a UDF imports was edited, and the next run got a Python process that had imported the old one."""
    if not marked:
        monkeypatch.setattr(session, "mark_code", lambda: 0)
    folder = own.server.scratch / "edited"
    folder.mkdir(exist_ok=True)
    name, found = f"prices_{marked}", []
    (folder / f"{name}.py").write_text("VALUE = 1")
    monkeypatch.syspath_prepend(folder)
    importlib.import_module(name)

    def read() -> str:
        sys.path.insert(0, str(folder))
        return str(importlib.import_module(name).VALUE)

    for value in (1, 22):
        (folder / f"{name}.py").write_text(f"VALUE = {value}")
        found.append(call(own, read))
    assert found == ["1", "22" if marked else "1"]


def call(own: OwnSpark, function: Callable[[], str]) -> str:
    """Return the function's result in a Python process of this Spark, in a new session."""
    spark = session.open_session(own.server.url)
    try:
        frame = spark.range(1, numPartitions=1)
        answers = {str(row[0]) for row in frame.select(udf(lambda _: function(), "string")("id")).collect()}
        said = frame.mapInArrow(
            lambda rows: [pa.RecordBatch.from_pydict({"said": [function() for _ in rows]})], "said string"
        )
        (answer,) = answers | {row[0] for row in said.collect()}
        return answer
    finally:
        spark.stop()


def test_a_server_killed_in_the_middle_ends_the_run_and_parks_no_partition(
    own: OwnSpark, tmp_path: Path, endpoint: str, spark: SparkSession
) -> None:
    """This test is the last that needs this Spark."""
    said = r"^Spark failed \(SparkConnectGrpcException: [^<]+\)\. .* next run"
    world, doomed = World(tmp_path, endpoint, spark=spark), session.open_session(own.server.url)
    plain = world.pipeline

    def transform(frame: object) -> object:
        own.kill()
        return frame

    world.give("a", "b")
    world.rows("a", "0", 1)
    world.rows("b", "0", 1)
    world.pipeline = replace(plain, transform=transform)
    with pytest.warns(UserWarning, match="RETRIES_EXCEEDED"), pytest.raises(EnvironmentFailed, match=said):
        world.run("a", "b", connect=lambda _: doomed)
    assert not world.tree.parked()
    assert not world.tree.runs()
    world.pipeline = plain
    assert {type(e) for e in world.run("a", "b")} == {CommittedBatch}
    assert damage(world.table / "main", {"p:a": {0: 1}, "p:b": {0: 1}}) == NO_DAMAGE
