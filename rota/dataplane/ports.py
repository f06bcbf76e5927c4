"""The ports of a run: the protocols of a source and of a job, and the values that they exchange with the verbs.

Terms:
    offset: an int64 that numbers a record of a partition, or a file. It grows; there may be holes between two records.
    assigned end: one past the newest offset that the source has given to data.
    end: one past the newest offset that a run would find now. It is the assigned end, or greater if new data wait for
        their offsets.
    range: the offsets `[start, end)`.
    partition: the pipeline's name and a key of the source, such as `flights:UA`.

Law: the verbs (consume, replay, skip, retry, backlog, adopt, rename) use sources, Spark and the clock only through these
protocols, and tables through the `Ledger`, whose ports are in `rota/ledger/port.py`. `rota/registry.py` maps a declaration
to its implementation. Each implementation passes the suite of its port in `tests/dataplane/conformance/`.
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
    """The environment of a source, which it gets with its declaration.

    Attributes:
        location: where the tables are. The folder `index/` below it belongs to the source.
        scratch: a folder that the run and its Spark can read and write. An attempt keeps its files there.
        read_offsets: returns the table's offset of each partition; None if the table does not know the partition.
        read_columns: returns the table's columns as JSON; None if there is no table.
        held: caches the log of the source's index.
    """

    location: str
    scratch: Path
    read_offsets: Callable[[Iterable[str]], Mapping[str, int | None]]
    read_columns: Callable[[], str | None]
    held: Held = field(default_factory=Held)


@dataclass(frozen=True, slots=True)
class Consumed:
    """The offsets that the main table consumed, by which a source detects that it lost some.

    Invariant: the positions were read before the source is observed, because a commit follows the offsets that it consumes.
    """

    positions: Mapping[str, Position] = field(default_factory=dict)
    main: Ledger | None = None

    def find_beyond(self, ends: Mapping[str, int]) -> set[str]:
        """Return the partitions in which a commit consumed an offset at or beyond these assigned ends.

        A partition whose declared first offset is beyond its end is not among them.
        """
        behind = {p: end for p, end in ends.items() if p in self.positions and (self.positions[p].offset or 0) > end}
        log = self.main.read_log_back_to(behind) if self.main else ()
        return {p for p, end in behind.items() if any(one.goes_beyond(p, end) for one in log)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What an observation returns beside the ends of partitions, and whether it assigns offsets.

    Attributes:
        assign: new data get offsets, also if callers race. Without it, an observation writes nothing and takes nothing.
        starts: the partitions whose first offset to consume is returned.
        founding: those of `starts` that exist at the pipeline's first run. If the declaration skips existing data
            (`start="latest"`), they start at their end; partitions that appear later start at their first offset.
        consumed: the offsets that the table consumed, to find lost ones. A partition that lost some gets no offset.
        open_since: return the withheld records, and which of them are older than this (seconds since 1970).
        ahead: data that will be ready within these seconds count as ready.
        inspect: return the place of the source and the data that are never read; raise if the place cannot be used.
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
            firsts: the first offsets that still exist; by default 0.
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
    """The first offset that no reader gets yet, and why. `old`: its record is older than `Query.open_since`."""

    offset: int
    why: str
    old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of one observation of some partitions. The mappings are by partition.

    Attributes:
        ends: the ends of the partitions that can be read.
        unreadable: why a partition cannot be read now, with the next step, although the source can be reached.
        starts: the first offset to consume, of the partitions that `Query.starts` names and that can be read.
        assigned: the assigned ends.
        lost: why the source no longer has offsets that the table consumed, or gave them to other data.
        leader_epochs: the epoch of the partition's leader, which is greater than that of the leader before. A table stores
            the epoch of its last commit.
        withheld: data that no reader gets yet, such as the records behind an open transaction.
        ready_in: seconds until each datum that is too new now is ready.
        index: the id of the index that defines the offsets; under another id, an offset is other data. Empty: no index.
        place: where an operator finds the source.
        ignored: data of the source that are never read: name -> reason.
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
    """Reads ranges.

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
        """Return the ranges that one run reads, as jobs in the order of `starts`.

        No job exceeds the source's bound of a job. Each partition with new data is in one job, with at least one offset and
        at most its bound of a batch.
        """
        ...

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """Return the partitions whose offsets now have other data (SourceChanged) or cannot be read (EnvironmentFailed).

        If a range begins with a hole, the fact `behind` of the error is the first offset after the hole. The verbs call it
        before and after a job.
        """
        ...

    def locate(self, partition: str, offset: int) -> str:
        """Return where an operator finds the data of an offset, such as the name of a file."""
        ...


@runtime_checkable
class Holds(Protocol):
    """A source that holds something during a run, such as a connection, or messages that no other reader gets meanwhile."""

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """Release all data below these offsets, which a commit of the table has. Raises nothing."""
        ...

    def close(self) -> None:
        """Return all data that are not acknowledged. A closed source can be used again."""
        ...


@runtime_checkable
class Replays(Protocol):
    """A source whose consumed data can be read again."""

    def reread(self, ranges: Ranges) -> Self:
        """Return a source that reads these ranges again.

        For the returned source, an offset means the current data. `find_broken` returns the ranges that cannot be read. If
        the source `HasFiles`, an observation that assigns offsets records that the offsets mean these data from now on.
        """
        ...


@runtime_checkable
class HasTimes(Protocol):
    """A source whose records have timestamps."""

    def find_offsets(self, partitions: tuple[str, ...], since: float, until: float) -> Ranges:
        """Return the offsets from the first timestamp at or after `since` up to the first at or after `until`.

        Args:
            partitions: the partitions; one without such a record is left out of the result.
            since: seconds since 1970.
            until: seconds since 1970.

        Both consumed and new offsets count, as far as they still exist.
        """
        ...


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The file of an offset. `state` is empty if files were not compared.

    `same`: the file of the offset is unchanged or gone. `changed`: another file has its name. `changing`: likewise, and that
    file may still be written.
    """

    partition: str
    offset: int
    name: str
    state: Literal["", "same", "changed", "changing"] = ""


@dataclass(frozen=True, slots=True)
class Tidied:
    """How many consumed files were removed, and for each file that an operator must remove, a line with the reason."""

    taken: int = 0
    stays: tuple[str, ...] = ()


@runtime_checkable
class HasFiles(Protocol):
    """A source whose offsets are files with names. Users may change files; the declaration may remove consumed ones."""

    def list_files(self, spans: Spans, *, compare: bool = False) -> Iterator[SourceFile]:
        """Yield the files of these offsets, up to the assigned ends; with `compare`, with their states."""
        ...

    def tidy(self, find_consumed: Callable[[str], Spans]) -> Tidied:
        """Remove consumed files, if the declaration requires that. Another file with the name of a consumed one stays.

        Args:
            find_consumed: returns the offsets that the table consumed under the index of this id, and still has. It is
                called only if the declaration removes files.

        Raises:
            the errors of `find_consumed`. A later call removes files that another error left.
        """
        ...


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of one successful attempt for `ranges`. `refused`: the partitions that must not be committed, and why."""

    attempt: str
    ranges: Ranges
    files: tuple[DataFile, ...]
    seconds: float
    bad: Mapping[str, int] = field(default_factory=dict)
    bad_files: tuple[DataFile, ...] = ()
    refused: Mapping[str, DataError] = field(default_factory=dict)

    def count_rows(self) -> dict[str, int]:
        """Return partition -> the number of rows written."""
        counts = dict.fromkeys(self.ranges, 0)
        for file in self.files:
            counts[file.partition] += file.rows
        return counts


@dataclass(frozen=True, slots=True)
class FailedPartition:
    """A partition that failed by its data or transform (DataError), or by an error of the environment that only this
    partition has (EnvironmentFailed)."""

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
            whole: a range is written completely or not at all. Without it, the end of a range may be left out.
            recheck: called before each job; returns those of its ranges that are still to be read. The others are not
                yielded.

        Raises:
            EnvironmentFailed: every partition fails by the environment.
        """
        ...

    def rehearse(self, *, endpoint: str | None, run_id: str) -> None:
        """Make the first job of a run as fast as later ones. It leaves no file. Raises: EnvironmentFailed, if no Spark
        answers."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a run of one pipeline. `clock` returns monotonic seconds.

    `reread` returns the ports for a replay of ranges, with the source that `Replays.reread` returns.
    """

    source: Source
    main: Ledger
    quarantine: Ledger
    job: Job
    reread: Callable[[Ranges], "Ports"]
    clock: Callable[[], float] = time.monotonic
