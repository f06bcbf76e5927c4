"""Where the processes of one machine keep their state, and the checkout that they run from.

Law: only a folder that rota made is ever emptied, and never one in which somebody runs.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from rota.errors import ConfigError
from rota.machine import lock_file

ERROR = re.compile(r"\w(?:Error|Exception)\b|\bERROR\b|timed out|Traceback", re.ASCII)
LONGEST = 300  # characters of a line of a log
MARK = ".rota-state"  # says that a folder may be emptied; locked while somebody runs in it


@dataclass(frozen=True, slots=True)
class StateFolder:
    """One folder with everything that the processes keep. It may be deleted while none of them runs."""

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
    def bucket(self) -> Path:
        """What a server of S3 keeps, where landing folders and tables are in a bucket."""
        return self.root / "bucket"

    @property
    def cluster(self) -> Path:
        """Where the processes of a cluster of Spark work."""
        return self.root / "cluster"

    @property
    def logs(self) -> Path:
        """The log files, one a process."""
        return self.root / "logs"

    def describe_logs(self) -> str:
        """Where the logs are, and the last line of each that reads like an error."""
        found = []
        for log in sorted(self.logs.glob("*.log")):
            lines = [
                " ".join(line.split()) for line in log.read_text(errors="replace").splitlines() if ERROR.search(line)
            ]
            found += [f"{log.stem}: {lines[-1][-LONGEST:]}"] if lines else []
        return f"The logs are in {self.logs}" + (f"; their last errors: {' | '.join(found)}" if found else "")

    def empty(self) -> Self:
        """Removes everything in the folder; returns itself. Raises ConfigError if the folder is in use, or if it holds
        anything and rota did not make it."""
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
        """Locks the folder until the returned file is closed. Raises ConfigError if somebody runs in it."""
        mark = lock_file(self.root / MARK)
        if mark is None:
            raise ConfigError(
                f"Another `rota up` or `rota demo` runs in {self.root}. End it, or choose another --state"
            )
        return mark

    def make(self) -> Self:
        """Makes the folders that are missing; returns itself."""
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / MARK).touch()
        for folder in (self.zookeeper, self.dagster, self.landing, self.tables, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        return self


def find_checkout() -> Path:
    """The nearest folder upwards with a workspace.yaml, else the one that holds this package. Raises ConfigError."""
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[2]):
        if (folder / "workspace.yaml").is_file() and (folder / "dagster_project").is_dir():
            return folder
    raise ConfigError("No workspace.yaml with dagster_project/ here or above. Run this from a checkout of rota")
