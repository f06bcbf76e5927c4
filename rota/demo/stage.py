"""The processes of `rota up` and `rota demo`: ZooKeeper, workers and Dagster, each in a process group of its own.

Law: whatever was started is ended on the way out, also what is stopped by SIGSTOP, and whatever ends us: children ask
the kernel for a signal when their parent dies.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.errors import ConfigError
from rota.machine import held

PR_SET_PDEATHSIG = 1
MARK = ".rota-state"  # says that a folder may be emptied; locked while somebody runs in it


@dataclass(frozen=True, slots=True)
class State:
    """The folders below one state folder; all of it may be deleted while nothing runs."""

    root: Path

    @property
    def zookeeper(self) -> Path:
        """ZooKeeper's data."""
        return self.root / "zookeeper"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME."""
        return self.root / "dagster"

    @property
    def landing(self) -> Path:
        """Where data lands: ROTA_LANDING."""
        return self.root / "landing"

    @property
    def tables(self) -> Path:
        """Where the tables are: ROTA_TABLES."""
        return self.root / "tables"

    @property
    def logs(self) -> Path:
        """A log file a process."""
        return self.root / "logs"

    def emptied(self) -> Self:
        """Removes what is in it. Raises ConfigError for a folder in use, and for one with anything in it that no stage
        made."""
        if self.root.exists() and any(self.root.iterdir()):
            if not (self.root / MARK).exists():
                raise ConfigError(f"{self.root} was not made by rota, so it is not emptied. Choose another --state")
            with self.held():
                for path in self.root.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path)
                    elif path.name != MARK:
                        path.unlink()
        return self

    def held(self) -> IO[bytes]:
        """Nobody else runs in the folder until this is closed. Raises ConfigError if somebody does."""
        mark = held(self.root / MARK)
        if mark is None:
            raise ConfigError(
                f"Another `rota up` or `rota demo` runs in {self.root}. End it, or choose another --state"
            )
        return mark

    def make(self) -> Self:
        """Makes the folders that are not there."""
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / MARK).touch()
        for folder in (self.zookeeper, self.dagster, self.landing, self.tables, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        return self


def checkout() -> Path:
    """The folder with workspace.yaml: the nearest one upwards of here, else the one that holds this package."""
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[2]):
        if (folder / "workspace.yaml").is_file() and (folder / "dagster_project").is_dir():
            return folder
    raise ConfigError("No workspace.yaml with dagster_project/ here or above. Run this from a checkout of rota")


def environment(session: str | None = None) -> dict[str, str]:
    """This process's environment, with a session timeout of so many seconds where one is given."""
    return {**os.environ, **({"ROTA_SESSION_TIMEOUT": session} if session else {})}


@contextmanager
def stopping() -> Iterator[None]:
    """While open, SIGTERM ends the program as Ctrl-C does: through every `with` on the way out."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Child:
    """One process with its own session and process group, and a log file; `end` leaves nothing of the group behind."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str], stop: signal.Signals):
        self.name, self.log, self._stop = name, log, stop
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_as_child(stop),
            )

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def signal_group(self, number: signal.Signals) -> None:
        """The signal to every process of the group: what happens to a machine happens to all on it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def how(self) -> str:
        """How the process ended."""
        code = self.process.poll()
        return "is running" if code is None else _how(code)

    def last_words(self, lines: int = 3) -> str:
        """The end of the log, in one line."""
        return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])

    def ask(self) -> None:
        """Asks the process to end; does not wait."""
        if self.running:
            self.signal_group(signal.SIGCONT)
            self.process.send_signal(self._stop)

    def end(self, patience: float) -> None:
        """Asks, waits up to `patience` seconds, then kills the group and whatever else the process had started."""
        family = self._family()
        self.ask()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self.signal_group(signal.SIGKILL)
        for process in family:
            with suppress(psutil.NoSuchProcess):  # psutil compares start times: a pid used again is not hit
                process.kill()
        self.process.wait(10)

    def _family(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _how(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def _as_child(stop: signal.Signals) -> Callable[[], None]:
    """In the child, before exec: SIGINT works (a shell's `&` has it ignored), and the parent's death is a signal."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        libc.prctl(PR_SET_PDEATHSIG, int(stop))

    return prepare


# Sensors wait inside their ticks; both of `dagster dev`'s code servers need threads left to launch runs meanwhile.
THREADS = {"DAGSTER_GRPC_MAX_WORKERS": "24", "DAGSTER_CODE_SERVER_MAX_WORKERS": "24"}


class Stage:
    """A context: starts what it is told to, ends everything on exit, Dagster first so that no run outlives its store."""

    def __init__(self, state: State, env: Mapping[str, str] = os.environ) -> None:
        self.state = state.make()
        self.root = checkout()
        self.children: dict[str, Child] = {}
        self.env = {
            **THREADS,
            **env,
            "ROTA_LANDING": str(state.landing.resolve()),
            "ROTA_TABLES": str(state.tables.resolve()),
            "DAGSTER_HOME": str(state.dagster.resolve()),
            "ROTA_PIPELINES": env.get("ROTA_PIPELINES", str(self.root / "pipelines")),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(self.root), env.get("PYTHONPATH", "")])),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "",  # each run is a process: none should compile what one before it did
        }
        self._server: EmbeddedZooKeeper | None = None
        self._open = ExitStack()
        self._open.enter_context(state.held())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def zookeeper(self, port: int = 0) -> str:
        """Starts the embedded server over the state folder; its hosts."""
        self._server = self._open.enter_context(EmbeddedZooKeeper(self.state.zookeeper, port=port))
        theirs = [name for name in self.env if name.startswith("ROTA_ZOOKEEPER")]  # credentials of another one
        for name in theirs:
            del self.env[name]
        self.env["ROTA_ZOOKEEPER"] = self._server.hosts
        return self._server.hosts

    def revive(self) -> str | None:
        """Starts the server again over its folder, at its port, if it ended; how it had. Raises EnvironmentFailed."""
        if self._server is None or (code := self._server.ended()) is None:
            return None
        self._server.kill()
        self._server.start()
        return _how(code)

    def worker(self, name: str, *options: str) -> Child:
        """Starts `rota worker --id name`, with its own Spark."""
        command = [sys.executable, "-m", "rota", "worker", "--id", name, *options]
        return self._start(name, command, signal.SIGTERM)

    def dagster(self, port: int) -> Child:
        """Starts `dagster dev` over the checkout's workspace, with its daemon and sensors."""
        shutil.copyfile(self.root / "dagster_project" / "dagster.yaml", self.state.dagster / "dagster.yaml")
        workspace = str(self.root / "workspace.yaml")
        command = [sys.executable, "-m", "dagster", "dev", "-w", workspace, "-h", "127.0.0.1", "-p", str(port)]
        return self._start("dagster", command, signal.SIGINT)

    def lost(self) -> Child | None:
        """A child that ended by itself."""
        return next((c for c in self.children.values() if not c.running), None)

    def strike(self, name: str) -> None:
        """SIGKILL to the whole process group of a child, without a word before: a machine that lost its power."""
        child = self.children.pop(name)
        child.signal_group(signal.SIGKILL)
        child.end(patience=5)

    def close(self) -> None:
        """Ends all: Dagster, then the workers side by side, then ZooKeeper."""
        dagster = self.children.pop("dagster", None)
        if dagster:
            dagster.end(patience=10)
        for child in self.children.values():
            child.ask()
        deadline = time.monotonic() + 3
        for child in self.children.values():
            child.end(patience=max(0.0, deadline - time.monotonic()))
        self.children.clear()
        self._open.close()

    def _start(self, name: str, command: Sequence[str], stop: signal.Signals) -> Child:
        child = Child(name, command, self.state.logs / f"{name}.log", self.env, stop)
        self.children[name] = child
        return child
