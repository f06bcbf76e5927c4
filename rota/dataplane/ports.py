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
from typing import Protocol

from rota.errors import DataError, RotaError
from rota.ledger.ledger import Ledger
from rota.ledger.values import DataFile, Ranges


class Source(Protocol):
    """Where ranges are read. Law: an offset that was assigned means the same data for ever, for every reader.

    Several runs on several machines may use one source at the same time. No method starts Spark. Each may raise
    EnvironmentFailed where the source as a whole cannot be reached.
    """

    @property
    def can_replay(self) -> bool:
        """Whether a consumed range can be read again."""
        ...

    def find_place(self) -> str:
        """Where a person finds the source. Raises ConfigError, with the next step, where it is not there."""
        ...

    def list_keys(self) -> tuple[str, ...]:
        """The partition keys that exist now, sorted. Writes nothing."""
        ...

    def list_ignored(self) -> Mapping[str, str]:
        """What lies in the source and is never read: name -> reason. Writes nothing."""
        ...

    def read_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """The end offset (one past the newest) that a run would find now, of what can be read. Writes nothing."""
        ...

    def assign_offsets(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """Gives each new record one offset, also where callers race, and returns the end offsets of what can be read."""
        ...

    def read_assigned_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """The end offsets assigned so far; less than a table consumed: the source lost them. Writes nothing."""
        ...

    def explain_lost(self, partition: str, end: int) -> str:
        """What to do where a table is beyond `end`, the end offset that the source has assigned."""
        ...

    def explain_unreadable(self, partition: str) -> str:
        """Why the partition cannot be read now, with the next step; empty where it can."""
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
        """The partitions whose range is not what its offsets mean (SourceChanged), or cannot be read (EnvironmentFailed)."""
        ...

    def find_rewritten(self, offsets: Mapping[str, Iterable[int]]) -> Mapping[str, tuple[int, ...]]:
        """Those of the offsets whose data is there and is not what the offset was assigned to."""
        ...

    def explain_unsettled(self, partition: str, offsets: Iterable[int]) -> str:
        """Which data of these offsets somebody may still be writing; empty where all are at rest."""
        ...

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """The table has all that is below these offsets, and will have it for good. Raises nothing."""
        ...

    def close(self) -> None:
        """Gives back what was taken for a run and not acknowledged. A source that was closed can be used again."""
        ...

    def keep_identities(self, partitions: tuple[str, ...]) -> None:
        """Records what was read again as what the offsets mean from now on. Of a source that `Ports.reread` gave."""
        ...

    def locate(self, partition: str, offset: int) -> str:
        """Where a person finds the data of an offset, such as the name of a file."""
        ...


class OwnedSource(Source, Protocol):
    """What `rename` asks of a source beside."""

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

    `reread` gives the same ports for a replay of ranges: their source takes what is in the ranges now for what the offsets
    mean, and `keep_identities` records it.
    """

    source: Source
    main: Ledger
    quarantine: Ledger
    job: Job
    reread: Callable[[Ranges], "Ports"]
    clock: Callable[[], float] = time.monotonic
