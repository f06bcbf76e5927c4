"""A ledger that changes what it holds: rows are replaced, and the table goes to another pipeline."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota.ledger import renaming
from rota.ledger.ledger import Ledger
from rota.ledger.replacing import replace_rows
from rota.ledger.values import Batch, LogEntry, Position


@dataclass(frozen=True, slots=True)
class OwnedLedger(Ledger):
    """What every `ports.OwnedTable` has in common, whatever log and files it stands on."""

    def replace(self, batch: Batch) -> LogEntry:
        """See `Table.replace`."""
        return replace_rows(self, batch)

    def is_renamed(self, old: str) -> bool:
        """See `OwnedTable.is_renamed`."""
        return renaming.is_renamed(self, old)

    def begin_rename(self, old: str, partitions: Iterable[str]) -> int:
        """See `OwnedTable.begin_rename`."""
        return renaming.begin_rename(self, old, partitions)

    def read_renamed_positions(self, old: str, partitions: Iterable[str]) -> Mapping[str, Position]:
        """See `OwnedTable.read_renamed_positions`."""
        return renaming.read_renamed_positions(self, old, partitions)

    def finish_rename(self, old: str, partitions: Iterable[str]) -> None:
        """See `OwnedTable.finish_rename`."""
        renaming.finish_rename(self, old, partitions)
