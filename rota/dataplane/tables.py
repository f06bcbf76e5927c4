"""The Delta tables of a pipeline, as its group owns them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rota.dataplane import renaming, replacing
from rota.dataplane.compacting import compact, due
from rota.dataplane.ledger import Ledger
from rota.dataplane.ports import Batch, Position
from rota.pipeline import Pipeline
from rota.settings import folder


@dataclass(frozen=True, slots=True)
class PipelineTable(Ledger):
    """`main` or `quarantine` of a pipeline: see `ports.OwnedTable`."""

    def replace(self, batch: Batch) -> int:
        """See `Table.replace`."""
        return replacing.replace(self, batch)

    def append(self, batch: Batch) -> int:
        """See `Table.append`."""
        return replacing.append(self, batch)

    def compact(self, version: int) -> None:
        """See `Table.compact`."""
        if due(version):
            compact(self.path)

    def is_renamed(self, old: str) -> bool:
        """See `OwnedTable.is_renamed`."""
        return renaming.done(self, old)

    def begin_rename(self, old: str, partitions: Iterable[str]) -> int:
        """See `OwnedTable.begin_rename`."""
        return renaming.begin(self, old, partitions)

    def read_renamed_positions(self, old: str, partitions: Iterable[str]) -> Mapping[str, Position]:
        """See `OwnedTable.read_renamed_positions`."""
        return renaming.standing(self, old, partitions)

    def finish_rename(self, old: str, partitions: Iterable[str]) -> None:
        """See `OwnedTable.finish_rename`."""
        renaming.carry(self, old, partitions)


@dataclass(frozen=True, slots=True)
class Tables:
    """The sibling tables of a pipeline below `folder`."""

    folder: Path
    main: PipelineTable
    quarantine: PipelineTable

    @classmethod
    def of(cls, pipeline: Pipeline, group: str, meta: str) -> "Tables":
        """`meta` is the random id of the group's meta record."""
        place = folder(pipeline.table.path)
        main = PipelineTable(place / "main", group, meta, pipeline=pipeline.name)
        return cls(place, main, replace(main, path=place / "quarantine", editable=True))
