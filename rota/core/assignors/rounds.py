"""Rounds of an assignor that measures over time."""

from rota.core.values import Snapshot

ROUND = 60.0  # seconds from one round to the next, in the snapshot's time; without a clock every call is a round


def start_round(snapshot: Snapshot, at: float | None, number: float | None) -> tuple[bool, int, float]:
    """Return whether this call starts a round, the number of the round, and the snapshot's time at which to plan again.

    `at` and `number` are the time and number of the previous round, None if there was none.
    """
    count = int(number or 0)
    if at is not None and snapshot.now > 0 and at <= snapshot.now < at + ROUND:  # before `at`: the clock went back
        return False, count, at + ROUND
    return True, count + 1, snapshot.now + ROUND


def explain_pause(snapshot: Snapshot, at: float) -> str:
    """Return why a call between two rounds moves nothing."""
    return f"the last round was {snapshot.now - at:g} s ago, rounds are {ROUND:g} s apart"
