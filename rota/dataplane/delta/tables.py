"""The Delta tables of a pipeline, which its group owns."""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow.compute as pc

from rota.dataplane.delta.parquet_files import ParquetFiles
from rota.dataplane.delta.vacuum import shorten_logs, vacuum
from rota.deltalog.delta_log import DeltaLog
from rota.errors import EnvironmentFailed, ForeignTable, counted
from rota.held import Held
from rota.ledger.identity import explain_taken, find_owner_among
from rota.ledger.ledger import Ledger
from rota.pipeline import Pipeline
from rota.settings import resolve_place
from rota.stores import is_url, join


def open_table(
    place: Path | str, group: str, meta: str, pipeline: str = "", *, editable: bool = False, held: Held | None = None
) -> Ledger:
    """Return the table in this folder or at this URL, for this pipeline of the group. Reads nothing yet."""
    log = (held or Held()).get(DeltaLog, str(place))
    return Ledger(log, ParquetFiles(str(place)), group, meta, pipeline, editable)


@dataclass(frozen=True, slots=True)
class PipelineTables:
    """The sibling tables of a pipeline below `location`."""

    location: str
    main: Ledger
    quarantine: Ledger

    @classmethod
    def of(cls, pipeline: Pipeline, group: str, meta: str, held: Held | None = None) -> "PipelineTables":
        """Return the tables that the pipeline declares. `meta` is the random id of the group's meta record."""
        place, name = resolve_place(pipeline.table.path), pipeline.name
        main = open_table(join(place, "main"), group, meta, name, held=held)
        return cls(place, main, open_table(join(place, "quarantine"), group, meta, name, editable=True, held=held))

    @property
    def scratch(self) -> Path:
        """A folder for the run and its Spark: beside the tables on a disk; on this machine if the tables are in a bucket."""
        return (
            Path(tempfile.gettempdir(), f"rota-{os.getuid()}")
            if is_url(self.location)
            else Path(self.location, "stage")
        )

    @staticmethod
    def find_owner(place: str, pipelines: Iterable[str]) -> str | None:
        """Return which of these pipelines owns the table at `place`; None if none does or there is no table. Raises
        EnvironmentFailed."""
        return find_owner_among(DeltaLog(join(place, "main")), pipelines)

    def describe(self) -> str | None:
        """Return the size of main as text; None if there is no table. Raises ForeignTable, EnvironmentFailed."""
        main = self.main
        if (table := main.open()) is None:
            return None
        if whose := explain_taken(table, main.pipeline, main.group):
            raise ForeignTable(whose)
        if harm := main.explain_harm():
            raise EnvironmentFailed(harm)
        files = table.files()
        rows = counted(pc.sum(files["num_records"]).as_py() or 0, "row")
        return f"is at version {table.number}, {counted(files.num_rows, 'file')}, {rows}"

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> tuple[str, ...]:
        """Delete the files that no version needs and that are older than `retention`. See `vacuum` of
        rota/dataplane/delta/vacuum.py."""
        return vacuum(self.location, retention, dry_run=dry_run)

    def shorten_logs(self) -> int:
        """Write checkpoints that are due, and pack commits that are older than a day. Return the number of packed commits.
        Raises EnvironmentFailed."""
        return shorten_logs(self.location)
