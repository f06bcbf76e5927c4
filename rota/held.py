"""What a process keeps of tables and indexes from one poll to the next."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Held:
    """Objects that read a location, one for each type and location. The owner of a `Held` decides how long they last: a run,
    a watcher, or a sensor.

    Each object checks by itself whether what it has read is still there.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[Callable[[str], Any], str], Any] = {}

    def get(self, kind: Callable[[str], T], location: str) -> T:
        """Return the object of this type for the location; the first call makes it."""
        if (kind, location) not in self._objects:
            self._objects[kind, location] = kind(location)
        found: T = self._objects[kind, location]
        return found
