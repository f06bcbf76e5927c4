"""A worker's own Spark: a Spark Connect server as a child process.

Laws: the server is in its parent's process group, so killing the group kills both. It also dies if only its parent is
killed. It ignores Ctrl-C, which reaches the whole group: a worker that leaves ends its Spark last. It is `ready` while its
process lives and answers, `silent` after some seconds without an answer, and `stuck` if a killed task continues. It is able
to work once it was warmed, on a cluster as long as an executor is connected. It never outlives `stop`. It answers no client
without its token (`token`). Its settings are in a file of its user's, in no argument list. The user's
options for Java follow rota's, and win. This module does not import pyspark: the process that owns a server stays light.
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
DAEMON = "spark.python.daemon.module"
PYTHON = "PYSPARK_PYTHON"
ARCHIVE = "spark"
JARS = "spark.jars"
CORES = "spark.cores.max"
MEMORY = "spark.driver.memory"
UTF8 = {"LC_ALL": "C.UTF-8"}  # Java takes the characters of file names from its locale
# At ten times its usual thresholds, Java's best compiler compiles only code that runs for each record. A million records of
# JSON cost 4 CPU seconds, without it 10. Start and 30 small batches cost 22, without it 16, at the usual thresholds 31.
TIERS = {"Invocation": 50_000, "MinInvocation": 6_000, "Compile": 150_000, "BackEdge": 400_000}
# On two cores with 1 GB, a collector of one thread takes 30 % less memory than Java's own choice, and 20 % less CPU for a
# million records. All other threads wait while it collects. With more cores or a larger heap, Java chooses the collector.
FEW_CORES, SMALL_HEAP = 2, 2_048  # MB
COLLECTOR = re.compile(r"-XX:[+]Use\w+GC\b")  # Java does not start with two
LASTING = (*(f"-XX:Tier4{name}Threshold={count}" for name, count in TIERS.items()), "-XX:-UsePerfData")
SILENCE = 30.0  # seconds without an answer after which a server is given up: no garbage collection may take so long
LOOK = 2.0  # seconds between two counts of executors: each reads all open files of the server
AGAIN = 10.0  # seconds until a first job that failed is repeated
QUESTIONS = 6  # probes in `SILENCE` seconds, all without an answer
PATIENCE = 1.0  # seconds for the answer to one probe
ENDED = {
    # The query of a client that died ends half a minute later. Spark's default is 2 m + 5 m + 30 s; until then tasks hold
    # their slots. A client reconnects to its query when a stream of answers ends, and for some 3 s after a fault.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
    "spark.connect.execute.manager.detachedTimeout": "15s",
    "spark.connect.execute.manager.maintenanceInterval": "5s",
    # If a killed task continues, a cluster ends its executor; a local Spark only logs the task, see `stuck`.
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.threadDump": "false",
    "spark.task.reaper.killTimeout": "120s",
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of a worker's Spark that the user may choose: the master URL and Spark's own settings."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    archive: tuple[str, ...] = field(default_factory=lambda: use_archive(ARCHIVE))  # Java's options for its archive

    def complete(self, port: int, scratch: Path) -> dict[str, str]:
        """Return all settings of the server: rota's, overridden by the user's. The jars for `s3a://` are added to the
        user's; rota's options for Java precede the user's."""
        settings = {
            ADDRESS: "127.0.0.1",
            PORT: str(port),
            "spark.ui.enabled": "false",
            MEMORY: "1g",
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.log.structuredLogging.enabled": "false",
            "spark.log.level": "WARN",
            **{f"spark.executorEnv.{name}": text for name, text in UTF8.items()},
            **ENDED,
            **self.conf,
        }
        jars = [self.conf.get(JARS, ""), *map(str, list_jars())]
        java = join_options((*LASTING, *self._choose_collector(settings[MEMORY]), *self.archive))
        settings[OPTIONS] = f"{java} {self.conf.get(OPTIONS, '')}".rstrip()
        return settings | ({JARS: ",".join(filter(None, jars))} if any(jars) else {})

    def _choose_collector(self, memory: str) -> tuple[str, ...]:
        """Return Java's option for the collector; none if the user sets one or Java chooses. A cluster's server counts as
        one core."""
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
        """Return the warning for an application that takes all cores of its standalone cluster; empty for any other."""
        if not self.master.startswith("spark://") or CORES in self.conf:
            return ""
        return (
            f"it takes all cores of {self.master}, and the next worker gets none there: give each worker --conf {CORES}=N, "
            f"unless the master's spark.deploy.defaultCores limits them"
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
        self._began = self._read = 0  # bytes of the log: at the start of the server, and read by now
        self._missed, self._ask_at = 0, 0.0  # failed probes in a row; when the next is due
        self._process: subprocess.Popen[bytes] | None = None
        self._address: tuple[str, int] | None = None
        self._driver_port = 0  # where executors are connected, on a cluster
        self._trial: subprocess.Popen[bytes] | None = None
        self.warms = True  # whether a local Spark is warmed; one on a cluster always is
        self._warmed = False  # whether a trial succeeded
        self._unable, self._look_at = "its first job is not done", 0.0  # at the last look; when the next is due

    def start(self) -> int:
        """Start a server that is not running, and return its pid at once. It is `ready` some seconds later. A restarted
        server keeps its address, so that the advertised address stays valid."""
        port = self._address[1] if self._address is not None else free_port()
        conf = self.settings.complete(port, self.scratch)
        if not self._local():
            self._driver_port = int(conf.setdefault(DRIVER_PORT, str(free_port())))
        elif self._has_our_python(conf):
            conf.setdefault(DAEMON, "rota.dataplane.spark.python_daemon")
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
        """`sc://host:port` of the server last started; the machine's name if it is bound to every address."""
        if self._address is None:
            raise EnvironmentFailed("The Spark server was not started. Call start() first")
        host, port = self._address
        return f"sc://{socket.getfqdn() if host == '0.0.0.0' else host}:{port}"

    def mapped(self) -> bool:
        """Whether the server started from the archive of `rota prepare` (on Linux)."""
        try:
            return str(locate_archive(ARCHIVE).resolve()) in Path(f"/proc/{self.pid}/maps").read_text()
        except OSError:
            return False

    def ready(self) -> bool:
        """Whether the process lives and answers."""
        return self.pid is not None and not explain_silence(self._near, PATIENCE)

    def explain_unable(self) -> str:
        """Return why this Spark can do no work now; empty if it can. Call it regularly on a server that is `ready`.

        It can once it was warmed (see `trial`), if an executor is connected; with a master `local[..]` the server itself
        works. It is warmed once in the life of this object, a local one only if it `warms`. Jobs that fail are repeated
        after `AGAIN` seconds.
        """
        if (now := self._clock()) < self._look_at:
            return self._unable
        is_ready_cold = self._local() and not self.warms
        if not (self._warmed or is_ready_cold):
            self._unable = self._warm(now)
        if self._warmed or is_ready_cold:
            self._look_at = now + LOOK
            self._unable = "" if self._local() or self._count_executors() else self._explain_no_executor()
        return self._unable

    def _warm(self, now: float) -> str:
        """Start the trial, or read how it ended. Return why this Spark is not warm."""
        words = self.scratch / "trial.log"
        if self._trial is None:
            program = ["-m", "rota.dataplane.spark.trial", self._near, *(["local"] if self._local() else [])]
            with words.open("wb") as log:
                self._trial = subprocess.Popen(
                    [*tie_to_parent(interrupt=signal.SIG_IGN), sys.executable, *program],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.DEVNULL,
                )
        if (code := self._trial.poll()) is None:
            return "its first job is not done" if self._local() else self._explain_no_executor()
        self._trial, self._warmed = None, code == 0
        if code:
            self._look_at = now + AGAIN
        why = words.read_text(errors="replace").strip() or explain_exit(code)
        return f"its first job failed: {why.splitlines()[-1]}" if code else ""

    def _explain_no_executor(self) -> str:
        return f"no executor of {self.settings.master} is there"

    def _count_executors(self) -> int:
        """Count the connections to the driver's port: an executor keeps one at least. 1 if they cannot be listed."""
        try:
            found = psutil.Process(self.pid).net_connections("tcp")
        except psutil.Error:
            return 1
        return sum(one.status == psutil.CONN_ESTABLISHED and one.laddr.port == self._driver_port for one in found)

    @property
    def _near(self) -> str:
        """The address at which this machine reaches the server last started."""
        host, port = self._address or ("", 0)
        return f"sc://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"

    def silent(self) -> bool:
        """Whether the server did not answer for `silence` seconds. Call it regularly; it probes the server when a probe is
        due. It counts failed probes, not seconds: a worker that was suspended together with its Spark sent no probes."""
        if (now := self._clock()) < self._ask_at:
            return False
        self._ask_at = now + self.silence / QUESTIONS
        self._missed = 0 if self.ready() else self._missed + 1
        return self._missed >= QUESTIONS

    def stuck(self) -> str:
        """Return Spark's new log line about a killed task that continues. The task holds a slot, and only the end of the
        server is known to free the slot. A task that was not killed is never stuck, however long it takes."""
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
        """Kill the process; `start` starts another."""
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
        """Return how the server ended: the signal, or else the last line with an error in its log since its start."""
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
        """Terminate the server; kill it after `grace` seconds. Remove its scratch folder."""
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
        """Return the command. Settings are in this user's file: any user can read an argument list (`ps`)."""
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
            PYTHON: sys.executable,  # else Spark's Python workers take the system's python3
            "SPARK_LAUNCHER_OPTS": " ".join(LIGHT),  # split at each blank
            **loopback,
            **os.environ,
            **choose_locale(os.environ),
            token.SPARKS_OWN: token.of_server(conf[ADDRESS], int(conf[PORT])),
            "SPARK_HOME": str(find_spark_home()),
            "SPARK_NO_DAEMONIZE": "1",
        }

    def _has_our_python(self, conf: Mapping[str, str]) -> bool:
        """Whether the tasks of a local Spark run in this process's Python, which has rota."""
        return os.environ.get(PYTHON, sys.executable) == sys.executable and "spark.pyspark.python" not in conf

    def _local(self) -> bool:
        return self.settings.master.startswith("local")


def choose_locale(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables with which Java opens files of any name; none if the locale has UTF-8 already."""
    said = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    return {} if "utf8" in said.lower().replace("-", "") else UTF8


def _escaped(text: str) -> str:
    """Return a key or a value in the form of a file of Java properties."""
    return re.sub(r"[\\\s=:#!]", lambda m: {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(m[0], f"\\{m[0]}"), text)


def _scratch(name: str, wanted: Path | None) -> tuple[Path, IO[bytes]]:
    """Return a folder that is locked while this process lives. Remove those of killed workers of this name."""
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
