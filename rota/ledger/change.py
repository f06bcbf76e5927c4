"""The one loop around a commit: how a change is tried again, and how a lost answer is found.

Law: a change goes in exactly once or not at all, whatever answer is lost. A change that lost a race is drafted anew on the
newest version. A commit with an id is in if the log has the id, whatever its call returned. A commit without an id is made
anew until there is nothing left to do.
"""

from collections.abc import Callable
from itertools import count, takewhile
from typing import Any, TypeVar

from rota.deltalog.port import Draft, Log, Moved, Version
from rota.errors import EnvironmentFailed
from rota.ledger.entries import parse_entry
from rota.ledger.values import LogEntry

T = TypeVar("T")
TRIES = 100


def commit_change(log: Log, make: Callable[[int], Draft[T] | T]) -> T:
    """Commit what `make(tries so far)` drafts.

    Returns: what `make` returns instead of a draft; the draft's result; or the entry of the draft's id.
    Raises: EnvironmentFailed, and what `make` raises.
    """
    since: int | None = None
    for tries in range(TRIES):
        draft = make(tries)
        if not isinstance(draft, Draft):
            return draft
        since = draft.base.number if since is None else since
        moved, error = _append(draft)
        if draft.commit:
            if entry := find_commit(log, draft.commit, since):
                return entry  # type: ignore[return-value]  # a draft with an id is asked for its entry
            if not (moved or error):
                error = EnvironmentFailed(f"{log.location}: the commit is not in the log. The next run looks again")
        if error:
            raise error
        if not moved and draft.result is not None:
            return draft.result
    raise EnvironmentFailed(f"{log.location}: not written in {TRIES} tries. Too many writers at once; try again")


def _append(draft: Draft[Any]) -> tuple[bool, EnvironmentFailed | None]:
    """Return whether something that the draft compares moved, and the error after which it is unknown whether it is in."""
    try:
        draft.base.append(draft)
    except Moved:
        return True, None
    except EnvironmentFailed as error:
        return False, error
    return False, None


def find_commit(log: Log, commit: str, since: int) -> LogEntry | None:
    """Return the entry after version `since` that has this commit id."""
    later = takewhile(bool, map(log.read_info, count(since + 1)))
    return next((parse_entry(info) for info in later if info.get("rota.commit") == commit), None)


def read_back(version: Version, limit: int | None = None) -> list[Any]:
    """Return what the newest commits state about themselves, newest first, down to where the log was shortened."""
    numbers = range(version.number, -1 if limit is None else max(-1, version.number - limit), -1)
    return list(takewhile(bool, version.read_infos(numbers)))
