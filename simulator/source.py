"""A source in memory: every partition is a growing sequence of offsets, none of which is ever lost."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from rota.dataplane.ports import ENDS, Observation, Query
from rota.errors import RotaError, SourceChanged
from rota.ledger.values import Ranges


@dataclass(frozen=True)
class MemorySource:
    """`end` returns the end offset of a partition, `most` the maximum of its offsets in one batch, `keys` the keys. `pause`
    is called before the ends are assigned."""

    end: Callable[[str], int]
    most: Callable[[str], int]
    pause: Callable[[], None] = lambda: None
    keys: Callable[[], Iterable[str]] = tuple

    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`."""
        return tuple(sorted(self.keys()))

    def observe(self, partitions: tuple[str, ...], query: Query = ENDS) -> Observation:
        """See `Source.observe`."""
        if query.assign:
            self.pause()
        ends = {p: self.end(p) for p in partitions}
        return Observation(ends=ends, starts=query.choose_starts("earliest", ends), place="memory")

    def plan_jobs(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> tuple[Ranges, ...]:
        """Return one job with all new offsets."""
        ranges = {p: (start, min(ends[p], start + self.most(p))) for p, start in starts.items()}
        new = {p: r for p, r in ranges.items() if r[0] < r[1]}
        return (new,) if new else ()

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """Return the ranges that exceed the end of their partition."""
        beyond = {p: end for p, (_, end) in ranges.items() if end > self.end(p)}
        return {
            p: SourceChanged(f"{p} has no offset {end - 1}. Give a range that ends before") for p, end in beyond.items()
        }

    def locate(self, partition: str, offset: int) -> str:
        """See `Source.locate`."""
        return f"offset {offset} of {partition}"

    def reread(self, ranges: Ranges) -> Self:  # noqa: ARG002
        """See `Replays.reread`: every reader reads the same data."""
        return self
