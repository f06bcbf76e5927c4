"""The tables of a SQLite database as a source: a table is a partition, and a row is an offset (its id minus 1).

Law: a row never changes, and no id is used twice (`INTEGER PRIMARY KEY AUTOINCREMENT`). Deleted rows leave gaps.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from pyspark.sql import SparkSession

from rota.dataplane.formats import values
from rota.dataplane.ports import ENDS, Observation, Query, SourceContext
from rota.dataplane.spark.spark_source import Records
from rota.errors import ConfigError, EnvironmentFailed, RotaError, SourceChanged
from rota.ids import escape, key_of, unescape
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline, Start, check_format
from rota.settings import resolve_folder


@dataclass(frozen=True, slots=True)
class Rows:
    """The user's declaration: the column `body` of each table in the database `path` has records of this format."""

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
    def of(cls, pipeline: Pipeline, context: SourceContext) -> Self:
        """Return the source that the pipeline declares."""
        declared = cast(Rows, pipeline.source)
        return cls(declared, resolve_folder(declared.path), context.scratch)

    # --- required of every source
    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`."""
        tables = self._ask("select name from sqlite_master where type = 'table' and name not like 'sqlite_%'")
        return tuple(sorted(escape(name) for (name,) in tables))

    def observe(self, partitions: tuple[str, ...], query: Query = ENDS) -> Observation:
        """See `Source.observe`: the database numbered its rows."""
        if not self.path.is_file():
            raise ConfigError(f"{self.path} does not exist. Make the database, or correct the path of Rows(...)")
        last = dict(self._ask("select name, seq from sqlite_sequence"))
        ends = {p: last.get(unescape(key_of(p)), 0) for p in partitions}
        lost = {p: f"{self.path} gave {ends[p]} rows: bring it back" for p in query.consumed.find_beyond(ends)}
        starts = query.choose_starts(self.declared.start, ends)
        return Observation(ends=ends, assigned=ends, starts=starts, lost=lost, place=str(self.path))

    def plan_jobs(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> tuple[Ranges, ...]:
        """See `Source.plan_jobs`: one job."""
        job = {p: (at, min(ends[p], at + self.declared.max_rows)) for p, at in starts.items() if at < ends[p]}
        return (job,) if job else ()

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """See `Source.find_broken`: offsets after the highest id ever assigned."""
        ends = self.observe(tuple(ranges)).ends
        beyond = {p: self.locate(p, end - 1) for p, (_, end) in ranges.items() if end > ends[p]}
        why = "never was: bring the database back"
        return {p: SourceChanged(f"{p}: {row} {why}", partition=p) for p, row in beyond.items()}

    def locate(self, partition: str, offset: int) -> str:
        """See `Source.locate`."""
        return f"row {offset + 1} of {unescape(key_of(partition))}"

    # --- optional: `Replays`
    def reread(self, ranges: Ranges) -> Self:
        """See `Replays.reread`: a query consumes nothing, and rows never change."""
        return self

    # --- how Spark reads it
    @contextmanager
    def read(self, spark: SparkSession, ranges: Ranges, attempt: str) -> Iterator[Records]:
        """See `SparkSource.read`."""
        found = {p: self._read(p, *span) for p, span in ranges.items()}
        schema, format = self.declared.schema, self.declared.format
        with values.read_staged(spark, self.stage / attempt, found, schema, format, {}) as frame:
            yield Records(frame, partial(values.explain_bad, format), lambda: sum(map(len, found.values())))

    def _read(self, partition: str, start: int, end: int) -> list[tuple[int, bytes]]:
        table = unescape(key_of(partition)).replace('"', '""')
        return self._ask(f'select id - 1, cast(body as blob) from "{table}" where id > ? and id <= ?', start, end)

    def _ask(self, query: str, *given: int) -> list[Any]:
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as opened:
                return opened.execute(query, given).fetchall()
        except sqlite3.Error as error:
            raise EnvironmentFailed(f"{self.path} cannot be read ({error}). It is tried again") from error
