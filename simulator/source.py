"""A source in memory: every partition is a row of offsets that grows, and nothing in it ever breaks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from rota.dataplane.ports import ENDS, Observation, Query
from rota.errors import RotaError, SourceChanged
from rota.ledger.values import Ranges


@dataclass(frozen=True)
class MemorySource:
    """`end` gives the end offset of a partition now, `most` how many offsets of it one batch may take, `keys` the keys that
    there are. `pause` is called before the ends are assigned."""

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
        """One job of all that is new."""
        ranges = {p: (start, min(ends[p], start + self.most(p))) for p, start in starts.items()}
        new = {p: r for p, r in ranges.items() if r[0] < r[1]}
        return (new,) if new else ()

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """Nothing breaks; what was never there is not there."""
        beyond = {p: end for p, (_, end) in ranges.items() if end > self.end(p)}
        return {
            p: SourceChanged(f"{p} has no offset {end - 1}. Give a range that ends before") for p, end in beyond.items()
        }

    def locate(self, partition: str, offset: int) -> str:
        """See `Source.locate`."""
        return f"offset {offset} of {partition}"

    def reread(self, ranges: Ranges) -> Self:  # noqa: ARG002
        """See `Replays.reread`: its data stays for every reader."""
        return self
