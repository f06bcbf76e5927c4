"""A standalone Spark cluster on loopback, from PySpark's own jars.

Laws:
1. Each process ends with its parent: the kernel kills the master and the Spark workers, and an executor ends with its Spark
   worker.
2. The cluster inherits from this process only the paths of Java and of the system's programs, and `environ`. An executor
   works in a folder below that of its Spark worker, without a checkout or PYTHONPATH.
3. A restarted master has its former address and the state of the former master, by Spark's recovery from a folder. Spark
   workers and applications connect to it again.
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
MEMORY = "4g"  # of a Spark worker, for executors
# With the archive of `rota prepare` the cluster takes 9 CPU seconds to start instead of 15.
QUICK_START = join_options((*LIGHT, *use_archive("spark")))
SMALL = {  # settings of an application
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "600m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
}
# A Python with the installed packages, but without `.pth` files, one of which may name a checkout of rota.
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
        """Return the `--master` of a worker."""
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
        """Start a Spark worker. Return it, and a function: whether it has registered."""
        room = ("--cores", str(self.cores), "--memory", MEMORY, "--work-dir", str(self.folder / name / "work"))
        worker = self._start(name, WORKER, *room, "--host", "127.0.0.1", "--webui-port", "0", self.url)
        began = worker.log.stat().st_size
        return worker, lambda: b"Successfully registered" in worker.log.read_bytes()[began:]

    def write_python(self) -> Path:
        """Write the Python program for executors, and return its path, for PYSPARK_PYTHON of a worker."""
        path = self.folder / "python"
        write_program(path, PACKAGES_ALONE)
        return path

    def find_executors(self, name: str | None = None) -> list[psutil.Process]:
        """Return the live executors, of one Spark worker or of all."""
        children = [self.children[one] for one in self.names if one in self.children and name in (None, one)]
        found = [one for child in children if child.running for one in psutil.Process(child.process.pid).children(True)]
        return [one for one in found if EXECUTOR in _read_command(one)]

    def kill(self, name: str) -> None:
        """Send SIGKILL to only the master or one Spark worker; `start_master` or `start_worker` starts another."""
        child = self.children.pop(name)
        child.process.kill()
        child.process.wait()

    def close(self) -> None:
        """End all processes."""
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
            "SPARK_DAEMON_JAVA_OPTS": " ".join([QUICK_START, *(f"-Dspark.deploy.{k}={v}" for k, v in options.items())]),
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
    """Write a program of one line of shell, and replace an existing file atomically."""
    unseen = path.with_name(f".{path.name}")
    unseen.write_text(f"#!/bin/sh\n{line}\n")
    unseen.chmod(0o755)
    unseen.replace(path)


def _locate_bash() -> str:
    """Return the folder of bash, which Spark's scripts need; empty if there is none."""
    found = shutil.which("bash")
    return str(Path(found).parent) if found else ""


def _read_command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
