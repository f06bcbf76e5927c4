"""Every error a caller can expect; each keeps its facts and ends with the next step.

    RotaError
    ├── ConfigError             a setting, a pipeline file, an id or an input document is wrong
    │   └── NoGroup             the group is not in this ZooKeeper (yet, or any more)
    ├── AssignmentError         no assignment can be computed from this input
    ├── CoordinationError
    │   ├── Unavailable         ZooKeeper cannot be reached, or this session may not act now
    │   ├── Forbidden           ZooKeeper does not let this process do that: its credentials, or the znode's ACL
    │   ├── Conflict            a compare-and-set lost: somebody else wrote first
    │   ├── Unknown             the reply was lost; read back before deciding
    │   └── Undecodable         a record cannot be read; it is reported, never taken for empty
    ├── OwnershipError
    │   ├── NotOwner            the own record does not name this incarnation
    │   └── Fenced              a newer token was seen: nothing was written
    ├── ForeignTable            the table or the ZooKeeper belongs to another group or another past
    └── DataError
        ├── OffsetGap           offsets do not follow each other
        ├── SourceChanged       a file changed or vanished before it was consumed, or a range is no longer whole
        ├── BadTransform        the user's transform raised, dropped a needed column or made a foreign partition
        ├── TooSlow             the job of a partition alone passed the deadline, while others went through
        └── TooManyBadRecords   the ratio of bad records passed its bound
    EnvironmentFailed           Spark, disk, memory or a cancel: nobody is parked for it

A command prints `str(error)` as one red line and exits 2; a traceback is a bug. No error names a secret: what the
environment holds under a name that says so (`AWS_SECRET_ACCESS_KEY`), and what was read from a `ROTA_..._FILE`, stands as
`***` in every one of them, and so in what is made of them: lines, parked reasons, Dagster's events. Nor does one hold what
a terminal would obey or a record could not: it is one line of printable text, whatever it quotes.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache

SECRET = re.compile(r"(?!.*_file$).*(key|secret|token|passw|credential|sas\b|signature|_auth$)", re.IGNORECASE)
LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
MASK = "***"
LEAST = 8  # characters of a value that is looked for in texts: shorter ones are in every other word
LONGEST = 4_000  # characters of an error
_hidden: set[str] = set()


def hide(secret: str) -> str:
    """The secret, which no error of this process names from now on."""
    if len(secret) >= LEAST:
        _hidden.add(secret)
    return secret


def masked(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """The text without the secrets that this process knows, and without a login in an address."""
    said = {value for name in environ if _tells(name) and len(value := environ.get(name, "")) >= LEAST}
    for secret in sorted(_hidden | said, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return LOGIN.sub(MASK, text)


@lru_cache(maxsize=4096)
def _tells(name: str) -> bool:
    """Whether a variable of this name holds a secret: asked for each name of the environment, for each line of a log."""
    return SECRET.match(name) is not None


def printable(text: str) -> str:
    """The text on one line that any terminal, log, record and page can hold: what is not printable stands as it is written
    in Python, a very long middle is left out. File names need not be text, and what users' code raises may hold anything."""
    text = text if len(text) <= LONGEST else f"{text[: LONGEST * 3 // 4]} ... {text[-LONGEST // 4 :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shown(value: object, most: int = 80) -> str:
    """A value as an error names it: on one line, and not longer than `most`."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


class RotaError(Exception):
    """One printable line that says what happened, why we think so, and what to do next; `facts` keep the numbers."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(printable(masked(message)))
        self.facts = facts


class ConfigError(RotaError):
    """A setting, a pipeline file, an id or an input document is wrong; names the field, the value and the valid ones."""


class NoGroup(ConfigError):
    """The group is not in this ZooKeeper: nobody founded it yet, or it was rebuilt."""


class AssignmentError(RotaError):
    """No assignment can be computed from this input."""


class CoordinationError(RotaError):
    """ZooKeeper did not do what was asked."""


class Unavailable(CoordinationError):
    """ZooKeeper cannot be reached in time, or the session's own deadline passed: nothing was sent."""


class Forbidden(CoordinationError):
    """ZooKeeper does not let this process do that; names the znode, the right, who has it and who this is."""


class Conflict(CoordinationError):
    """A compare-and-set lost; `path` names the culprit and `index` its place in the multi."""

    def __init__(self, message: str, *, path: str, index: int, cause: str) -> None:
        super().__init__(message, path=path, index=index, cause=cause)
        self.path, self.index, self.cause = path, index, cause


class Unknown(CoordinationError):
    """The reply was lost: the write may or may not be there. Reconnect, sync, read, decide from what is there."""


class Undecodable(CoordinationError):
    """A record cannot be read; `path` names it. It is reported, never read as empty."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message, path=path)
        self.path = path


class OwnershipError(RotaError):
    """The right to work on a partition is not there."""


class NotOwner(OwnershipError):
    """The own record does not name this incarnation."""


class Fenced(OwnershipError):
    """A newer token was seen where the effect would have landed: nothing was written. Normal life, not a crash."""

    def __init__(self, message: str, *, partitions: tuple[str, ...]) -> None:
        super().__init__(message, partitions=partitions)
        self.partitions = partitions


class ForeignTable(RotaError):
    """A table with rows but without this group's id, or a ZooKeeper older than the table: `rota adopt` takes it over."""


class DataError(RotaError):
    """The data or the user's transform is at fault; `partition` names whom it parks, where one is known."""

    def __init__(self, message: str, *, partition: str | None = None, **facts: object) -> None:
        super().__init__(message, partition=partition, **facts)
        self.partition = partition


class OffsetGap(DataError):
    """Offsets do not follow each other."""


class SourceChanged(DataError):
    """A file changed or vanished before it was consumed, or the source no longer has the whole range."""


class BadTransform(DataError):
    """The user's transform raised, dropped a needed column, or made rows of a foreign partition."""


class TooSlow(DataError):
    """The job of a partition alone passed the deadline, while others went through: it hangs, or it needs more time."""


class TooManyBadRecords(DataError):
    """The ratio of bad records passed `max_bad_ratio`; neither table was written."""


class EnvironmentFailed(RotaError):
    """The environment failed (Spark gone, cancelled, disk, memory): the run ends and parks nobody."""
