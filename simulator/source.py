"""A source in memory: every partition is a row of offsets that grows, and nothing in it ever breaks."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

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
    skips_existing: ClassVar[bool] = False

    def find_place(self) -> str:
        """See `Source.find_place`."""
        return "memory"

    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`."""
        return tuple(sorted(self.keys()))

    def read_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.read_ends`."""
        return {p: self.end(p) for p in partitions}

    def assign_offsets(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.assign_offsets`."""
        self.pause()
        return self.read_ends(partitions)

    def choose_starts(self, ends: Mapping[str, int], later: Container[str] = ()) -> Mapping[str, int]:  # noqa: ARG002
        """A partition begins at its first offset."""
        return dict.fromkeys(ends, 0)

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
