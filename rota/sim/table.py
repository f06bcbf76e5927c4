"""The shipped ledger over a log in memory, as the simulator and tests use it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota.errors import Fenced
from rota.ledger.memory_log import MemoryFiles, MemoryLog, describe_file
from rota.ledger.owned import OwnedLedger
from rota.ledger.port import Version
from rota.ledger.schema import OFFSET, PARTITION
from rota.ledger.values import Batch, LogEntry, Position, TableClaim


@dataclass(frozen=True)
class MemoryTable(OwnedLedger):
    """See `ports.Table`. `refusals` counts, for each partition, claims and commits that a newer owner had overtaken. Others
    come in before each look at what a commit compares, and before the commit."""

    log: MemoryLog
    refusals: Counter[str] = field(default_factory=Counter)

    @classmethod
    def on(cls, log: MemoryLog | None = None, group: str = "g", pipeline: str = "", meta: str = "") -> "MemoryTable":
        """The table of this log, or a new one, as a pipeline of a group sees it."""
        return cls(log or MemoryLog(), MemoryFiles(), group, meta, pipeline)

    @property
    def refused(self) -> int:
        """All refusals."""
        return self.refusals.total()

    def open_existing(self) -> Version:
        """See `Ledger.open_existing`."""
        self.log.pause()
        return super().open_existing()

    def open_or_make(self) -> Version:
        """See `Ledger.open_or_make`."""
        self.log.pause()
        return super().open_or_make()

    def read_positions(self, partitions: tuple[str, ...]) -> Mapping[str, Position]:
        """See `Table.read_positions`."""
        self.log.pause()
        return super().read_positions(partitions)

    def claim(self, tokens: Mapping[str, int], starts: Mapping[str, int], *, known: bool = False) -> TableClaim:
        """See `Table.claim`."""
        claimed = super().claim(tokens, starts, known=known)
        self.refusals.update(claimed.newer.keys())
        return claimed

    def commit(self, claimed: TableClaim, batch: Batch, follows: bool = True) -> LogEntry:
        """See `Table.commit`."""
        try:
            return super().commit(claimed, batch, follows)
        except Fenced as error:
            self.refusals.update(error.partitions)
            raise

    def read_samples(self, versions: Mapping[str, int], most: int) -> Mapping[str, tuple[Mapping[str, object], ...]]:
        """See `Table.read_samples`."""
        found: dict[str, tuple[Mapping[str, object], ...]] = {}
        for partition, version in versions.items():
            added = self.log.commits[version].adds if version <= self.log.newest else ()
            brought = (f for f in added if f.partition == partition and "/kept/" not in f.path)
            if file := next(brought, None):
                said = describe_file(file)
                offsets = range(said[f"min.{OFFSET}"], said[f"max.{OFFSET}"] + 1)[:most]
                found[partition] = tuple({OFFSET: offset} for offset in offsets)
        return found

    def count_rows(self, partitions: Iterable[str]) -> Mapping[str, int]:
        """See `Table.count_rows`."""
        table = self.log.open()
        counts = dict.fromkeys(partitions, 0)
        for one in table.files().to_pylist() if table else ():
            if (partition := one[f"min.{PARTITION}"]) in counts:
                counts[partition] += one["num_records"]
        return counts

    def compact(self, version: int) -> None:
        """Its files are small."""

    def explain_harm(self, most: int | None = None) -> str:  # noqa: ARG002
        """No file of it is ever gone."""
        return ""
