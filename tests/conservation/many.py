"""What many judged cases come to: how much was read, of what kinds, what is wrong, and what it cost."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import psutil

from tests.conservation.case import Case
from tests.conservation.checker import Judgement
from tests.conservation.oracle import BAD, EITHER, GOOD


@dataclass
class Many:
    """`failed` are the places of the cases with faults, in the order in which they were added."""

    schemas: int = 0
    files: int = 0
    records: Counter[str] = field(default_factory=Counter)  # by verdict
    faults: Counter[str] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)
    failed: dict[str, Judgement] = field(default_factory=dict)

    def add(self, case: Case, found: Judgement) -> None:
        self.schemas += 1
        self.files += len(case.files)
        self.records.update(found.records)
        self.faults += found.counts()
        self.drawn += case.drawn
        if found.faults:
            self.failed[case.whence] = found

    def summary(self) -> str:
        records = ", ".join(f"{self.records[verdict]:,} {verdict}" for verdict in (GOOD, BAD, EITHER))
        return (
            f"{self.schemas} schemas, {self.files:,} files, {self.records.total():,} records ({records}). "
            f"Faults in {len(self.failed)} schemas: {dict(self.faults) or 'none'}"
        )

    def kinds(self) -> list[str]:
        """A line for each thing that is drawn: its kinds, and how often each was."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, count in sorted(self.drawn.items()):
            what, _, kind = name.partition(": ")
            found[what].append(f"{kind} {count:,}")
        return [f"{what}: {', '.join(kinds)}" for what, kinds in found.items()]


def count_cpu(*pids: int) -> float:
    """Seconds of CPU of these processes and of those that they started."""
    roots = [psutil.Process(pid) for pid in pids]
    tree = {*roots, *(child for root in roots for child in root.children(recursive=True))}
    return float(sum(sum(one.cpu_times()[:2]) for one in tree))
