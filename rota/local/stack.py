"""The processes of `rota up` and `rota demo`: ZooKeeper, workers and Dagster, each in its own process group.

Invariant: each process that a stack started ends with the stack, also after an error.
"""

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.errors import ConfigError, EnvironmentFailed
from rota.java import list_jars
from rota.local import dagster_services
from rota.local.bucket import BucketServer, serve_buckets
from rota.local.child import Child
from rota.local.cluster import SMALL, SparkCluster
from rota.local.folder import StateFolder, find_pipelines, find_project
from rota.local.kafka_broker import KafkaBroker
from rota.local.page import DagsterPage
from rota.local.storage import Storage, store_in_bucket, store_on_disk
from rota.machine import explain_exit, free_port

if TYPE_CHECKING:
    from pyarrow import fs

# of each worker, unless its Spark is a cluster
SPARK_OPTIONS = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")


def read_environment(session: str | None = None) -> dict[str, str]:
    """Return this process's environment; `session` replaces its session timeout, in seconds."""
    return {**os.environ, **({"ROTA_SESSION_TIMEOUT": session} if session else {})}


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """In the block, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that each `with` is left in order."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


MIN_SLOTS, OTHERS = 8, 4  # slots of consuming runs; slots beside them, of rebalances and clicks


def set_slots(settings: str, workers: int, pipelines: int) -> str:
    """Return the text of dagster.yaml with a slot for each pair of a worker and a pipeline, but at least `MIN_SLOTS`, and
    with `OTHERS` slots for other runs. If workers or pipelines that are added later exceed the slots, runs take turns."""
    slots = max(MIN_SLOTS, workers * pipelines)
    for name, count in (("max_concurrent_runs: ", slots + OTHERS), ("key: rota/consume, limit: ", slots)):
        settings, found = re.subn(rf"({re.escape(name)})\d+", rf"\g<1>{count}", settings)
        if found != 1:
            raise ConfigError(
                f"dagster_project/dagster.yaml has {name!r} {found} times, not once. Bring it back: git checkout"
            )
    return settings


class Stack(AbstractContextManager["Stack"]):
    """A context manager: its methods start processes, and its exit ends all of them. Dagster ends first, so that no run
    outlives ZooKeeper."""

    def __init__(self, state: StateFolder, env: Mapping[str, str] = os.environ) -> None:
        self.state = state.make()
        self.root = find_project()
        self.children: dict[str, Child] = {}
        self.env = {
            **dagster_services.SETTINGS,
            **env,
            "DAGSTER_HOME": str(state.dagster.resolve()),
            "ROTA_PIPELINES": env.get("ROTA_PIPELINES", str(find_pipelines(self.root))),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(self.root), env.get("PYTHONPATH", "")])),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "",  # each run is a process, and reuses the compiled files of earlier ones
        }
        self.spark: tuple[str, ...] = SPARK_OPTIONS
        self.kafka: KafkaBroker | None = None
        self.sources: dict[str, str] = {}  # variables for clients of the sources that this stack started
        self.storage = self._use(store_on_disk(self.state))
        self.server: EmbeddedZooKeeper | None = None
        self._open = ExitStack()
        self._open.enter_context(state.hold())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_zookeeper(self, port: int = 0) -> str:
        """Start ZooKeeper over the state folder, and return its hosts."""
        self.server = self._open.enter_context(EmbeddedZooKeeper(self.state.zookeeper, port=port))
        theirs = [name for name in self.env if name.startswith("ROTA_ZOOKEEPER")]  # credentials of another one
        for name in theirs:
            del self.env[name]
        self.env["ROTA_ZOOKEEPER"] = self.server.hosts
        return self.server.hosts

    def restart_zookeeper(self) -> str | None:
        """If ZooKeeper ended, restart it at its port, and return how it ended. Raises EnvironmentFailed."""
        if self.server is None or (code := self.server.ended()) is None:
            return None
        self.server.kill()
        self.server.start()
        return explain_exit(code)

    def start_bucket(self, beside: str = "") -> BucketServer:
        """Start an S3 server. Every process that the stack starts later gets its credentials.

        Args:
            beside: the name of its bucket, for pipelines that name the bucket. Without a name, the landing folders and
                tables of the stack are in a new bucket from now on.

        Returns:
            The server.

        Raises:
            ConfigError: the server, or Spark's jars for buckets, are not installed.
        """
        if not list_jars():
            raise ConfigError("Spark has no jars to read a bucket. Type: rota prepare --s3")
        server = self._open.enter_context(serve_buckets(self.state.bucket))
        self.env = {name: value for name, value in self.env.items() if not name.startswith("AWS_")}
        storage = store_in_bucket(server, beside)
        if beside:
            self.sources |= storage.environ
            self.env |= storage.environ
        else:
            self.storage = self._use(storage)
        return server

    def start_cluster(self) -> SparkCluster:
        """Start a Spark cluster with room for 16 workers, and return it. Workers that start later are its applications. Its
        executors get only the environment of the storage."""
        cluster = self._open.enter_context(SparkCluster(self.state.cluster, cores=8, environ=self.storage.environ))
        conf = {**SMALL, "spark.cores.max": "1"}
        options = (word for name, value in conf.items() for word in ("--conf", f"{name}={value}"))
        self.spark = ("--master", cluster.url, *options)
        self.env["PYSPARK_PYTHON"] = str(cluster.write_python())
        return cluster

    def start_kafka(self, more: Mapping[str, str] | None = None) -> KafkaBroker:
        """Start a Kafka broker with `more` settings, set KAFKA_SERVERS, and return the broker. Its topics outlive the stack.
        Raises ConfigError if it is not installed."""
        broker = KafkaBroker(self.state.root / "kafka", more)
        self._open.callback(broker.stop)
        self.sources["KAFKA_SERVERS"] = self.env["KAFKA_SERVERS"] = broker.servers
        self.kafka = broker
        return broker

    def _use(self, storage: Storage) -> Storage:
        self.env |= {"ROTA_LANDING": storage.landing, "ROTA_TABLES": storage.tables, **storage.environ}
        return storage

    def open_landing(self, name: str) -> "fs.FileSystem":
        """Open the landing folder of this name."""
        return self.storage.open(f"{self.storage.landing}/{name}")

    def open_tables(self, name: str) -> "fs.FileSystem":
        """Open the folder with the tables of the pipeline of this name."""
        return self.storage.open(f"{self.storage.tables}/{name}")

    def start_worker(self, name: str) -> Child:
        """Start `rota worker --id name`, with its own Spark."""
        command = [sys.executable, "-m", "rota", "worker", "--id", name, *self.spark]
        # If this process dies, SIGHUP ends the worker at once: a handover would wait for the ZooKeeper of this stack.
        return self._start(name, command, signal.SIGTERM, signal.SIGHUP)

    def start_dagster(self, wanted: int) -> DagsterPage:
        """Start the code server, and once it serves, the page and the daemon with its sensors.

        Args:
            wanted: The port of the page, if it is free.

        Returns:
            The page, which may not answer yet. The limits of runs count the workers that were started before.

        Raises:
            EnvironmentFailed: A process of the stack ended meanwhile.
        """
        port = free_port(wanted)
        shipped = (self.root / "dagster_project" / "dagster.yaml").read_text(encoding="utf-8")
        pipelines = len(list(Path(self.env["ROTA_PIPELINES"]).glob("[!_.]*.py")))
        settings = set_slots(shipped, workers=len(self.children), pipelines=pipelines)
        (self.state.dagster / "dagster.yaml").write_text(settings, encoding="utf-8")
        # a temporary path, because the path of a socket must be short
        address = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="rota-"))) / "code"
        file = self.root / "dagster_project" / "own.py"
        commands = dagster_services.make_commands(file, self.root, self.state.dagster, address, port)
        # Each ends by SIGINT. A code server that loses its parent still ends the runs that it started.
        self._start(dagster_services.CODE, commands[dagster_services.CODE], signal.SIGINT, signal.SIGINT)
        while not dagster_services.listens(address):
            self.check()
            time.sleep(0.2)
        for name in (dagster_services.PAGE, dagster_services.DAEMON):
            self._start(name, commands[name], signal.SIGINT)
        return DagsterPage(f"http://127.0.0.1:{port}")

    def announce(self, page: DagsterPage) -> Mapping[str, str]:
        """Write the variables by which commands on this machine find the stack while it runs; see `join_running`.

        Returns:
            The variables that a command needs.
        """
        names = ("ROTA_ZOOKEEPER", "ROTA_PIPELINES", "ROTA_LANDING", "ROTA_TABLES")
        variables = {name: self.env[name] for name in names} | self.sources | {"ROTA_DAGSTER": page.address}
        self._open.enter_context(self.state.announce(variables))
        return variables

    def restart(self, name: str) -> Child:
        """Restart an ended process by its command, after its process group is killed."""
        child = self.children.pop(name)
        child.end(patience=0)
        self.children[name] = again = child.start_again()
        return again

    def find_ended(self) -> Child | None:
        """Return a child that ended by itself; None while all run."""
        return next((c for c in self.children.values() if not c.running), None)

    def check(self) -> None:
        """Raise EnvironmentFailed, with the end of its log, if a child ended by itself."""
        if child := self.find_ended():
            raise EnvironmentFailed(f"{child.name} {child.describe_end()}: {child.read_log_end()}. See {child.log}")

    def kill(self, name: str) -> None:
        """Send SIGKILL to a worker, as the kernel does if memory is short. Its supervisor is not killed."""
        child = self.children.pop(name)
        child.kill_below()
        child.end(patience=5)

    def close(self) -> None:
        """End Dagster, then all workers at once, then ZooKeeper."""
        self._end(
            [name for name in dagster_services.NAMES if name in self.children]
        )  # Dagster's daemon would wait 30 s for ticks
        self._end(list(self.children))
        self._open.close()

    def _end(self, names: Sequence[str]) -> None:
        """Request the end of these children, all at once, and kill those that still run after 3 s."""
        ending = [self.children.pop(name) for name in names]
        for child in ending:
            child.ask_to_end()
        deadline = time.monotonic() + 3
        for child in ending:
            child.end(patience=max(0.0, deadline - time.monotonic()))

    def _start(
        self, name: str, command: Sequence[str], stop: signal.Signals, orphaned: signal.Signals = signal.SIGKILL
    ) -> Child:
        child = Child(name, command, self.state.logs / f"{name}.log", self.env, stop, orphaned)
        self.children[name] = child
        return child
