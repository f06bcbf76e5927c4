"""The Delta tables of a pipeline, as its group owns them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rota.dataplane.delta import samples
from rota.dataplane.delta.compaction import compact, is_due
from rota.dataplane.delta.parquet_files import ParquetFiles
from rota.dataplane.delta.vacuum import vacuum
from rota.errors import EnvironmentFailed, ForeignTable, counted
from rota.ledger.delta_features import explain_gone, explain_mapping
from rota.ledger.delta_log import DeltaLog, is_checkpoint
from rota.ledger.identity import explain_taken, find_owner_among
from rota.ledger.owned import OwnedLedger
from rota.pipeline import Pipeline
from rota.settings import resolve_folder


@dataclass(frozen=True, slots=True)
class PipelineTable(OwnedLedger):
    """`main` or `quarantine` of a pipeline, a Delta table: see `ports.OwnedTable`."""

    log: DeltaLog
    files: ParquetFiles

    @classmethod
    def at(cls, path: Path, group: str, meta: str, pipeline: str = "", *, editable: bool = False) -> "PipelineTable":
        """The table in this folder, as this pipeline of the group sees it."""
        return cls(DeltaLog(str(path)), ParquetFiles(path), group, meta, pipeline, editable)

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.files.folder

    def read_samples(self, versions: Mapping[str, int], most: int) -> Mapping[str, samples.Rows]:
        """See `Table.read_samples`."""
        return samples.read_samples(self.path, versions, most)

    def count_rows(self, partitions: Iterable[str]) -> Mapping[str, int]:
        """See `Table.count_rows`."""
        return samples.count_rows(self.path, partitions)

    def explain_harm(self, most: int | None = None) -> str:
        """See `Table.explain_harm`."""
        if (table := self.log.open()) is None:
            return ""
        gone = explain_gone(self.location, table.files(), lambda path: (self.path / path).exists(), most)
        return explain_mapping(self.location, table.handle) or gone

    def read_stamp(self) -> int | None:
        """What is another number after each commit, read without opening the table; None where there is no table."""
        return self.log.stamp_folder()

    def compact(self, version: int) -> None:
        """See `Table.compact`."""
        if is_due(version):
            compact(self.path)


@dataclass(frozen=True, slots=True)
class PipelineTables:
    """The sibling tables of a pipeline below `folder`."""

    folder: Path
    main: PipelineTable
    quarantine: PipelineTable

    @classmethod
    def of(cls, pipeline: Pipeline, group: str, meta: str) -> "PipelineTables":
        """`meta` is the random id of the group's meta record."""
        place = resolve_folder(pipeline.table.path)
        main = PipelineTable.at(place / "main", group, meta, pipeline.name)
        return cls(place, main, PipelineTable.at(place / "quarantine", group, meta, pipeline.name, editable=True))

    @staticmethod
    def find_owner(place: Path, pipelines: Iterable[str]) -> str | None:
        """Which of these pipelines has the table at `place`; None: none of them, or there is no table. Raises
        EnvironmentFailed."""
        return find_owner_among(DeltaLog(str(place / "main")), pipelines)

    def describe(self) -> str | None:
        """How large the table is, for people; None where there is none. Raises ForeignTable where it is somebody else's,
        whatever the ZooKeeper."""
        main = self.main
        if (table := main.log.open()) is None:
            return None
        if whose := explain_taken(table, main.pipeline, main.group):
            raise ForeignTable(whose)
        if harm := main.explain_harm():
            raise EnvironmentFailed(harm)
        files, rows = counted(table.files().num_rows, "file"), counted(table.handle.count(), "row")
        return f"is at version {table.number}, {files}, {rows}"

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> tuple[str, ...]:
        """The files below `folder` that no version needs and that are older than `retention`; deletes them unless it is a
        `dry_run`. Raises ConfigError below seven days."""
        return vacuum(self.folder, retention, dry_run=dry_run)

    @staticmethod
    def count_checkpoints(files: Iterable[str]) -> int:
        """How many of the files that a vacuum names are checkpoints of a log."""
        return sum(map(is_checkpoint, files))
