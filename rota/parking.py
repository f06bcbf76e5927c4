"""Partitions that wait because their data or the user's transform failed; nobody else waits for them.

Law: a failure of the transform or of data is tried again after a back-off in the server's time, doubled at each failure of
the same offset; what only a person can mend (a file that changed, too many bad records, a restored table) waits for one.
"""

from contextlib import suppress

from rota.coordination.records import Parked
from rota.coordination.tree import Tree
from rota.errors import CoordinationError

BACK_OFF, LONGEST = 5.0, 3600.0  # seconds


def park(tree: Tree, partition: str, reason: str, offset: int, *, final: bool) -> Parked:
    """Parks the partition at `offset`; `final`: until a person types `rota retry` or `rota skip`."""
    now = tree.store.now()

    def parked(was: Parked | None) -> Parked:
        failures = was.failures + 1 if was is not None and was.offset == offset else 1
        retry_at = None if final else now + min(LONGEST, BACK_OFF * 2 ** min(failures - 1, 20))
        return Parked(reason=reason[:2000], failures=failures, retry_at=retry_at, offset=offset)

    return tree.update(tree.paths.parking(partition), Parked, parked)


def unpark(tree: Tree, partition: str) -> None:
    """The partition goes on at the next look; harmless if it was not parked, and if ZooKeeper does not answer now."""
    with suppress(CoordinationError):
        tree.store.delete(tree.paths.parking(partition))


def waits(parked: Parked | None, now: float) -> bool:
    """Whether the partition still has to wait at `now` (server seconds)."""
    return parked is not None and (parked.retry_at is None or now < parked.retry_at)
