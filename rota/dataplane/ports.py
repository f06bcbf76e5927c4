"""The ports of a run: what the verbs ask of a source and of a job, and the values that they exchange.

Law: the verbs (consume, replay, skip, retry, backlog, adopt, rename) touch sources, Spark and the clock through these
protocols alone, and tables through the `Ledger`, whose log and files are ports of its own (`rota/ledger/port.py`). So
whoever implements them can run the verbs. An implementation is found by its declaration in `rota/registry.py` and passes
the suite of its port in `tests/dataplane/conformance/`.

An offset is an int64 and grows within a partition; there may be holes between two records. A range is half-open. A
partition is named by its id, which the pipeline makes of the source's key.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from rota.errors import DataError, RotaError
from rota.ledger.ledger import Ledger
from rota.ledger.values import DataFile, Ranges, Spans


@dataclass(frozen=True, slots=True)
class Home:
    """What a source is given beside its declaration. Below `location`, where the tables are, `index/` is the source's own;
    so is what an attempt puts into `scratch`, a folder that the run and its Spark see. `read_offsets` says where the table
    stands with each of these partitions, whoever has it; None where it does not know one. `read_columns` gives the table's
    columns, JSON; None where there is no table."""

    location: str
    scratch: Path
    read_offsets: Callable[[Iterable[str]], Mapping[str, int | None]]
    read_columns: Callable[[], str | None]


class Source(Protocol):
    """Where ranges are read. Law: an offset that was assigned means the same data for ever, for every reader.

    Several runs on several machines may use one source at the same time. No method starts Spark. Each may raise
    EnvironmentFailed where the source as a whole cannot be reached.

    Here is what every source can do. What only some can do are the protocols below: a source has the members of one, or
    none of them. A verb asks by `isinstance`, and says what is missing where it cannot go on without.
    """

    def find_place(self) -> str:
        """Where a person finds the source. Raises ConfigError, with the next step, where it is not there."""
        ...

    def list_keys(self) -> tuple[str, ...]:
        """The partition keys that exist now, sorted. Writes nothing."""
        ...

    def read_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """The end offset (one past the newest) that a run would find now, of what can be read. Writes nothing."""
        ...

    def assign_offsets(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """Gives each new record one offset, also where callers race, and returns the end offsets of what can be read."""
        ...

    @property
    def skips_existing(self) -> bool:
        """Whether what is there when the pipeline is first consumed is left out."""
        ...

    def choose_starts(self, ends: Mapping[str, int], later: Container[str] = ()) -> Mapping[str, int]:
        """The first offset to consume of partitions that the table does not know, given their end offsets. `later` are
        those that appeared after others were consumed: of them nothing is left out."""
        ...

    def plan_jobs(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> tuple[Ranges, ...]:
        """What one run reads, as jobs in the order of `starts`. Each job fits the source's largest job. Each partition with
        something new is in one job, with one offset or more and at most its largest batch."""
        ...

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """The partitions whose range is not what its offsets mean (SourceChanged), or cannot be read (EnvironmentFailed).
        Where the range begins with a hole, the fact `behind` of the error is the first offset behind it."""
        ...

    def locate(self, partition: str, offset: int) -> str:
        """Where a person finds the data of an offset, such as the name of a file."""
        ...


@runtime_checkable
class Paced(Protocol):
    """Each look at it may cost money."""

    @property
    def look_every(self) -> float:
        """Seconds from one look to the next of whoever waits, while nothing comes; 0 where a look costs nothing."""
        ...


@runtime_checkable
class Rests(Protocol):
    """What comes has to rest before it gets an offset: a source knows when that will be, if nobody changes it until then."""

    def find_rest(self, within: float) -> float:
        """Seconds until all has rested that the last `read_ends` left and that rests within so many; `within` where it left
        nothing of this."""
        ...

    def ahead(self, seconds: float) -> Self:
        """The source as it will be in so many seconds."""
        ...


@runtime_checkable
class WaitsAlone(Protocol):
    """One partition may be unreadable while others are read: the source leaves it out of what it returns."""

    def explain_unreadable(self, partition: str) -> str:
        """Why the partition cannot be read now, with the next step; empty where it can."""
        ...


@runtime_checkable
class LeavesOut(Protocol):
    """There may be something in it that is never read."""

    def list_ignored(self) -> Mapping[str, str]:
        """What lies in the source and is never read: name -> reason. Writes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Withheld:
    """The first offset that is withheld, and why. `old`: its record is stamped before the time that the caller names."""

    offset: int
    why: str
    old: bool = False


@runtime_checkable
class Withholds(Protocol):
    """A partition may have records that no reader gets yet, such as those behind an open transaction."""

    def find_withheld(self, partitions: tuple[str, ...], then: float) -> Mapping[str, Withheld]:
        """Return what each partition withholds; `then` is in seconds since 1970. Writes nothing."""
        ...


@runtime_checkable
class Holds(Protocol):
    """A run that reads it has something open, such as a connection, or messages that nobody else is given meanwhile."""

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """The table has all that is below these offsets, and will have it for good. Raises nothing."""
        ...

    def close(self) -> None:
        """Gives back what was taken and not acknowledged. A source that was closed can be used again."""
        ...


@dataclass(frozen=True, slots=True)
class Tidied:
    """What a tidying did: how many consumed files it took away, and why others stay until an operator acts, a line each."""

    taken: int = 0
    stays: tuple[str, ...] = ()


@runtime_checkable
class TidiesUp(Protocol):
    """What was consumed may be taken away from where it lay."""

    @property
    def tidies(self) -> bool:
        """Whether that is declared."""
        ...

    @property
    def index_id(self) -> str:
        """The id of what gives offsets their meaning, as this process read it last: under another one, an offset is another
        file. Empty: there is none."""
        ...

    def claim(self) -> None:
        """Make this index the only one whose consumed files are taken away from the source, if that is declared.

        Raises: ForeignTable if another index is; EnvironmentFailed.
        """
        ...

    def tidy(self, consumed: Spans) -> Tidied:
        """Take away what lies in these offsets, if that is declared. A different file in its place stays. Raises nothing;
        what stayed goes when it is asked again.

        Invariant: the table has committed all of these offsets.
        """
        ...


@runtime_checkable
class Remembers(Protocol):
    """It keeps by itself how far offsets were assigned, and could lose that."""

    def read_assigned_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """The end offsets assigned so far; less than a table consumed: the source lost them. Writes nothing."""
        ...

    def explain_lost(self, partition: str, end: int) -> str:
        """What to do where a table is beyond `end`, the end offset that the source has assigned."""
        ...


@runtime_checkable
class HasLeaderEpochs(Remembers, Protocol):
    """A partition may lose its newest records and give their offsets to others. Each leader of a partition has a greater
    epoch than the one before, and a source that knows where an epoch ended can notice that."""

    def read_leader_epochs(self, partitions: Iterable[str]) -> Mapping[str, int]:
        """Return the epoch of each partition's leader when `assign_offsets` was last called; what has none is left out."""
        ...

    def find_cut(self, noted: Mapping[str, tuple[int, int]]) -> Mapping[str, str]:
        """Return the partitions that lost records below an offset after the leader epoch that was noted with it.

        Args:
            noted: partition -> offset, leader epoch.

        Returns: partition -> why, with the next step.
        """
        ...


@runtime_checkable
class Named(Protocol):
    """Each of its offsets is a thing with a name, such as a file."""

    def list_names(self, spans: Spans) -> Iterator[tuple[str, int, str]]:
        """Partition, offset and name of all that lies in the spans."""
        ...


@runtime_checkable
class Replays(Protocol):
    """What was consumed can be read again."""

    def reread(self, ranges: Ranges) -> Self:
        """A source that reads these ranges again, and takes what is in them now for what their offsets mean. What cannot be
        read stays as it was, and `find_broken` names it."""
        ...


@runtime_checkable
class Stamps(Replays, Protocol):
    """Each of its records has a time of its own, which others gave it."""

    def find_stamped(self, partitions: tuple[str, ...], since: float, until: float) -> Ranges:
        """The offsets from the first that is stamped `since` (seconds since 1970) or later up to the first that is stamped
        `until` or later, of what is still there, whether it was consumed or not; a partition without any is left out."""
        ...


@runtime_checkable
class ChangesInPlace(Replays, Remembers, Protocol):
    """Somebody may put other data behind an offset. The source keeps how it was."""

    def find_rewritten(self, spans: Spans) -> Mapping[str, tuple[int, ...]]:
        """Those offsets in the spans whose data is there and is not what the offset was assigned to. What lies beyond the
        assigned end is not there."""
        ...

    def explain_unsettled(self, partition: str, offsets: Iterable[int]) -> str:
        """Which data of these offsets somebody may still be writing; empty where all are at rest."""
        ...

    def keep_identities(self, partitions: tuple[str, ...]) -> None:
        """Records what was read again as what the offsets mean from now on. Of a source that `reread` gave."""
        ...


@runtime_checkable
class FollowsRename(Protocol):
    """What it keeps names the pipeline."""

    def rename_pipeline(self, old: str, number: int) -> None:
        """The offsets of pipeline `old` are this pipeline's after it. `number` is that of the rename: the second call with
        one number does nothing."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What one successful attempt wrote for `ranges`. `refused` are the partitions that must not be committed, and why."""

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
    """What reads ranges of the source, transforms them and writes files. Law: nothing that it writes is visible before a
    commit names it."""

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
        """Runs the jobs one after the other; every partition comes out once, written or failed.

        `recheck` is asked before each job what of it is still to be done; the rest comes out of no job. `endpoint` is the
        Spark to use, None for one of this process. `schema` is the table's. `whole`: a range is written as a whole or not
        at all; else it may come out shorter. Raises EnvironmentFailed where nothing gets through.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What a run of one pipeline works with. `clock` gives monotonic seconds.

    `reread` gives the same ports for a replay of ranges, over the source that `Replays.reread` gives.
    """

    source: Source
    main: Ledger
    quarantine: Ledger
    job: Job
    reread: Callable[[Ranges], "Ports"]
    clock: Callable[[], float] = time.monotonic
