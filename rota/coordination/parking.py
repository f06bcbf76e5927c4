"""Partitions that nobody consumes for now, and writes that were refused: what a person looks at in the morning.

Laws: a parked partition keeps its owner and its offset; it is tried again when the *server's* clock passes `retry_at`,
never when `retry_at` is None. Noting a refusal never fails the work that was refused.
"""

from rota.coordination.records import MAX_REFUSALS, Parked, Refusal, Refusals
from rota.coordination.tree import Tree
from rota.errors import Conflict, CoordinationError


def park(
    tree: Tree, partition: str, reason: str, *, retry_after: float | None = None, offset: int | None = None
) -> Parked:
    """Parks the partition, or counts one more failure of the same offset; tried again after `retry_after` seconds *
    2^(failures - 1), an hour at most."""
    now = tree.store.now()

    def parked(before: Parked | None) -> Parked:
        failures = before.failures + 1 if before is not None and before.offset == offset else 1
        wait = None if retry_after is None else min(retry_after * 2 ** min(failures - 1, 30), max(3600, retry_after))
        return Parked(
            reason=reason[:2000],
            failures=failures,
            retry_at=None if wait is None else now + wait,
            offset=offset,
        )

    return tree.update(tree.paths.parking(partition), Parked, parked)


def unpark(tree: Tree, partition: str) -> bool:
    """Lets it be consumed again at once; whether it was parked."""
    try:
        tree.store.delete(tree.paths.parking(partition))
    except Conflict:
        return False
    return True


def waiting(parked: Parked, now: float) -> bool:
    """Whether the partition is to be left alone at `now`, the server's clock."""
    return parked.retry_at is None or now < parked.retry_at


def note_refusal(tree: Tree, refusal: Refusal) -> bool:
    """Adds to the ring of refused writes; whether that worked."""
    try:
        noted = refusal if refusal.at else refusal.model_copy(update={"at": tree.store.now()})

        def added(before: Refusals | None) -> Refusals:
            ring = before.ring if before is not None else ()
            return Refusals(ring=(*ring, noted)[-MAX_REFUSALS:])

        tree.update(tree.paths.refused, Refusals, added)
    except CoordinationError:
        return False
    return True
