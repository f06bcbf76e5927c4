"""What a look at a group leaves to the next look, so that needs have an age."""

from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST = 180.0  # seconds between two looks; after more nobody looked, or ZooKeeper's clock was put forward
UNSEEN = 30.0  # seconds that count of a longer pause

Lag = tuple[float, int, int]  # since when, lag then, offset then


@dataclass(frozen=True, slots=True)
class Memory:
    """What a look leaves to the next: since when each need was seen, and the lag of partitions that do not keep up.

    `at` is when that look was, in server seconds; None: unknown.
    """

    since: Mapping[str, float] = field(default_factory=dict)
    behind: Mapping[str, Lag] = field(default_factory=dict)
    at: float | None = None

    def shorten_pause(self, now: float) -> "Memory":
        """Return the memory for a look at `now`, without the part of the pause that does not count."""
        pause = 0.0 if self.at is None else now - self.at
        late = pause - UNSEEN if pause > LONGEST else 0.0
        behind = {p: (since + late, lag, offset) for p, (since, lag, offset) in self.behind.items()}
        return Memory({key: since + late for key, since in self.since.items()}, behind)


FIRST = Memory()  # of a first look
