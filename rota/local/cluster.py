"""A standalone cluster of Spark on loopback, out of PySpark's own jars.

Laws:
1. A process of it ends with its parent, however that ends: the kernel kills the master and the Spark workers, and an
   executor ends with its Spark worker.
2. It inherits nothing of this process but where Java and the system's programs are, and what it is given as `environ`. An
   executor works in a folder of its own, below that of its Spark worker; neither a checkout nor PYTHONPATH is to be seen
   from there.
3. A master that is started again has its former address and knows what the one before knew, as Spark's recovery by a folder
   has it; Spark workers and applications find it there.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from sysconfig import get_path
from types import TracebackType

import psutil

from rota.errors import EnvironmentFailed
from rota.java import LIGHT, find_java, find_spark_home, join_options, use_archive
from rota.local.child import Child
from rota.machine import free_port, is_listening

STARTING = 120.0  # seconds for a master or a Spark worker
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
MEMORY = "4g"  # that a Spark worker has for executors
# They start sooner; with the archive of `rota prepare` the cluster is up for 9 CPU seconds instead of 15.
SOON = join_options((*LIGHT, *use_archive("spark")))
SMALL = {  # of an application on it
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "600m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SOON,
}
# A Python with what is installed, and without what its `.pth` files name: among that is a checkout of rota's developers.
PACKAGES_ALONE = f'PYTHONPATH="$PYTHONPATH:{get_path("purelib")}" exec {sys.executable} -S "$@"'


class SparkCluster(AbstractContextManager["SparkCluster"]):
    """A master and `workers` Spark workers of `cores` each. They get `environ`, such as the credentials of a bucket."""

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        cores: int = 2,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.cores, self.environ = folder.resolve(), cores, dict(environ or {})
        self.names = [f"worker-{number}" for number in range(workers)]
        self.children: dict[str, Child] = {}
        self.port = free_port()

    @property
    def url(self) -> str:
        """The `--master` of a worker."""
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> "SparkCluster":
        try:
            self.start_master()
            for began in [self._begin_worker(name) for name in self.names]:
                self._wait(*began)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_master(self) -> None:
        """Start the master, and wait until it listens. Raises EnvironmentFailed."""
        master = self._start("master", MASTER, "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        self._wait(master, lambda: is_listening(self.port))

    def start_worker(self, name: str) -> None:
        """Start a Spark worker, and wait until it has registered. Raises EnvironmentFailed."""
        self._wait(*self._begin_worker(name))

    def _begin_worker(self, name: str) -> tuple[Child, Callable[[], bool]]:
        """The Spark worker, and whether the master knows it."""
        room = ("--cores", str(self.cores), "--memory", MEMORY, "--work-dir", str(self.folder / name / "work"))
        worker = self._start(name, WORKER, *room, "--host", "127.0.0.1", "--webui-port", "0", self.url)
        began = worker.log.stat().st_size
        return worker, lambda: b"Successfully registered" in worker.log.read_bytes()[began:]

    def write_python(self) -> Path:
        """The Python for its executors, which PYSPARK_PYTHON of a worker names."""
        path = self.folder / "python"
        write_program(path, PACKAGES_ALONE)
        return path

    def find_executors(self, name: str | None = None) -> list[psutil.Process]:
        """The executors that live, of one Spark worker or of all."""
        children = [self.children[one] for one in self.names if one in self.children and name in (None, one)]
        found = [one for child in children if child.running for one in psutil.Process(child.process.pid).children(True)]
        return [one for one in found if EXECUTOR in _read_command(one)]

    def kill(self, name: str) -> None:
        """kill -9 to the master or to a Spark worker alone; `start_master` or `start_worker` brings another up."""
        child = self.children.pop(name)
        child.process.kill()
        child.process.wait()

    def close(self) -> None:
        """Ends all of it."""
        for child in self.children.values():
            child.end(patience=0)
        self.children.clear()

    def _start(self, name: str, program: str, *words: str) -> Child:
        java = find_java()
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        options = {"recoveryMode": "FILESYSTEM", "recoveryDirectory": str(self.folder / "recovery")}
        environment = {
            "HOME": str(place),
            "PATH": os.pathsep.join(filter(None, [str(Path(java).parent), os.defpath, _locate_bash()])),
            "JAVA_HOME": str(java.resolve().parent.parent),
            "SPARK_HOME": str(find_spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(place / "local"),
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join([SOON, *(f"-Dspark.deploy.{k}={v}" for k, v in options.items())]),
            **self.environ,
        }
        command = [str(find_spark_home() / "bin" / "spark-class"), program, *words]
        self.children[name] = Child(name, command, place / "log", environment, signal.SIGTERM, folder=place)
        return self.children[name]

    def _wait(self, child: Child, done: Callable[[], bool]) -> None:
        until = time.monotonic() + STARTING
        while not done():
            if not child.running or time.monotonic() > until:
                why = f"{child.name} of Spark's cluster {child.describe_end()}: {child.read_log_end()}"
                raise EnvironmentFailed(f"{why}. See {child.log}")
            time.sleep(0.1)


def write_program(path: Path, line: str) -> None:
    """Puts a program in place of what is there, at once: a line of shell."""
    unseen = path.with_name(f".{path.name}")
    unseen.write_text(f"#!/bin/sh\n{line}\n")
    unseen.chmod(0o755)
    unseen.replace(path)


def _locate_bash() -> str:
    """Spark's scripts need it, wherever it is."""
    found = shutil.which("bash")
    return str(Path(found).parent) if found else ""


def _read_command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
