"""The ledger over the log in memory has the laws of every table."""

from pathlib import Path

from rota.ledger.values import DataFile
from simulator.memory_log import MemoryLog, describe_file, make_file
from simulator.table import MemoryTable
from tests.dataplane.conformance.table_suite import TableSuite


class MemoryBench:
    """A table in memory. Its rows are read from the commits of its log."""

    def __init__(self, _: Path) -> None:
        self.log = MemoryLog()

    def open(self, *, group: str = "g", meta: str = "0" * 32, pipeline: str = "p") -> MemoryTable:
        return MemoryTable.on(self.log, group, pipeline, meta)

    def write(self, attempt: str, partition: str, offsets: range) -> DataFile:
        return make_file(f"data/{attempt}", partition, offsets.start, offsets.stop)

    def rows(self) -> list[tuple[str, int]]:
        there: dict[str, DataFile] = {}
        for one in self.log.commits:
            there = {path: file for path, file in there.items() if path not in (one.removes or ())}
            there |= {file.path: file for file in one.adds}
        said = map(describe_file, there.values())
        return [(one["min._partition"], at) for one in said for at in range(one["min._offset"], one["max._offset"] + 1)]


class TestMemoryTable(TableSuite):
    bench = MemoryBench
