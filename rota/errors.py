"""Every error that a caller can expect. Each keeps its facts and ends with the next step.

    RotaError
    ├── ConfigError             a setting, a pipeline file, an id or an input document is wrong
    │   └── NoGroup             the group is not in this ZooKeeper (yet, or any more)
    ├── AssignmentError         no assignment can be computed from this input
    ├── CoordinationError
    │   ├── Unavailable         ZooKeeper cannot be reached, or this session may not act now
    │   ├── Forbidden           ZooKeeper does not let this process do that: its credentials, or the znode's ACL
    │   ├── Conflict            a compare-and-set lost: another process wrote first
    │   ├── Unknown             the reply was lost: read back before deciding
    │   └── Undecodable         a record cannot be read; it is reported, never taken for empty
    ├── OwnershipError
    │   └── Fenced              a newer token was seen: nothing was written
    ├── ForeignTable            the table or the ZooKeeper belongs to another group or another past
    └── DataError
        ├── OffsetGap           offsets do not follow each other
        ├── SourceChanged       a file changed or vanished before it was consumed, or a range is no longer whole
        ├── BadTransform        the user's transform raised, dropped a needed column or made a foreign partition
        ├── TooSlow             the job of one partition alone passed the deadline while others succeeded
        └── TooManyBadRecords   the ratio of bad records passed `max_bad_ratio`
    EnvironmentFailed           Spark, disk or memory failed, or the run was cancelled: no partition is parked

Laws:
1. A command prints `str(error)` as one red line and exits with 2. A traceback is a bug.
2. No error contains a secret. `***` replaces the value of each variable with the name of a secret (`AWS_SECRET_ACCESS_KEY`)
   and the content of each `ROTA_..._FILE`. So no line, parked reason or Dagster event contains it either.
3. An error is one line of printable text, even if it quotes other text.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache

SECRET = re.compile(r"(?!.*_file$).*(key|secret|token|passw|credential|sas\b|signature|_auth$)", re.IGNORECASE)
LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
MASK = "***"
MIN_SECRET_LENGTH = 8  # characters; a shorter value is not replaced, because ordinary words contain it
MAX_ERROR_LENGTH = 4_000  # characters of an error
_hidden: set[str] = set()


def hide(secret: str) -> str:
    """Return the secret. From now on no error of this process contains it."""
    if len(secret) >= MIN_SECRET_LENGTH:
        _hidden.add(secret)
    return secret


def mask(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the text without the secrets that this process knows and without the login of an address."""
    said = {value for name in environ if _is_secret(name) and len(value := environ.get(name, "")) >= MIN_SECRET_LENGTH}
    for secret in sorted(_hidden | said, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return LOGIN.sub(MASK, text)


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    """Return whether a variable of this name holds a secret. Cached, because each line of a log asks it for each
    variable.
    """
    return SECRET.match(name) is not None


def printable(text: str) -> str:
    """Return the text as one line for any terminal, log, record or page. Characters that are not printable are escaped
    as in Python, and the middle of a text above `MAX_ERROR_LENGTH` is left out.
    """
    text = (
        text
        if len(text) <= MAX_ERROR_LENGTH
        else f"{text[: MAX_ERROR_LENGTH * 3 // 4]} ... {text[-MAX_ERROR_LENGTH // 4 :]}"
    )
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shown(value: object, most: int = 80) -> str:
    """Return the value as an error quotes it: one line of at most `most` characters."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def join_step(what: str, step: str) -> str:
    """Return what happened, followed by the next step if it is known."""
    return f"{what}{'' if what.endswith('.') else '.'} {step}" if step else what


def counted(number: int, what: str) -> str:
    """Return the number with its noun: "1 move", "2,000 moves"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class RotaError(Exception):
    """One printable line: what happened, the evidence, and the next step.

    `facts` keep the values. `step`, a sentence without its full stop, ends the line; `what` is the line without it.
    """

    def __init__(self, what: str, *, step: str = "", **facts: object) -> None:
        super().__init__(printable(mask(join_step(what, step))))
        self.what, self.step, self.facts = printable(mask(what)), printable(mask(step)), facts


class ConfigError(RotaError):
    """A setting, a pipeline file, an id or an input document is wrong; names the field, the value and the valid values."""


class NoGroup(ConfigError):
    """The group is not in this ZooKeeper: it is not founded yet, or ZooKeeper was rebuilt."""


class AssignmentError(RotaError):
    """No assignment can be computed from this input."""


class CoordinationError(RotaError):
    """ZooKeeper did not execute the request."""


class Unavailable(CoordinationError):
    """ZooKeeper cannot be reached in time, or the session's own deadline passed. Nothing was sent."""


class Forbidden(CoordinationError):
    """ZooKeeper refuses this process a right. The line names the znode, the right, its holders and the identity of this
    process.
    """


class Conflict(CoordinationError):
    """A compare-and-set lost: `path` did not have the expected version; `index` is its place in the multi."""

    def __init__(self, message: str, *, path: str, index: int, cause: str) -> None:
        super().__init__(message, path=path, index=index, cause=cause)
        self.path, self.index, self.cause = path, index, cause


class Unknown(CoordinationError):
    """The reply was lost, so the write may have happened or not. Reconnect, sync, read back, then decide."""


class Undecodable(CoordinationError):
    """A record cannot be read; `path` names it. It is reported, never read as empty."""

    def __init__(self, what: str, *, path: str, step: str = "") -> None:
        super().__init__(what, step=step, path=path)
        self.path = path


class OwnershipError(RotaError):
    """The process has no right to work on the partition."""


class Fenced(OwnershipError):
    """A newer token was seen, and nothing was written. This is normal, not a crash."""

    def __init__(self, message: str, *, partitions: tuple[str, ...]) -> None:
        super().__init__(message, partitions=partitions)
        self.partitions = partitions


class ForeignTable(RotaError):
    """The table has rows but not this group's id, or ZooKeeper is older than the table. `rota adopt` takes it over."""


class DataError(RotaError):
    """The data or the user's transform is at fault. `partition` is the one to park, if it is known."""

    def __init__(self, what: str, *, partition: str | None = None, step: str = "", **facts: object) -> None:
        super().__init__(what, step=step, partition=partition, **facts)
        self.partition = partition


class OffsetGap(DataError):
    """Offsets do not follow each other."""


class SourceChanged(DataError):
    """A file changed or vanished before it was consumed, or the source lacks a part of the range. With the fact
    `heals`, the file may be restored, and the partition is retried automatically.
    """


class BadTransform(DataError):
    """The user's transform raised, dropped a needed column, or returned rows of another partition."""


class TooSlow(DataError):
    """The job of this partition alone passed the deadline while others succeeded: it hangs, or needs more time."""


class TooManyBadRecords(DataError):
    """The ratio of bad records passed `max_bad_ratio`. Neither table was written."""


class EnvironmentFailed(RotaError):
    """The environment failed: Spark, disk, memory, or the run was cancelled. The run ends and parks no partition."""
