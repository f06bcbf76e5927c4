"""A small world for a run: landing folders, a pipeline file, a group in a ZooKeeper in memory, and one Spark server."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.catalog import load
from rota.coordination.group_state import GroupState
from rota.coordination.membership import join
from rota.coordination.records import Head, Live, Own, Slot, Slots, encode
from rota.dataplane.ports import Ports
from rota.dataplane.spark import session
from rota.dataplane.spark.spark_server import MEMORY, OPTIONS, SERVER, SparkSettings
from rota.java import LIGHT
from rota.local.bucket import CREDENTIALS
from rota.machine import free_port, is_listening
from rota.pipeline import Pipeline
from rota.registry import open_ports
from rota.run.consume import CommittedBatch, Event, consume
from rota.stores import is_url, open_objects
from simulator.memory_store import MemoryServer
from tests.azurite import KEY
from tests.claiming import claim_one
from tests.conservation.engines import ENGINES
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADER = """
from rota import Pipeline, delta, files
def source(**more):
    return files({landing!r}, **{{"format": "json", "schema": "n int, word string", "settle": 0.0, **more}})
"""
# A Spark for small batches has Java's cheaper compiler alone: 129 tests (parsing, origins, bad records, a whole
# source) cost it 91 processor seconds, and 114 with both. By itself that one has 48 MB for compiled code, which 200 queries
# fill.
BRIEF = {OPTIONS: " ".join((*LIGHT, "-XX:ReservedCodeCacheSize=240m"))}
PLAIN = "pipeline = Pipeline(source=source(), table=delta({table!r}))\n"


@dataclass
class World:
    """`text` is the rest of the pipeline file, after HEADER; `{table}` in it becomes the location of its tables."""

    folder: Path
    endpoint: str | None = None
    text: str = PLAIN
    server: MemoryServer = field(default_factory=MemoryServer)
    spark: "SparkSession | None" = None
    group: str = "g"
    landing: str = ""  # where files land: the world's own folder, or a prefix of a bucket

    def __post_init__(self) -> None:
        self.landing = self.landing or str(self.folder / "land")
        self.tree = self.open()
        self.tree.found()
        self.incarnation = ""
        self.runs = 0
        self.write(self.text)

    def open(self) -> GroupState:
        """The group over a session of its own."""
        return GroupState(self.server.connect(), self.group)

    @property
    def table(self) -> Path:
        return self.folder / "tables" / "p"

    def write(self, text: str) -> None:
        """Rewrite the pipeline file, and load it."""
        pipelines = self.folder / "pipelines"
        pipelines.mkdir(parents=True, exist_ok=True)
        header = HEADER.format(landing=self.landing)
        (pipelines / "p.py").write_text(header + text.replace("{table!r}", repr(str(self.table))))
        catalog = load(pipelines)
        assert not catalog.refused, catalog.refused
        self.pipeline: Pipeline = catalog.pipelines["p"]

    def call(self, name: str) -> None:
        """Rename the pipeline's file, and load it."""
        file = self.folder / "pipelines" / f"{self.pipeline.name}.py"
        file.rename(file.with_stem(name))
        self.pipeline = load(file.parent).pipelines[name]

    def land(self, key: str, name: str, lines: Iterable[str], suffix: str = ".json") -> None:
        self.put(f"{key}/{name}{suffix}", "".join(f"{line}\n" for line in lines).encode())

    def put(self, path: str, content: bytes) -> None:
        """Land one file, or overwrite it."""
        if is_url(self.landing):
            open_objects(self.landing).put(path, content)
            return
        file = Path(self.landing) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def get(self, path: str) -> bytes:
        """Return the landed file."""
        if is_url(self.landing):
            return bytes(open_objects(self.landing).get(path).bytes())
        return (Path(self.landing) / path).read_bytes()

    def delete(self, path: str) -> None:
        """Delete the landed file."""
        if is_url(self.landing):
            open_objects(self.landing).delete(path)
        else:
            (Path(self.landing) / path).unlink()

    def rows(self, key: str, name: str, count: int, first: int = 0) -> None:
        self.land(key, name, (f'{{"n": {i}, "word": "w{i}"}}' for i in range(first, first + count)))

    def join(self, worker: str = "w1", tree: GroupState | None = None) -> str:
        """Let a worker join, with its own session unless `tree` is given."""
        tree = tree or self.open()
        self.incarnation = join(tree, worker, Live(endpoint=self.endpoint))
        return self.incarnation

    def give(self, *keys: str, incarnation: str | None = None) -> str:
        """Set the worker's target to exactly these keys, and let it claim them from their owners."""
        incarnation = incarnation or self.incarnation or self.join()
        worker, store, paths = incarnation.rpartition("@")[0], self.tree.store, self.tree.paths
        partitions = [self.pipeline.partition(k) for k in keys]
        epoch = self.tree.head().record.epoch + 1
        self.tree.update(
            paths.assign(worker), Slots, lambda _: Slots(slots=(Slot(epoch=epoch, partitions=frozenset(partitions)),))
        )
        self.tree.update(paths.head, Head, lambda _: Head(epoch=epoch))
        self.tree.grow(self.pipeline.name, keys)
        for p in partitions:
            if store.get(paths.own(p)) is None:
                store.create(paths.own(p), encode(Own()))
            if (own := self.tree.owned((p,))[p]).incarnation != incarnation:
                claim_one(self.tree, incarnation, p, own.version)
        return incarnation

    def connect(self, endpoint: str | None) -> "SparkSession":
        return self.spark or session.open_session(endpoint)

    def run(self, *keys: str, incarnation: str | None = None, ports: Ports | None = None, **more: Any) -> list[Event]:
        """Run once over the keys, in a new ZooKeeper session, on the worker's Spark. A run that continues another one
        gets its `ports`."""
        self.runs += 1
        tree = self.open()
        partitions = [self.pipeline.partition(k) for k in keys]
        try:
            return list(
                consume(
                    tree,
                    self.pipeline,
                    incarnation or self.incarnation,
                    partitions,
                    f"run{self.runs}",
                    ports or self.open_ports(**more),
                )
            )
        finally:
            tree.store.close()

    def open_ports(self, connect: "session.Connect | None" = None, settings: Mapping[str, str] | None = None) -> Ports:
        """Return the ports that the pipeline declares. `connect` makes the sessions, with these settings beside ours."""

        def configure(endpoint: str | None) -> "SparkSession":
            spark = (connect or self.connect)(endpoint)
            for name, value in (settings or {}).items():
                spark.conf.set(name, value)
            return spark

        return open_ports(self.pipeline, self.group, self.tree.meta().id, configure)

    @property
    def ports(self) -> Ports:
        return self.open_ports()

    def until_idle(self, *keys: str) -> list[Event]:
        """Run until nothing is new."""
        found: list[Event] = []
        while True:
            events = self.run(*keys)
            found += events
            if not any(isinstance(e, CommittedBatch) and not e.healed for e in events):
                self.checkpoints = self.tree.checkpoints()
                return found


def spark_server(folder: Path, port: int, slots: int) -> subprocess.Popen[bytes]:
    """A Spark Connect server with a worker's settings, without a token, in its own process group, started in `folder`: it
    cannot import what the tests can. It is `interpreted` and `BRIEF`, which cost a sixth less each; `tests.conservation` has
    both engines."""
    import pyspark

    home = Path(pyspark.__file__).parent
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    heap = {MEMORY: f"{max(2, slots) * 512}m"}  # for two slots as a worker; a record of 20 MB takes 0.8 GB
    conf = SparkSettings(f"local[{slots}]", {**loopback, **heap, **BRIEF, **ENGINES["interpreted"]})
    settings = conf.complete(port, folder)
    command = [str(home / "bin/spark-submit"), "--class", SERVER]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environ |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
    environ |= CREDENTIALS | {"AZURE_STORAGE_ACCOUNT_KEY": KEY}  # for the stores that the tests start
    environ["SPARK_LAUNCHER_OPTS"] = " ".join(LIGHT)
    command += ["--master", conf.master]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log, start_new_session=True)


def make_probe(port: int, server: subprocess.Popen[bytes]) -> Callable[[], bool]:
    def answers() -> bool:
        assert server.poll() is None, "the Spark server died; see its log"
        return is_listening(port)

    return answers


def start_spark(folder: Path, slots: int = 2) -> tuple[subprocess.Popen[bytes], str]:
    """Yield a server that answers, and its endpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    server = spark_server(folder, port, slots)
    wait_until(make_probe(port, server))
    return server, f"sc://127.0.0.1:{port}"


def kill(server: subprocess.Popen[bytes]) -> None:
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()
