"""The memory between two observations of a group, from which needs have an age."""

from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST = 180.0  # seconds between two observations; a longer gap is a pause, or a clock that was set forward
UNSEEN = 30.0  # seconds by which a longer gap ages a need

Lag = tuple[float, int, int]  # since when, lag then, offset then


@dataclass(frozen=True, slots=True)
class Memory:
    """What an observation leaves to the next one.

    Args:
        since: key of a need -> since when it was observed, in server seconds.
        behind: partition that does not keep up -> since when, with its lag and offset of then.
        at: when the observation was, in server seconds; None if unknown.
    """

    since: Mapping[str, float] = field(default_factory=dict)
    behind: Mapping[str, Lag] = field(default_factory=dict)
    at: float | None = None

    def shorten_pause(self, now: float) -> "Memory":
        """Return the memory for an observation at `now`, without the part of a gap that ages no need."""
        pause = 0.0 if self.at is None else now - self.at
        late = pause - UNSEEN if pause > LONGEST else 0.0
        behind = {p: (since + late, lag, offset) for p, (since, lag, offset) in self.behind.items()}
        return Memory({key: since + late for key, since in self.since.items()}, behind)


FIRST = Memory()  # of the first observation
