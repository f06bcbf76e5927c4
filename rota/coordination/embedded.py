"""The real ZooKeeper 3.9 from PySpark's own jars, for the demo and the tests: loopback only, no admin server.

Laws:
1. It ends with its parent, however the parent ends (SIGKILL too): a watcher process holds a pipe from the parent and
   kills the server when the pipe closes. It stays while any thread of the parent lives (PR_SET_PDEATHSIG would not).
2. Acknowledged writes survive a kill of the server: the data folder is on disk, and one server at a time holds it.
3. A missing Java 17, missing jars, a folder in use or a taken port is reported in one line.
4. The archive of `rota prepare` changes the start time, and nothing else.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from rota.errors import EnvironmentFailed
from rota.java import LIGHT, find_java, find_spark_home, use_archive
from rota.machine import free_port, lock_file

# Only the jars that a server needs: it starts twice as fast as with all of Spark's.
NEEDED = ("zookeeper", "slf4j-api", "log4j-", "snappy-java", "metrics-core", "netty-", "jcl-over", "commons-io")
# The shell becomes the server (exec keeps its pid); the watcher reads the parent's pipe until it closes, and kills the
# server only if that pid is still the server.
LAUNCH = """
exec 3<&0
( read -r _ <&3
  if [ ! -e /proc/self ] || grep -qF "$ROTA_SERVER" /proc/$$/cmdline; then kill -9 $$; fi ) >/dev/null 2>&1 &
exec 3<&-
exec "$@" </dev/null
"""
START_TRIES = 3
ARCHIVE = "zookeeper"


def jars() -> str:
    """The class path of a server, out of PySpark. Raises ConfigError without one, EnvironmentFailed without its jars."""
    found = sorted(str(p) for p in (find_spark_home() / "jars").glob("*.jar") if p.name.startswith(NEEDED))
    if not any("zookeeper-3" in name for name in found):
        raise EnvironmentFailed(
            "No ZooKeeper jar in pyspark/jars. Install pyspark from PyPI: pip install 'pyspark[connect]'"
        )
    return os.pathsep.join(found)


class EmbeddedZooKeeper:
    """One server on 127.0.0.1; `start`, `stop`, `kill`, or a context manager. `port` 0 takes a free one, kept over
    restarts. `extra` are more lines of its configuration, and `archive` the options about Java's archive of classes."""

    def __init__(
        self,
        data_dir: Path | str,
        port: int = 0,
        *,
        tick_ms: int = 500,
        heap: str = "256m",
        extra: Sequence[str] = (),
        archive: Sequence[str] | None = None,
    ) -> None:
        self.data_dir, self.port = Path(data_dir).resolve(), port
        self.tick_ms, self.heap, self.extra = tick_ms, heap, tuple(extra)
        self.archive = use_archive(ARCHIVE) if archive is None else archive
        self.process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """Where the server writes its log."""
        return self.data_dir / "zookeeper.log"

    def start(self, timeout: float = 30.0) -> Self:
        """Starts the server and waits until it answers. Raises EnvironmentFailed with the reason."""
        java, classpath = find_java(), jars()
        self._hold()
        chosen = self.port
        for attempt in range(START_TRIES):
            self.port = chosen or free_port()
            self._launch(java, classpath)
            try:
                self._wait(timeout)
            except EnvironmentFailed:
                self.stop()
                if chosen or attempt == START_TRIES - 1 or "BindException" not in self._tail(20_000):
                    self.port = chosen
                    raise
                self._hold()
            else:
                break
        return self

    def stop(self) -> None:
        """Ends the server and waits for it; harmless if it is not running. What was acknowledged is on disk."""
        self.kill()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def kill(self, how: int = signal.SIGKILL) -> None:
        """Sends the server's process a signal; after SIGKILL it is gone, and `start` brings it back."""
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        if how == signal.SIGKILL:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
            self.process = None

    def ended(self) -> int | None:
        """The exit code of a server that ended by itself or by a signal of another process (then below 0); None
        otherwise.
        """
        return self.process.poll() if self.process is not None else None

    def answers(self) -> bool:
        """Whether it serves clients now."""
        return "Mode:" in four_letters(self.port, "srvr")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _hold(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = lock_file(self.data_dir / "lock")
            if self._lock is None:
                raise EnvironmentFailed(
                    f"Another embedded ZooKeeper holds {self.data_dir}. Stop it, or choose another folder"
                )

    def _launch(self, java: Path, classpath: str) -> None:
        config = self.data_dir / "zoo.cfg"
        config.write_text(self._config())
        command = [
            *(str(java), f"-Xmx{self.heap}", *LIGHT, *self.archive),
            *("-Djava.net.preferIPv4Stack=true", "-Dzookeeper.jmx.log4j.disable=true"),
            *("-cp", classpath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [shutil.which("sh") or "/bin/sh", "-c", LAUNCH, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"ROTA_SERVER": str(config)},
            )

    def _config(self) -> str:
        (self.data_dir / "data").mkdir(exist_ok=True)
        lines = [
            f"tickTime={self.tick_ms}",
            "initLimit=20",
            "syncLimit=10",
            f"dataDir={self.data_dir / 'data'}",
            "clientPortAddress=127.0.0.1",
            f"clientPort={self.port}",
            "maxClientCnxns=0",
            f"minSessionTimeout={2 * self.tick_ms}",
            "maxSessionTimeout=120000",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr",
            "preAllocSize=4096",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
            *self.extra,
        ]
        return "\n".join(lines) + "\n"

    def _wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self.answers() or self.process is None or self.process.poll() is not None:
            if self.process is None or self.process.poll() is not None:
                raise EnvironmentFailed(
                    f"ZooKeeper ended at its start: {self._reason()}. Its log is {self.log}", port=self.port
                )
            if time.monotonic() > deadline:
                raise EnvironmentFailed(f"ZooKeeper did not answer within {timeout:g} s. Its log is {self.log}")
            time.sleep(0.03)

    def _reason(self) -> str:
        said = [line.strip() for line in self._tail(20_000).splitlines() if "Exception" in line or "Error" in line]
        return said[0][:200] if said else "no reason in its log"

    def _tail(self, size: int) -> str:
        try:
            return self.log.read_bytes()[-size:].decode(errors="replace")
        except OSError:
            return ""


def four_letters(port: int, word: str) -> str:
    """The answer of the server on this port to `word`; "" if there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as link:
            link.sendall(word.encode())
            answer = b""
            while chunk := link.recv(65_536):
                answer += chunk
    except OSError:
        return ""
    return answer.decode(errors="replace")
