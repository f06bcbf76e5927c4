"""The table of the simulations keeps what every table promises."""

from pathlib import Path

from rota.ledger.values import DataFile
from rota.sim.memory_table import MemoryTable
from tests.dataplane.conformance.table_suite import TableSuite


class MemoryBench:
    """A table in memory."""

    def __init__(self, _: Path) -> None:
        self.table = MemoryTable(owner=f"{'0' * 32} p")

    def open(self, *, group: str = "g", meta: str = "0" * 32, pipeline: str = "p") -> MemoryTable:
        return self.table.seen_by(group, f"{meta} {pipeline}")

    def write(self, attempt: str, partition: str, offsets: range) -> DataFile:
        return DataFile(f"data/{attempt}/{partition}", partition, len(offsets), len(offsets), 0, "{}", "{}")

    def rows(self) -> list[tuple[str, int]]:
        slices = (one for mine in self.table.slices.values() for one in mine.values())
        return [(one.partition, offset) for one in slices for offset in range(one.start, one.end)]


class TestMemoryTable(TableSuite):
    bench = MemoryBench
