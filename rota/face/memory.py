"""The memory between two observations of a group, from which needs have an age."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_GAP = 180.0  # seconds between two observations; a longer gap is a pause, or a clock that was set forward
UNSEEN = 30.0  # seconds that a longer gap adds to the age of a need

Lag = tuple[float, int, int]  # since when, lag then, offset then


@dataclass(frozen=True, slots=True)
class Memory:
    """What an observation leaves to the next one.

    Args:
        since: key of a need -> when it was first observed, in server seconds.
        behind: partition whose lag does not fall -> since when, with its lag and offset at that time.
        at: the time of the observation, in server seconds; None if unknown.
    """

    since: Mapping[str, float] = field(default_factory=dict)
    behind: Mapping[str, Lag] = field(default_factory=dict)
    at: float | None = None

    def shorten_pause(self, now: float) -> "Memory":
        """Return the memory for an observation at `now`. A gap longer than `MAX_GAP` counts as `UNSEEN` seconds."""
        pause = 0.0 if self.at is None else now - self.at
        late = pause - UNSEEN if pause > MAX_GAP else 0.0
        behind = {p: (since + late, lag, offset) for p, (since, lag, offset) in self.behind.items()}
        return Memory({key: since + late for key, since in self.since.items()}, behind)


FIRST = Memory()  # of the first observation
