"""The arguments and results of the ledger: a batch to commit, a claim, a position, an entry of the log.

Offsets are int64. They increase within a partition, possibly with holes. A range is half-open. A partition is named by
its id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Ranges = Mapping[str, tuple[int, int]]  # partition -> [start, end)
Spans = Mapping[str, Sequence[tuple[int, int]]]  # partition -> [start, end) in order; none overlaps another


def join_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort the ranges, and join those that overlap or touch."""
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
    columns: str  # the schema that Spark wrote into the file, JSON


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of one commit. `id` is new for each attempt, table and set of partitions; it is not the run id."""

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
    index: str = ""  # the id of the index that assigned the offsets; empty if the source has no index
    leader_epochs: Mapping[str, int] = field(default_factory=dict)  # see `Position`


@dataclass(frozen=True, slots=True)
class TableClaim:
    """The result of a claim: a version of the table with the claimant's tokens, as the base of a compare-and-set.

    `offsets` are the next unread offsets of the claimed partitions. `newer` is partition -> the greater token that the
    table has seen; such a partition is not claimed. `snapshot` belongs to the implementation.
    """

    snapshot: object
    version: int
    table: str  # the table's id, which a new table at the same location does not have
    columns: str  # the table's schema, JSON
    tokens: Mapping[str, int]
    offsets: Mapping[str, int]
    newer: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Position:
    """The position of one partition in the table.

    Attributes:
        offset, token: None if the table does not know the partition.
        table: the table's own id; None if there is no table.
        leader_epoch: Kafka's leader epoch when the run read the end of the partition; None or -1 if the last commit
            has none.
    """

    offset: int | None
    token: int | None
    table: str | None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One commit of rota in the table's log. `at` is in seconds since 1970. `op` is commit, skip, replay, ..."""

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
    took: bool = False  # the commit is an adoption, and another program removed rows before
    index: str = ""  # see `Batch.index`
    all_rows: int = field(init=False, compare=False)  # the sum over all partitions

    def __post_init__(self) -> None:
        object.__setattr__(self, "all_rows", sum(self.rows.values()))

    def goes_beyond(self, partition: str, offset: int) -> bool:
        """Return whether the commit moved the partition beyond this offset."""
        return partition in self.ranges and self.ranges[partition][1] > offset

    def seconds_of(self, partition: str) -> float:
        """Return the partition's share of the seconds, in proportion to its rows; equal shares if there are no rows."""
        share = self.rows.get(partition, 0) / self.all_rows if self.all_rows else 1 / len(self.ranges)
        return self.seconds * share
