"""The owner of a partition at a time in the past, from the epochs.

Laws: an answer follows from recorded moves alone. An epoch that lists only a part of its moves may omit one of this
partition. So the owner before and after such an epoch may differ, and is reported as unknown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from rota.coordination.records import MAX_MOVES

if TYPE_CHECKING:
    from rota.coordination.records import Epoch, Moved


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a partition's target. `move` None: the epoch dropped the partition."""

    at: float
    epoch: "Epoch"
    move: "Moved | None"


@dataclass(frozen=True, slots=True)
class PastOwner:
    """The worker whose target named the partition (None: no worker's), if `known`.

    `since` is the change to this owner, `until` the next change; None: it is not among the epochs.
    """

    known: bool
    owner: str | None = None
    since: Change | None = None
    until: Change | None = None


def find_past_owner(epochs: "Sequence[Epoch]", partition: str, at: float, current: str | None) -> PastOwner:
    """Return the owner at `at` by these epochs, oldest first. `current` is the worker whose target names it now."""
    changes = sorted(_list_changes(epochs, partition), key=lambda change: change.at)
    since = next((change for change in reversed(changes) if change.at <= at), None)
    until = next((change for change in changes if change.at > at), None)
    if since and not _hides(epochs, since.at, at):
        return PastOwner(True, since.move.to_worker if since.move else None, since, until)
    if not epochs or at < epochs[0].at:  # before the first epoch there is no owner; else older epochs are unknown
        return PastOwner(not epochs or epochs[0].epoch == 1, None, None, until)
    if not _hides(epochs, at, until.at if until else inf) and (until is None or until.move):
        return PastOwner(True, until.move.from_worker if until and until.move else current, None, until)
    return PastOwner(False, None, None, until)


def _list_changes(epochs: "Sequence[Epoch]", partition: str) -> "Iterator[Change]":
    for epoch in epochs:
        yield from (Change(epoch.find_time(move), epoch, move) for move in epoch.moves if move.partition == partition)
        if partition in epoch.dropped:
            yield Change(epoch.at, epoch, None)


def _hides(epochs: "Sequence[Epoch]", start: float, end: float) -> bool:
    """Return whether an epoch in this time, start excluded, lists only a part of its changes."""
    parts = (epoch for epoch in epochs if epoch.moved > len(epoch.moves) or len(epoch.dropped) >= MAX_MOVES)
    return any(start < epoch.at <= end for epoch in parts)
