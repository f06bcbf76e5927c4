"""What was read of ZooKeeper, kept for as long as it is so.

Law: `keep` gives what its `read` would give now, where that comes from ZooKeeper and from `about`. It is read again where
the store's stamp was another one at the last `refresh`, where `about` is another, and where it does not last: its time comes
without a change. The stamp is asked before anything is read: what changed in between is read again. A read that raises
leaves nothing behind.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rota.coordination.store import Store

T = TypeVar("T")


def _lasts(_: object) -> bool:
    return True


@dataclass(slots=True)
class Readings:
    """What whoever looks again and again knows of one ZooKeeper."""

    store: Store
    _stamp: tuple[int, int] | None = None
    _known: dict[str, tuple[object, Any]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Forgets all of it if anything changed in ZooKeeper. One request. Raises Unavailable."""
        if (stamp := self.store.stamp()) != self._stamp:
            self._stamp, self._known = stamp, {}

    def keep(self, what: str, read: Callable[[], T], *, about: object = None, lasts: Callable[[T], bool] = _lasts) -> T:
        """What `read` found under this name, now or before. `about` is what it depends on beside ZooKeeper."""
        if what in self._known and self._known[what][0] == about:
            found: T = self._known[what][1]
            return found
        self._known.pop(what, None)
        found = read()
        if lasts(found):
            self._known[what] = about, found
        return found
