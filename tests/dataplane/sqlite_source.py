"""The tables of a SQLite database as a source: a table is a partition, a row of it an offset, its id less one.

Law: a row stays what it is, and none takes another's id (`INTEGER PRIMARY KEY AUTOINCREMENT`). Deleted ones are holes.
"""

import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from pyspark.sql import SparkSession

from rota.dataplane.formats import values
from rota.dataplane.ports import Home
from rota.dataplane.spark.spark_source import Records
from rota.errors import ConfigError, EnvironmentFailed, RotaError, SourceChanged
from rota.ids import escape, key_of, unescape
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline, Start, check_format
from rota.settings import resolve_folder


@dataclass(frozen=True, slots=True)
class Rows:
    """What the user declares: the column `body` of each table in the database `path` has records of this format."""

    path: str
    schema: str
    format: str = "json"
    start: Start = "earliest"
    max_rows: int = 10_000

    def __post_init__(self) -> None:
        check_format(self.format, ("csv", "json", "bytes"), self.schema, {}, f"Rows({self.path!r})")

    @property
    def texts(self) -> tuple[str, ...]:
        """See `DeclaredSource.texts`."""
        return (self.path,)


@dataclass(frozen=True, slots=True)
class SqliteSource:
    """The database at `path`; `stage` is a folder that Spark can read."""

    declared: Rows
    path: Path
    stage: Path

    @classmethod
    def of(cls, pipeline: Pipeline, home: Home) -> Self:
        """The source that the pipeline declares."""
        declared = cast(Rows, pipeline.source)
        return cls(declared, resolve_folder(declared.path), home.scratch)

    # --- what every source does
    def find_place(self) -> str:
        """See `Source.find_place`."""
        if not self.path.is_file():
            raise ConfigError(f"{self.path} is not there. Make the database, or mend the path of Rows(...)")
        return str(self.path)

    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`."""
        tables = self._ask("select name from sqlite_master where type = 'table' and name not like 'sqlite_%'")
        return tuple(sorted(escape(name) for (name,) in tables))

    def read_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.read_ends`."""
        last = dict(self._ask("select name, seq from sqlite_sequence"))
        return {p: last.get(unescape(key_of(p)), 0) for p in partitions}

    def assign_offsets(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.assign_offsets`: the database numbered its rows."""
        return self.read_ends(partitions)

    @property
    def skips_existing(self) -> bool:
        """See `Source.skips_existing`."""
        return self.declared.start == "latest"

    def choose_starts(self, ends: Mapping[str, int], later: Container[str] = ()) -> Mapping[str, int]:
        """See `Source.choose_starts`."""
        first = self.declared.start if isinstance(self.declared.start, int) else 0
        return {p: end if self.skips_existing and p not in later else first for p, end in ends.items()}

    def plan_jobs(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> tuple[Ranges, ...]:
        """See `Source.plan_jobs`: one job."""
        job = {p: (at, min(ends[p], at + self.declared.max_rows)) for p, at in starts.items() if at < ends[p]}
        return (job,) if job else ()

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """See `Source.find_broken`: what is beyond the last row that there ever was."""
        ends = self.read_ends(tuple(ranges))
        beyond = {p: self.locate(p, end - 1) for p, (_, end) in ranges.items() if end > ends[p]}
        why = "never was: bring the database back"
        return {p: SourceChanged(f"{p}: {row} {why}", partition=p) for p, row in beyond.items()}

    def locate(self, partition: str, offset: int) -> str:
        """See `Source.locate`."""
        return f"row {offset + 1} of {unescape(key_of(partition))}"

    # --- what it can do beside: `Replays`, `Remembers`
    def reread(self, ranges: Ranges) -> Self:
        """See `Replays.reread`: a query takes nothing, and what is there is what was there."""
        return self

    def read_assigned_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Remembers.read_assigned_ends`."""
        return self.read_ends(partitions)

    def explain_lost(self, partition: str, end: int) -> str:
        """See `Remembers.explain_lost`."""
        return f"{self.path} gave {end} rows: bring it back"

    # --- how Spark reads it
    @contextmanager
    def read(self, spark: SparkSession, ranges: Ranges, attempt: str) -> Iterator[Records]:
        """See `SparkSource.read`."""
        found = {p: self._read(p, *span) for p, span in ranges.items()}
        schema, format = self.declared.schema, self.declared.format
        with values.read_staged(spark, self.stage / attempt, found, schema, format, {}) as frame:
            yield Records(frame, partial(values.explain_bad, format), lambda: sum(map(len, found.values())))

    def read_records(self, partition: str, offset: int) -> Iterable[str]:
        """See `HoldsSeveral.read_records`."""
        return [values.decode(body) for _, body in self._read(partition, offset, offset + 1)]

    def _read(self, partition: str, start: int, end: int) -> list[tuple[int, bytes]]:
        table = unescape(key_of(partition)).replace('"', '""')
        return self._ask(f'select id - 1, cast(body as blob) from "{table}" where id > ? and id <= ?', start, end)

    def _ask(self, query: str, *given: int) -> list[Any]:
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as opened:
                return opened.execute(query, given).fetchall()
        except sqlite3.Error as error:
            raise EnvironmentFailed(f"{self.find_place()} cannot be read ({error}). It is tried again") from error
