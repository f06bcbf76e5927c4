"""Caches what was read of ZooKeeper, for as long as it is unchanged.

Law: `keep` returns what its `read` would return now, as far as that depends on ZooKeeper and on `about`. It reads again
if the store's stamp differed at the last `refresh`, if `about` differs, or if the value has expired (`lasts`). The
stamp is read before the values, so a change in between causes another read. A read that raises caches nothing.
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
    """The cache of a caller that reads one ZooKeeper again and again."""

    store: Store
    _stamp: tuple[int, int] | None = None
    _known: dict[str, tuple[object, Any]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Drops the whole cache if anything changed in ZooKeeper. One request. Raises Unavailable."""
        if (stamp := self.store.stamp()) != self._stamp:
            self._stamp, self._known = stamp, {}

    def keep(self, what: str, read: Callable[[], T], *, about: object = None, lasts: Callable[[T], bool] = _lasts) -> T:
        """The cached or new result of `read` under this name. `about` is what it depends on in addition to ZooKeeper."""
        if what in self._known and self._known[what][0] == about:
            found: T = self._known[what][1]
            return found
        self._known.pop(what, None)
        found = read()
        if lasts(found):
            self._known[what] = about, found
        return found
