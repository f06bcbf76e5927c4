"""Commits a change of a table: retries after a lost race, and finds out whether a commit without a reply succeeded.

Law: a change is committed exactly once or not at all, even if replies are lost. A change that lost a race is drafted again
on the newest version. A commit with an id succeeded if the log has the id, whatever the call returned. A draft without id
and result is made again until `make` returns no draft.
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
    """Commit the draft that `make` returns. Its argument is the number of earlier tries.

    Returns: for a draft with an id, the entry of the commit; else the draft's result, or what `make` returns instead.
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
                return entry  # type: ignore[return-value]  # T is LogEntry for a draft with an id
            if not (moved or error):
                error = EnvironmentFailed(f"{log.location}: the commit is not in the log. The next run looks again")
        if error:
            raise error
        if not moved and draft.result is not None:
            return draft.result
    raise EnvironmentFailed(f"{log.location}: not written in {TRIES} tries. Too many writers at once; try again")


def _append(draft: Draft[Any]) -> tuple[bool, EnvironmentFailed | None]:
    """Return whether the draft lost a race, and the error after which it is unknown whether the log has the commit."""
    try:
        draft.base.append(draft)
    except Moved:
        return True, None
    except EnvironmentFailed as error:
        return False, error
    return False, None


def find_commit(log: Log, commit: str, since: int) -> LogEntry | None:
    """Return the entry after version `since` that has this commit id; None if there is none."""
    later = takewhile(bool, map(log.read_info, count(since + 1)))
    return next((parse_entry(info) for info in later if info.get("rota.commit") == commit), None)


def read_back(version: Version, limit: int | None = None) -> list[Any]:
    """Return the infos of the newest `limit` commits, or of all, newest first. A shortened log has fewer."""
    numbers = range(version.number, -1 if limit is None else max(-1, version.number - limit), -1)
    return list(takewhile(bool, version.read_infos(numbers)))
