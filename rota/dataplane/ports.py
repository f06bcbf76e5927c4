"""The ports of a run: what the verbs ask of a source and of a job, and the values that they exchange.

Terms:
    offset: an int64 that numbers a record of a partition, or a file. It grows; there may be holes between two records.
    assigned end: one past the newest offset that the source has given to data.
    end: one past the newest offset that a run would find now. It is the assigned end, or greater if new data wait for
        their offsets.
    range: the offsets `[start, end)`.
    partition: the id that the pipeline makes of a key of the source, such as `flights:UA`.

Law: the verbs (consume, replay, skip, retry, backlog, adopt, rename) use sources, Spark and the clock through these
protocols alone, and tables through the `Ledger`, whose ports are in `rota/ledger/port.py`. `rota/registry.py` maps a
declaration to its implementation. Each implementation passes the suite of its port in `tests/dataplane/conformance/`.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, Self, runtime_checkable

from rota.errors import DataError, RotaError
from rota.held import Held
from rota.ledger.ledger import Ledger
from rota.ledger.values import DataFile, Position, Ranges, Spans


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source gets beside its declaration.

    Attributes:
        location: where the tables are. The folder `index/` below it belongs to the source.
        scratch: a folder that the run and its Spark can read and write. An attempt keeps its files there.
        read_offsets: returns the table's offset of each partition; None if the table does not know the partition.
        read_columns: returns the table's columns as JSON; None if there is no table.
        held: keeps what the source has read of its index.
    """

    location: str
    scratch: Path
    read_offsets: Callable[[Iterable[str]], Mapping[str, int | None]]
    read_columns: Callable[[], str | None]
    held: Held = field(default_factory=Held)


@dataclass(frozen=True, slots=True)
class Consumed:
    """What the main table consumed, so that a source can notice that it lost offsets.

    Invariant: the positions were read before the source is observed, because a commit follows the offsets that it consumes.
    """

    positions: Mapping[str, Position] = field(default_factory=dict)
    main: Ledger | None = None

    def find_beyond(self, ends: Mapping[str, int]) -> set[str]:
        """Return the partitions of which a commit consumed an offset at or beyond these assigned ends.

        A partition that begins at an offset that the source has not reached yet is not among them.
        """
        behind = {p: end for p, end in ends.items() if p in self.positions and (self.positions[p].offset or 0) > end}
        log = self.main.read_log_back_to(behind) if self.main else ()
        return {p for p, end in behind.items() if any(one.goes_beyond(p, end) for one in log)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a caller asks for beside the ends of partitions.

    Attributes:
        assign: new data get offsets, also if callers race. Without it, an observation writes nothing and takes nothing.
        starts: the partitions whose first offset to consume is asked for.
        founding: of `starts`, the partitions with which the pipeline begins. Where the declaration skips existing data
            (`start="latest"`), they start at their end; partitions that appear later start at their first offset.
        consumed: what the table consumed, to find lost offsets. A partition that lost some gets no offset.
        open_since: asks for the records that are withheld, and which are older than this (seconds since 1970).
        ahead: data that will be ready in so many seconds count as ready.
        inspect: asks for the place of the source and for what is never read, and whether the place can be used.
    """

    assign: bool = False
    starts: Collection[str] = ()
    founding: Collection[str] = ()
    consumed: Consumed = field(default_factory=Consumed)
    open_since: float | None = None
    ahead: float = 0.0
    inspect: bool = False

    def choose_starts(
        self, declared: str | int, ends: Mapping[str, int], firsts: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Return the first offset to consume of each partition of `starts` that can be read.

        Args:
            declared: the `start` of the declaration: "earliest", "latest" or an offset.
            ends: the ends of the partitions that can be read.
            firsts: the first offsets that are still there; by default 0.
        """
        first, left = declared if isinstance(declared, int) else 0, firsts or {}
        return {
            p: ends[p] if declared == "latest" and p in self.founding else max(first, left.get(p, 0))
            for p in self.starts
            if p in ends
        }


ENDS, ASSIGN, INSPECT = Query(), Query(assign=True), Query(inspect=True)


@dataclass(frozen=True, slots=True)
class Withheld:
    """The first offset that is withheld, and why. `old`: its record is older than the time that the caller named."""

    offset: int
    why: str
    old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a source found when some partitions were observed once. The mappings are by partition.

    Attributes:
        ends: the ends of the partitions that can be read.
        unreadable: why a partition cannot be read now, with the next step. The source as a whole can be reached.
        starts: the first offset to consume, of the partitions that `Query.starts` names and that can be read.
        assigned: the assigned ends.
        lost: why the source no longer has offsets that the table consumed, or gave them to other data.
        leader_epochs: the epoch of the partition's leader. A leader of a partition has a greater epoch than the one
            before; a table keeps the epoch of its last commit.
        withheld: what no reader gets yet, such as the records behind an open transaction.
        ready_in: seconds until data that were too new are ready, an item each.
        index: the id of what gives offsets their meaning; under another id, an offset is other data. Empty: there is none.
        place: where an operator finds the source.
        ignored: what lies in the source and is never read: name -> reason.
    """

    ends: Mapping[str, int]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    assigned: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[str, int] = field(default_factory=dict)
    withheld: Mapping[str, Withheld] = field(default_factory=dict)
    ready_in: tuple[float, ...] = ()
    index: str = ""
    place: str = ""
    ignored: Mapping[str, str] = field(default_factory=dict)


class Source(Protocol):
    """Where ranges are read.

    Law: an assigned offset means the same data for ever, for every reader.

    Several runs on several machines may use one source at the same time. No method starts Spark. Each method raises
    EnvironmentFailed if the source as a whole cannot be reached.

    `SparkSource` in `rota/dataplane/spark/spark_source.py` adds `read`. The protocols below are optional: a source has
    all members of one, or none. A verb tests for a protocol with `isinstance`.
    """

    def list_keys(self) -> tuple[str, ...]:
        """Return the partition keys that exist now, sorted. Writes nothing."""
        ...

    def observe(self, partitions: tuple[str, ...], query: Query = ENDS) -> Observation:
        """Observe these partitions once.

        Raises:
            ConfigError: the source does not exist or cannot be used, with the next step, if the query inspects it.
            ForeignTable: the query assigns offsets, and the source belongs to another table.
        """
        ...

    def plan_jobs(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> tuple[Ranges, ...]:
        """Return what one run reads, as jobs in the order of `starts`.

        Each job fits the source's largest job. Each partition with something new is in one job, with at least one offset
        and at most its largest batch.
        """
        ...

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """Return the partitions whose range is not what its offsets mean (SourceChanged) or cannot be read
        (EnvironmentFailed).

        If a range begins with a hole, the fact `behind` of the error is the first offset after the hole. The verbs call it
        before and after a job.
        """
        ...

    def locate(self, partition: str, offset: int) -> str:
        """Return where an operator finds the data of an offset, such as the name of a file."""
        ...


@runtime_checkable
class Holds(Protocol):
    """A run that reads the source holds something, such as a connection, or messages that no other reader gets meanwhile."""

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """Take note that the table has all data below these offsets for good. Raises nothing."""
        ...

    def close(self) -> None:
        """Release what was taken and not acknowledged. A closed source can be used again."""
        ...


@runtime_checkable
class Replays(Protocol):
    """Consumed data can be read again."""

    def reread(self, ranges: Ranges) -> Self:
        """Return a source that reads these ranges again.

        For it, an offset means the data that are there now. `find_broken` names what cannot be read. If it `HasFiles`, an
        observation that assigns offsets records that the offsets of its partitions mean these data from now on.
        """
        ...


@runtime_checkable
class HasTimes(Protocol):
    """Each record has a timestamp of its own."""

    def find_offsets(self, partitions: tuple[str, ...], since: float, until: float) -> Ranges:
        """Return the offsets from the first timestamp at or after `since` up to the first at or after `until`.

        Args:
            partitions: the partitions; one without such a record is left out of the result.
            since: seconds since 1970.
            until: seconds since 1970.

        Consumed offsets and new ones count alike, as far as they are still there.
        """
        ...


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The file behind an offset. `state` is empty if it was not asked for.

    `same`: the file is what its offset means, or is gone. `changed`: it is another one. `changing`: it is another one,
    and may still be written.
    """

    partition: str
    offset: int
    name: str
    state: Literal["", "same", "changed", "changing"] = ""


@dataclass(frozen=True, slots=True)
class Tidied:
    """How many consumed files were removed, and why others stay until an operator acts, a line each."""

    taken: int = 0
    stays: tuple[str, ...] = ()


@runtime_checkable
class HasFiles(Protocol):
    """Each offset is a file with a name. Users may change files, and the declaration may have consumed ones removed."""

    def list_files(self, spans: Spans, *, compare: bool = False) -> Iterator[SourceFile]:
        """Yield the files of these offsets, up to the assigned ends; with `compare`, with their states."""
        ...

    def tidy(self, find_consumed: Callable[[str], Spans]) -> Tidied:
        """Remove consumed files, if the declaration wants that. A different file in the place of one stays.

        Args:
            find_consumed: returns what the table has consumed under the index of this id, and has now. It is called only
                if the declaration has files removed.

        Raises:
            the errors of `find_consumed`. What stays for another reason is removed by a later call.
        """
        ...


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What one successful attempt wrote for `ranges`. `refused`: the partitions that must not be committed, and why."""

    attempt: str
    ranges: Ranges
    files: tuple[DataFile, ...]
    seconds: float
    bad: Mapping[str, int] = field(default_factory=dict)
    bad_files: tuple[DataFile, ...] = ()
    refused: Mapping[str, DataError] = field(default_factory=dict)

    def count_rows(self) -> dict[str, int]:
        """Rows written for each partition."""
        counts = dict.fromkeys(self.ranges, 0)
        for file in self.files:
            counts[file.partition] += file.rows
        return counts


@dataclass(frozen=True, slots=True)
class FailedPartition:
    """A partition that failed by data or transform (DataError), or alone like the environment (EnvironmentFailed)."""

    partition: str
    error: RotaError


class Job(Protocol):
    """Reads ranges of the source, transforms them and writes files.

    Law: no reader of the table sees a file before a commit names it.
    """

    def run(
        self,
        jobs: Sequence[Ranges],
        *,
        endpoint: str | None,
        run_id: str,
        schema: str | None,
        whole: bool = False,
        recheck: Callable[[Ranges], Ranges] = dict,
    ) -> Iterator[WrittenFiles | FailedPartition]:
        """Run the jobs one after the other, and yield each partition once, written or failed.

        Args:
            endpoint: the Spark to use; None for one of this process.
            schema: the columns of the table, JSON.
            whole: a range is written as a whole or not at all. Without it, the end of a range may be left out.
            recheck: returns, before each job, those of its ranges that are still to be read. The others are not yielded.

        Raises:
            EnvironmentFailed: every partition fails.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What a run of one pipeline works with. `clock` returns monotonic seconds.

    `reread` returns the same ports for a replay of ranges, over the source that `Replays.reread` returns.
    """

    source: Source
    main: Ledger
    quarantine: Ledger
    job: Job
    reread: Callable[[Ranges], "Ports"]
    clock: Callable[[], float] = time.monotonic
