"""The values that the ledger takes and returns: a batch to commit, a claim, a position, an entry of the log.

An offset is an int64 and grows within a partition; there may be holes between two records. A range is half-open. A
partition is named by its id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Ranges = Mapping[str, tuple[int, int]]  # partition -> [start, end)
Spans = Mapping[str, Sequence[tuple[int, int]]]  # partition -> [start, end) in order; none overlaps another


def join_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same offsets as the fewest sorted ranges."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


@dataclass(frozen=True, slots=True)
class DataFile:
    """A written Parquet file: `path` below the table's folder, and what its footer states."""

    path: str
    partition: str
    size: int
    rows: int
    modified: int  # ms
    statistics: str  # JSON, as Delta states statistics
    columns: str  # the schema that Spark wrote into it, JSON


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit makes visible. `id` is new for each attempt, table and set of partitions; it is not the run id."""

    id: str
    run: str
    incarnation: str
    attempt: str
    epoch: int
    ranges: Ranges
    files: tuple[DataFile, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    bad: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    op: str = "commit"
    index: str = ""  # the id of what gives its offsets their meaning, if that could be another one
    leader_epochs: Mapping[str, int] = field(default_factory=dict)  # see `Position`


@dataclass(frozen=True, slots=True)
class TableClaim:
    """A version of the table in which every token is the claimant's own: the base of the commit's compare-and-set.

    `offsets` are the partitions' next unread offsets. `newer` are the partitions that were not claimed because the table
    has seen a greater token: partition -> that token. `snapshot` belongs to the implementation.
    """

    snapshot: object
    version: int
    table: str  # the table's own id; another table at the same location has another
    columns: str  # its schema, JSON
    tokens: Mapping[str, int]
    offsets: Mapping[str, int]
    newer: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Position:
    """The position of one partition in the table.

    Attributes:
        offset, token: None if the table does not know the partition.
        table: the table's own id; None if there is no table.
        leader_epoch: the epoch under which the source had every record below the offset; None or -1 if the last commit
            states none.
    """

    offset: int | None
    token: int | None
    table: str | None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One commit, from the table's log. `at` is in seconds since 1970, `op` is commit, skip, replay, ..."""

    version: int
    at: float
    op: str
    group: str
    commit: str
    run: str
    attempt: str
    epoch: int
    tokens: Mapping[str, int]
    ranges: Ranges
    rows: Mapping[str, int]
    bad: Mapping[str, int]
    seconds: float
    took: bool = False  # an adoption after another program removed rows
    index: str = ""  # see `Batch.index`
    all_rows: int = field(init=False, compare=False)  # of all partitions

    def __post_init__(self) -> None:
        object.__setattr__(self, "all_rows", sum(self.rows.values()))

    def goes_beyond(self, partition: str, offset: int) -> bool:
        """Return whether the commit moved the partition beyond this offset."""
        return partition in self.ranges and self.ranges[partition][1] > offset

    def seconds_of(self, partition: str) -> float:
        """Return the share of one partition in the seconds, by rows; an even share if there are no rows."""
        share = self.rows.get(partition, 0) / self.all_rows if self.all_rows else 1 / len(self.ranges)
        return self.seconds * share
