"""The state folder of the processes on one machine, by which a command finds them, and the checkout that they run from.

Laws: rota empties only a folder that it made, and never while a stack runs in it. A command finds a stack only while the
stack runs and holds the lock of the file with its addresses.
"""

import fcntl
import json
import re
import shutil
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from rota.errors import ConfigError
from rota.machine import lock_file

ERROR = re.compile(r"\w(?:Error|Exception)\b|\bERROR\b|timed out|Traceback", re.ASCII)
MAX_LINE = 300  # characters of a line of a log that are quoted
MARK = ".rota-state"  # a folder with this file may be emptied; the file is locked while a stack runs in the folder
STATE = ".rota"  # the state folder of `rota up`, unless --state names another
AWS = "AWS_"  # the prefix of variables about a bucket
BROUGHT = Path(__file__).parent / "project"  # links to the root's folders; in a wheel, their files
RUNNING = "running.json"  # the variables of the stack that runs in the folder


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The folder with the whole state of the processes. A user may delete it while none of them runs."""

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
        """The landing folders: ROTA_LANDING."""
        return self.root / "landing"

    @property
    def tables(self) -> Path:
        """The tables: ROTA_TABLES."""
        return self.root / "tables"

    @property
    def bucket(self) -> Path:
        """The data of an S3 server, if landing folders and tables are in a bucket."""
        return self.root / "bucket"

    @property
    def cluster(self) -> Path:
        """The working folders of a Spark cluster's processes."""
        return self.root / "cluster"

    @property
    def logs(self) -> Path:
        """The log files, one for each process."""
        return self.root / "logs"

    def describe_logs(self) -> str:
        """Return where the logs are, and the last line of each that looks like an error."""
        found = []
        for log in sorted(self.logs.glob("*.log")):
            lines = [
                " ".join(line.split()) for line in log.read_text(errors="replace").splitlines() if ERROR.search(line)
            ]
            found += [f"{log.stem}: {lines[-1][-MAX_LINE:]}"] if lines else []
        return f"The logs are in {self.logs}" + (f"; their last errors: {' | '.join(found)}" if found else "")

    def empty(self) -> Self:
        """Remove everything in the folder, and return itself.

        Raises:
            ConfigError: a stack runs in the folder, or it holds files and rota did not make it.
        """
        if self.root.exists() and any(self.root.iterdir()):
            if not (self.root / MARK).exists():
                raise ConfigError(f"{self.root} was not made by rota, so it is not emptied. Choose another --state")
            with self.hold():
                for path in self.root.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path)
                    elif path.name != MARK:
                        path.unlink()
        return self

    def hold(self) -> IO[bytes]:
        """Lock the folder until the returned file is closed.

        Raises:
            ConfigError: a stack runs in the folder.
        """
        mark = lock_file(self.root / MARK)
        if mark is None:
            raise ConfigError(
                f"Another `rota up` or `rota demo` runs in {self.root}. End it, or choose another --state"
            )
        return mark

    def announce(self, variables: Mapping[str, str]) -> IO[str]:
        """Write the variables with which a command finds this stack. They are valid until the returned file is closed."""
        file = (self.root / RUNNING).open("w", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX)  # a command that reads the file holds its lock for a moment
        json.dump(dict(variables), file)
        file.flush()
        return file

    def read_announced(self) -> Mapping[str, str]:
        """Return the variables of the stack that runs in this folder; empty if none runs."""
        try:
            with (self.root / RUNNING).open(encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return dict(json.load(file))
        except (OSError, ValueError):  # no such file; or the stack is writing it
            pass
        return {}

    def make(self) -> Self:
        """Make the missing folders, and return itself."""
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / MARK).touch()
        for folder in (self.zookeeper, self.dagster, self.landing, self.tables, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        return self


def find_running(start: Path) -> Mapping[str, str]:
    """Return the variables of the stack of `rota up` in the nearest `.rota`, in `start` or above; empty if none runs."""
    for folder in (start, *start.parents):
        if (folder / STATE / MARK).is_file():
            return StateFolder(folder / STATE).read_announced()
    return {}


def join_running(environ: MutableMapping[str, str], start: Path) -> None:
    """Put the variables of the running stack into `environ`, unless ROTA_ZOOKEEPER names another group's servers.

    A variable that is set keeps its value, except for the credentials of a bucket: those of the user are not valid for the
    stack's bucket.
    """
    if "ROTA_ZOOKEEPER" in environ:
        return
    found = find_running(start)
    if any(name.startswith(AWS) for name in found):
        for name in [name for name in environ if name.startswith(AWS)]:
            del environ[name]
    for name, value in found.items():
        environ.setdefault(name, value)


def find_project() -> Path:
    """Return the folder of workspace.yaml, `dagster_project/` and `pipelines/`: the nearest one upwards from the current
    folder, else that of the package's checkout, else the one that the package brings."""
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[2]):
        if (folder / "workspace.yaml").is_file() and (folder / "dagster_project").is_dir():
            return folder
    return BROUGHT


def find_pipelines(project: Path) -> Path:
    """Return the default folder of pipeline files: that of the project, but outside a checkout `pipelines/` of the current
    folder, if there is one."""
    here = Path("pipelines")
    return here.resolve() if project == BROUGHT and here.is_dir() else project / "pipelines"
