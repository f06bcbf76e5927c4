"""Rounds of an assignor that measures over time."""

from rota.core.values import Snapshot

ROUND = 60.0  # seconds from one round to the next, in the snapshot's time; without a clock every call is a round


def this_round(snapshot: Snapshot, at: float | None, number: float | None) -> tuple[bool, int, float]:
    """Whether this call is a round of its own, its number, and when to look again."""
    count = int(number or 0)
    if at is not None and snapshot.now > 0 and at <= snapshot.now < at + ROUND:  # below `at` the clock went back
        return False, count, at + ROUND
    return True, count + 1, snapshot.now + ROUND


def between(snapshot: Snapshot, at: float) -> str:
    """Why a call that is no round of its own sheds nothing."""
    return f"the last round was {snapshot.now - at:g} s ago, rounds are {ROUND:g} s apart"
