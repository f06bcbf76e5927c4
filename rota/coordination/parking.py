"""Parked partitions, which no run consumes for now, and refused writes.

Laws:
1. A parked partition keeps its owner and its offset, also if its record is unreadable. It is retried when the server's
   clock passes `retry_at`. If `retry_at` is None, it waits for an operator.
2. A run parks under the `checks` of its right to the partition: an overtaken run cannot.
3. Recording a refused write never raises.
"""

from collections.abc import Sequence

from rota.coordination.group_reader import GroupReader
from rota.coordination.group_state import GroupState
from rota.coordination.records import MAX_REFUSALS, Parked, Refusal, Refusals, repair_command
from rota.coordination.store import RECONNECTING, Check, Delete
from rota.errors import Conflict, CoordinationError, join_step, printable
from rota.ids import quote


def park(
    tree: GroupState,
    partition: str,
    reason: str,
    *,
    step: str = "",
    retry_after: float | None = None,
    offset: int | None = None,
    person: bool = False,
    error: str = "",
    checks: Sequence[Check] = (),
) -> Parked:
    """Parks the partition, or counts one more failure of the same offset.

    It is retried after `retry_after` seconds * 2^(failures - 1), at most an hour. `step` is the next step; `person`: it
    needs an operator. `error` is the class of the error, if the class states the cause. Raises Conflict if one of the
    `checks` does not hold.
    """
    now = tree.store.now()

    def parked(before: Parked | None) -> Parked:
        failures = before.failures + 1 if before is not None and before.offset == offset else 1
        wait = None if retry_after is None else min(retry_after * 2 ** min(failures - 1, 30), max(3600, retry_after))
        return Parked(
            reason=printable(reason)[:2000],
            step=printable(step)[:2000],
            failures=failures,
            since=now,
            retry_at=None if wait is None else now + wait,
            offset=offset,
            person=person,
            error=error,
        ).carry(before)

    return tree.update(tree.paths.parking(partition), Parked, parked, checks)


def unpark(tree: GroupState, partition: str, checks: Sequence[Check] = ()) -> bool:
    """Lets runs consume the partition again. Returns False if it was not parked, or one of the `checks` did not hold."""
    try:
        tree.store.multi([*checks, Delete(tree.paths.parking(partition))])
    except Conflict:
        return False
    return True


def tell_park(partition: str, parked: Parked) -> str:
    """Why the partition is parked, and what to do next."""
    mended = f"Then: rota retry {quote(partition)}" if parked.retry_at is None else ""
    return join_step(parked.reason, parked.step or mended)


def is_waiting(parked: Parked, now: float) -> bool:
    """Whether the park holds at `now` on the server's clock. It does not if that clock went back before the park."""
    return parked.retry_at is None or parked.since <= now < parked.retry_at


def explain_unreadable(tree: GroupReader, partition: str) -> str:
    """Which unreadable record makes the partition wait, and the next step; empty if none does.

    Call it after `tree` read the parked records, the checkpoints and the own records.
    """
    for path in (tree.paths.parking(partition), tree.paths.checkpoint(partition), tree.paths.own(partition)):
        if path in tree.unreadable:
            return f"its record {path} cannot be read. Restore it, or remove it: {repair_command(path)}"
    return ""


def note_refusal(tree: GroupState, refusal: Refusal) -> bool:
    """Adds the refusal to the ring. Returns whether that worked.

    It waits for the connection, because a refused run often slept and its session is being renewed.
    """
    tree.store.wait_active(RECONNECTING)
    try:
        noted = refusal if refusal.at else refusal.model_copy(update={"at": tree.store.now()})

        def added(before: Refusals | None) -> Refusals:
            ring = before.ring if before is not None else ()
            return Refusals(ring=(*ring, noted)[-MAX_REFUSALS:]).carry(before)

        tree.update(tree.paths.refused, Refusals, added)
    except CoordinationError:
        return False
    return True
