"""A worker's own Spark: a Spark Connect server as a child process.

Laws: the server is in its parent's process group, so killing the group kills both, and it dies with its parent even
when that is killed alone. It does not hear Ctrl-C, which reaches the whole group: a worker that leaves ends its Spark last.
It is `ready` only while its process lives and answers, `silent` once it lived without an answer for a while, `stuck` once a
task that was ended goes on all the same. On a cluster it `has_executors` once one did a task, and as long as one is
connected. It never outlives `stop`. It answers nobody without its token (`token`), and what it is told stands in a file of
its user's and in no argument list. The user's options for Java come after ours, and win. Nothing here imports pyspark: the
process that owns a server stays light.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from rota.dataplane.spark import token
from rota.dataplane.spark.probe import explain_silence
from rota.dataplane.spark.words import STUCK, TELLING
from rota.errors import ConfigError, EnvironmentFailed
from rota.java import LIGHT, find_spark_home, join_options, list_jars, locate_archive, use_archive
from rota.machine import explain_exit, free_port, lock_file, tie_to_parent

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
ADDRESS = "spark.connect.grpc.binding.address"
PORT = "spark.connect.grpc.binding.port"
DRIVER_PORT = "spark.driver.port"
OPTIONS = "spark.driver.extraJavaOptions"
ARCHIVE = "spark"
JARS = "spark.jars"
CORES = "spark.cores.max"
MEMORY = "spark.driver.memory"
# Java's best compiler is kept for what runs for each record, at ten times its usual thresholds. With it a million records of
# JSON cost 4 CPU seconds, without it 10; start and 30 small batches 22, without it 16, and at the usual thresholds 31.
TIERS = {"Invocation": 50_000, "MinInvocation": 6_000, "Compile": 150_000, "BackEdge": 400_000}
# One thread that collects takes 30 % less memory than Java's own choice, and 20 % less of a processor for a million records:
# on two cores, with 1 GB. All others wait for it, the more cores there are, and the longer the greater the heap. There Java
# chooses.
FEW_CORES, SMALL_HEAP = 2, 2_048  # MB
COLLECTOR = re.compile(r"-XX:[+]Use\w+GC\b")  # Java does not start with two
LASTING = (*(f"-XX:Tier4{name}Threshold={count}" for name, count in TIERS.items()), "-XX:-UsePerfData")
SILENCE = 30.0  # seconds without an answer after which a server is given up: no garbage collection may take so long
LOOK = 2.0  # seconds between two looks at who is connected: each reads all open files of the server
QUESTIONS = 6  # asked in that time, and all of them unanswered
PATIENCE = 1.0  # seconds for one answer
ENDED = {
    # What a client that died left running ends half a minute later. Spark's own: 2 m + 5 m + 30 s, in which its tasks hold
    # their slots. A client comes back to its query each time a stream of answers ends, and after a fault for some 3 s.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
    "spark.connect.execute.manager.detachedTimeout": "15s",
    "spark.connect.execute.manager.maintenanceInterval": "5s",
    # A task that was ended and goes on: on a cluster its executor is ended; here Spark only says so, see `stuck`.
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.threadDump": "false",
    "spark.task.reaper.killTimeout": "120s",
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """What the user may choose of a worker's Spark: the master URL and Spark's own settings."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    archive: tuple[str, ...] = field(default_factory=lambda: use_archive(ARCHIVE))  # Java's options about it

    def complete(self, port: int, scratch: Path) -> dict[str, str]:
        """Every setting of the server: ours, overridden by the user's. To their jars come those that read `s3a://`, and ours
        for Java come before theirs."""
        told = {
            ADDRESS: "127.0.0.1",
            PORT: str(port),
            "spark.ui.enabled": "false",
            MEMORY: "1g",
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.log.structuredLogging.enabled": "false",
            "spark.log.level": "WARN",
            **ENDED,
            **self.conf,
        }
        jars = [self.conf.get(JARS, ""), *map(str, list_jars())]
        java = join_options((*LASTING, *self._choose_collector(told[MEMORY]), *self.archive))
        told[OPTIONS] = f"{java} {self.conf.get(OPTIONS, '')}".rstrip()
        return told | ({JARS: ",".join(filter(None, jars))} if any(jars) else {})

    def _choose_collector(self, memory: str) -> tuple[str, ...]:
        """Java's option for it; none where the user gives one, or Java shall choose. On a cluster others do the work."""
        asked, there = re.match(r"local\[(\d+|[*])", self.master), os.cpu_count() or 1
        cores = 1 if not asked else there if asked[1] == "*" else min(int(asked[1]), there)
        heap = re.fullmatch(r"(\d+)(?:m|(g))?b?", memory.strip().lower())
        small = heap and int(heap[1]) * (1_024 if heap[2] else 1) <= SMALL_HEAP
        return (
            ("-XX:+UseSerialGC",)
            if cores <= FEW_CORES and small and not COLLECTOR.search(self.conf.get(OPTIONS, ""))
            else ()
        )

    def explain_greed(self) -> str:
        """What to say of an application that leaves none of its standalone cluster to others; empty of another one."""
        if not self.master.startswith("spark://") or CORES in self.conf:
            return ""
        return (
            f"it takes all cores of {self.master}, and the next worker gets none there: give each worker --conf {CORES}=N, "
            f"unless the master's spark.deploy.defaultCores says how many"
        )


class SparkServer:
    """One Spark Connect server and the folder of its log and scratch files; call it from the main thread only.

    (The kernel's parent-death signal follows the thread that started the child, not the process.)
    """

    def __init__(
        self,
        name: str,
        settings: SparkSettings,
        scratch: Path | None = None,
        *,
        silence: float = SILENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        token.refuse_open(settings.complete(0, Path())[ADDRESS])
        self.name, self.settings, self.silence, self._clock = name, settings, silence, clock
        self.scratch, self._lock = _scratch(name, scratch)
        self.log = self.scratch / "spark.log"
        self._began = self._read = 0  # bytes of the log: when it was started, and by now
        self._missed, self._ask_at = 0, 0.0  # questions in a row without answer; when the next is due
        self._process: subprocess.Popen[bytes] | None = None
        self._address: tuple[str, int] | None = None
        self._driver_port = 0  # where executors are connected, on a cluster
        self._trial: subprocess.Popen[bytes] | None = None
        self._tried = False  # whether an executor has ever done a task
        self._executors, self._count_at = False, 0.0  # whether there were some at the last look; when the next is due

    def start(self) -> int:
        """Start a server that is not running; returns its pid at once. It is `ready` some seconds later.

        A server started again has its former address, so that what was advertised holds."""
        port = self._address[1] if self._address is not None else free_port()
        conf = self.settings.complete(port, self.scratch)
        if not self._local():
            self._driver_port = int(conf.setdefault(DRIVER_PORT, str(free_port())))
        self._address = (conf[ADDRESS], int(conf[PORT]))
        command = [*tie_to_parent(interrupt=signal.SIG_IGN), *self._command(conf)]
        with self.log.open("ab") as log:
            self._began = self._read = log.tell()
            self._process = subprocess.Popen(
                command, env=self._environment(conf), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self._process.pid

    @property
    def pid(self) -> int | None:
        """The server's process, while it lives."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def url(self) -> str:
        """`sc://host:port` of the server last started; bound to every address, it is called by the machine's name."""
        if self._address is None:
            raise EnvironmentFailed("The Spark server was not started. Call start() first")
        host, port = self._address
        return f"sc://{socket.getfqdn() if host == '0.0.0.0' else host}:{port}"

    def mapped(self) -> bool:
        """Whether the server started from the archive of `rota prepare` (Linux tells)."""
        try:
            return str(locate_archive(ARCHIVE).resolve()) in Path(f"/proc/{self.pid}/maps").read_text()
        except OSError:
            return False

    def ready(self) -> bool:
        """Whether the process lives and answers."""
        return self.pid is not None and not explain_silence(self._near, PATIENCE)

    def has_executors(self) -> bool:
        """Whether an executor did a task since this object was made, and one is connected now; to be called now and then
        on a server that is `ready`. On a master `local[..]` the server works itself."""
        if self._local():
            return True
        if (now := self._clock()) < self._count_at:
            return self._executors
        self._count_at = now + LOOK
        if not self._tried:
            if self._trial is None:
                program = ["-m", "rota.dataplane.spark.trial", self._near]
                self._trial = subprocess.Popen(
                    [*tie_to_parent(interrupt=signal.SIG_IGN), sys.executable, *program],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            elif (code := self._trial.poll()) is not None:
                self._trial, self._tried = None, code == 0
        self._executors = self._tried and self._count_executors() > 0
        return self._executors

    def _count_executors(self) -> int:
        """How many connections to the driver's port there are: an executor keeps one at least. 1 where nobody can tell."""
        try:
            found = psutil.Process(self.pid).net_connections("tcp")
        except psutil.Error:
            return 1
        return sum(one.status == psutil.CONN_ESTABLISHED and one.laddr.port == self._driver_port for one in found)

    @property
    def _near(self) -> str:
        """The address by which this machine calls the server last started."""
        host, port = self._address or ("", 0)
        return f"sc://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"

    def silent(self) -> bool:
        """Whether nobody answered for `silence` seconds; to be called now and then, it asks when it is time to.

        Unanswered questions are counted, not seconds: who was stopped himself, together with his Spark, asked none."""
        if (now := self._clock()) < self._ask_at:
            return False
        self._ask_at = now + self.silence / QUESTIONS
        self._missed = 0 if self.ready() else self._missed + 1
        return self._missed >= QUESTIONS

    def stuck(self) -> str:
        """What Spark says of a task that was ended and goes on, in new lines of its log: it holds a slot, and no other way
        is known to get it back than to end the server. A task that nobody ended is none, however long it takes."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._read)
                new = log.read()
        except OSError:
            return ""
        self._read += new.rfind(b"\n") + 1
        found = STUCK.search(new.decode(errors="replace"))
        return found[0].strip() if found else ""

    def kill(self) -> None:
        """End the process without mercy; `start` brings another up."""
        self._end_trial()
        if self._process is not None:
            self._process.kill()
        self._missed = 0

    def _end_trial(self) -> None:
        if self._trial is not None:
            self._trial.kill()
            self._trial.wait()
        self._trial = None

    def last_words(self) -> str:
        """How the server ended; where nobody killed it, the last telling line that it wrote into its log since its start."""
        ended = self._process.poll() if self._process is not None else None
        if ended is not None and ended < 0:
            return f"it {explain_exit(ended)}"
        try:
            with self.log.open("rb") as log:
                log.seek(self._began)
                lines = log.read().decode(errors="replace").splitlines()[-200:]
        except OSError:
            return ""
        telling = [line for line in lines if TELLING.search(line) and "\tat " not in line]
        return (telling or [line for line in lines if line.strip()] or [""])[-1].strip()[:300]

    def stop(self, grace: float = 5.0) -> None:
        """End the server: politely, then after `grace` seconds without mercy. Its scratch folder goes with it."""
        self._end_trial()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._address is not None:
            token.forget_token(self._address[1])
        shutil.rmtree(self.scratch, ignore_errors=True)
        self._lock.close()

    def _command(self, conf: Mapping[str, str]) -> list[str]:
        """Everybody may read an argument list (`ps`), and only this user the file of settings."""
        file = self.scratch / "spark.properties"
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as lines:
            lines.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in sorted(conf.items()))
        submit = str(find_spark_home() / "bin" / "spark-submit")
        whose = ["--name", f"rota {self.name}", "--master", self.settings.master]
        return [submit, "--class", SERVER, *whose, "--load-spark-defaults", "--properties-file", str(file)]

    def _environment(self, conf: Mapping[str, str]) -> dict[str, str]:
        loopback = {"SPARK_LOCAL_IP": "127.0.0.1"} if conf[ADDRESS] == "127.0.0.1" and self._local() else {}
        return {
            "PYSPARK_PYTHON": sys.executable,  # else Spark's Python workers take the system's python3
            "SPARK_LAUNCHER_OPTS": " ".join(LIGHT),  # split at each blank
            **loopback,
            **os.environ,
            token.SPARKS_OWN: token.of_server(conf[ADDRESS], int(conf[PORT])),
            "SPARK_HOME": str(find_spark_home()),
            "SPARK_NO_DAEMONIZE": "1",
        }

    def _local(self) -> bool:
        return self.settings.master.startswith("local")


def _escaped(text: str) -> str:
    """A key or a value as a file of Java properties has it."""
    return re.sub(r"[\\\s=:#!]", lambda m: {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(m[0], f"\\{m[0]}"), text)


def _scratch(name: str, wanted: Path | None) -> tuple[Path, IO[bytes]]:
    """A folder of this process, locked as long as it lives; those that killed workers of this name left are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"rota-{name}-*/lock"):
        with contextlib.suppress(OSError):
            if dead := lock_file(left):
                shutil.rmtree(left.parent, ignore_errors=True)
                dead.close()
    folder = wanted or Path(tempfile.mkdtemp(prefix=f"rota-{name}-"))
    folder.mkdir(parents=True, exist_ok=True)
    lock = lock_file(folder / "lock")
    if lock is None:
        raise ConfigError(f"{folder} is the scratch folder of another Spark that lives. Choose another")
    return folder, lock
