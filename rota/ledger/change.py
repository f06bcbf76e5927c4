"""The one loop around a commit: how a change is tried again, and how a lost answer is read.

Law: a change goes in exactly once or not at all, whatever is lost on the way. Whoever lost a race makes its draft anew, on
the newest version. A commit with an id is in if the log says so, whatever its call says; one without an id is made anew,
until there is nothing left to do.
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
    """Commits what `make(tries so far)` drafts. The answer is what it gives instead of a draft, the draft's result, or the
    entry of its id. Raises EnvironmentFailed, and what `make` raises."""
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
    """Whether what it compares moved, and the error where nobody knows whether it went in."""
    try:
        draft.base.append(draft)
    except Moved:
        return True, None
    except EnvironmentFailed as error:
        return False, error
    return False, None


def find_commit(log: Log, commit: str, since: int) -> LogEntry | None:
    """The entry after version `since` that carries this commit id."""
    later = takewhile(bool, map(log.read_info, count(since + 1)))
    return next((parse_entry(said) for said in later if said.get("rota.commit") == commit), None)


def read_back(version: Version, limit: int | None = None) -> list[Any]:
    """What the newest commits say of themselves, newest first, down to where the log was shortened."""
    numbers = range(version.number, -1 if limit is None else max(-1, version.number - limit), -1)
    return list(takewhile(bool, version.read_infos(numbers)))
