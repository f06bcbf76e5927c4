"""The source of the simulations has the laws of every source."""

from collections import Counter
from pathlib import Path

from rota.dataplane.ports import Ports
from simulator.job import TimedJob
from simulator.source import MemorySource
from simulator.table import MemoryTable
from tests.dataplane.conformance.source_suite import ReplayingSuite, SharingSuite, SourceSuite


class MemoryBench:
    """A bench whose partitions grow row by row."""

    def __init__(self, _: Path) -> None:
        self.landed: Counter[str] = Counter()

    def open(self, start: str | int = "earliest", most: int = 1000) -> Ports:
        assert start == "earliest"
        source = MemorySource(
            lambda p: self.landed[p.removeprefix("p:")], lambda _: most, keys=lambda: sorted(+self.landed)
        )
        ports = Ports(source, MemoryTable.on(), MemoryTable.on(), TimedJob(lambda _: None), lambda _: ports)
        return ports

    def land(self, key: str, count: int = 1) -> None:
        self.landed[key] += count


class TestMemorySource(SourceSuite, SharingSuite, ReplayingSuite):
    bench = MemoryBench
