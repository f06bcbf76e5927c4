"""The Delta tables of a pipeline, as its group owns them."""

from dataclasses import dataclass, replace
from pathlib import Path

from rota.dataplane import replacing
from rota.dataplane.compacting import compact, due
from rota.dataplane.ledger import Guards, Ledger
from rota.dataplane.ports import Batch
from rota.pipeline import Pipeline
from rota.settings import folder


@dataclass(frozen=True, slots=True)
class PipelineTable(Ledger):
    """`main` or `quarantine` of a pipeline: see `ports.Table`."""

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
        aside = Guards(untouched=False)  # people clear it as they mend
        main = PipelineTable(place / "main", group, meta, pipeline=pipeline.name)
        return cls(place, main, replace(main, path=place / "quarantine", guards=aside))
