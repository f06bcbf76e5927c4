"""The shipped ledger over a log in memory, for the simulator and tests."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.deltalog.port import Version
from rota.errors import Fenced
from rota.ledger.ledger import Ledger
from rota.ledger.values import Batch, LogEntry, Position, TableClaim
from simulator.memory_log import MemoryFiles, MemoryLog


@dataclass(frozen=True)
class MemoryTable(Ledger):
    """`refusals` counts, for each partition, claims and commits that were refused for a newer owner. Other actors can run
    before each read of what a commit compares, and before the commit."""

    log: MemoryLog
    refusals: Counter[str] = field(default_factory=Counter)

    @classmethod
    def on(cls, log: MemoryLog | None = None, group: str = "g", pipeline: str = "", meta: str = "") -> "MemoryTable":
        """Return the table of this log, or of a new one, for a pipeline of a group."""
        return cls(log or MemoryLog(), MemoryFiles(), group, meta, pipeline)

    @property
    def refused(self) -> int:
        """Return the number of refusals."""
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
        """See `Ledger.read_positions`."""
        self.log.pause()
        return super().read_positions(partitions)

    def claim(self, tokens: Mapping[str, int], starts: Mapping[str, int], *, known: bool = False) -> TableClaim:
        """See `Ledger.claim`."""
        claimed = super().claim(tokens, starts, known=known)
        self.refusals.update(claimed.newer.keys())
        return claimed

    def commit(self, claimed: TableClaim, batch: Batch, follows: bool = True) -> LogEntry:
        """See `Ledger.commit`."""
        try:
            return super().commit(claimed, batch, follows)
        except Fenced as error:
            self.refusals.update(error.partitions)
            raise
