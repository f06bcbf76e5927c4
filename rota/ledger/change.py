"""The one loop around a commit: how a change is tried again, and how a lost answer is read.

Law: a change goes in exactly once or not at all, whatever is lost on the way. Whoever lost a race makes its draft anew, on
the newest version. A commit with an id is in if the log says so, whatever its call says; one without an id is made anew,
until there is nothing left to do.
"""

from collections.abc import Callable
from itertools import count, takewhile
from typing import Any, TypeVar

from rota.errors import EnvironmentFailed
from rota.ledger.entries import parse_entry
from rota.ledger.port import Draft, Log, Moved, Version
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
        error = _append(draft)
        if draft.commit:
            if entry := find_commit(log, draft.commit, since):
                return entry  # type: ignore[return-value]  # a draft with an id is asked for its entry
            error = error or EnvironmentFailed(
                f"{log.location}: the commit is not in the log. The next run looks again"
            )
        if isinstance(error, EnvironmentFailed):
            raise error
        if error is None and draft.result is not None:
            return draft.result
    raise EnvironmentFailed(f"{log.location}: not written in {TRIES} tries. Too many writers at once; try again")


def _append(draft: Draft[Any]) -> Moved | EnvironmentFailed | None:
    try:
        draft.base.append(draft)
    except (Moved, EnvironmentFailed) as error:
        return error
    return None


def find_commit(log: Log, commit: str, since: int) -> LogEntry | None:
    """The entry after version `since` that carries this commit id."""
    later = takewhile(bool, map(log.read_info, count(since + 1)))
    return next((parse_entry(said) for said in later if said.get("rota.commit") == commit), None)


def read_back(version: Version, limit: int | None = None) -> list[Any]:
    """What the newest commits say of themselves, newest first, down to where the log was shortened."""
    numbers = range(version.number, -1 if limit is None else max(-1, version.number - limit), -1)
    return list(takewhile(bool, version.log.read_infos(numbers)))
