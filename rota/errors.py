"""Every error a caller can expect; each keeps its facts and ends with the next step.

    RotaError
    ├── ConfigError             a setting, a pipeline file, an id or an input document is wrong
    ├── AssignmentError         no assignment can be computed from this input
    ├── CoordinationError
    │   ├── Unavailable         ZooKeeper cannot be reached, or this session may not act now
    │   ├── Conflict            a compare-and-set lost: somebody else wrote first
    │   ├── Unknown             the reply was lost; read back before deciding
    │   └── Undecodable         a record cannot be read; it is quarantined, never taken for empty
    ├── OwnershipError
    │   ├── NotOwner            the own record does not name this incarnation
    │   └── Fenced              a newer token was seen: nothing was written
    ├── ForeignTable            the table or the ZooKeeper belongs to another group or another past
    └── DataError
        ├── OffsetGap           offsets do not follow each other
        ├── SourceChanged       a file changed or vanished before it was consumed, or a range is no longer whole
        ├── BadTransform        the user's transform raised, dropped a needed column or made a foreign partition
        └── TooManyBadRecords   the ratio of bad records passed its bound
    EnvironmentFailed           Spark, disk, memory or a cancel: nobody is parked for it

A command prints `str(error)` as one red line and exits 2; a traceback is a bug.
"""


def shown(value: object, most: int = 80) -> str:
    """A value as an error names it: on one line, and not longer than `most`."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def printable(text: str) -> str:
    """The text on one line that any terminal, log, record and page can hold: what cannot be shown is escaped.

    File names need not be text, and what users' code raises may hold anything: a lone surrogate fits into no record."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class RotaError(Exception):
    """One printable line that says what happened, why we think so, and what to do next; `facts` keep the numbers."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(printable(message))
        self.facts = facts


class ConfigError(RotaError):
    """A setting, a pipeline file, an id or an input document is wrong; names the field, the value and the valid ones."""


class AssignmentError(RotaError):
    """No assignment can be computed from this input."""


class CoordinationError(RotaError):
    """ZooKeeper did not do what was asked."""


class Unavailable(CoordinationError):
    """ZooKeeper cannot be reached in time, or the session's own deadline passed: nothing was sent."""


class Conflict(CoordinationError):
    """A compare-and-set lost; `path` names the culprit and `index` its place in the multi."""

    def __init__(self, message: str, *, path: str, index: int, cause: str) -> None:
        super().__init__(message, path=path, index=index, cause=cause)
        self.path, self.index, self.cause = path, index, cause


class Unknown(CoordinationError):
    """The reply was lost: the write may or may not be there. Reconnect, sync, read, decide from what is there."""


class Undecodable(CoordinationError):
    """A record cannot be read; `path` names it. It is quarantined and reported, never read as empty."""

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


class TooManyBadRecords(DataError):
    """The ratio of bad records passed `max_bad_ratio`; neither table was written."""


class EnvironmentFailed(RotaError):
    """The environment failed (Spark gone, cancelled, disk, memory): the run ends and parks nobody."""
