"""What the data plane asks of a source: offsets that, once given, mean the same data for ever.

A source speaks in partition ids (`<pipeline>:<key>`). Its offsets are whole numbers from 0; a range is half-open.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from rota.errors import RotaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORRUPT = "_corrupt"  # the raw text of a record that does not match the schema; null for a good one


class Source(Protocol):
    """Where ranges are read. Several runs may use one at the same time, on several machines."""

    @property
    def corruptible(self) -> bool:
        """Whether a record can be bad by itself; then `read` has the column `_corrupt`."""
        ...

    def keys(self) -> tuple[str, ...]:
        """The partition keys that exist now, sorted; no Spark, writes nothing."""
        ...

    def left_out(self) -> Mapping[str, str]:
        """What lies in the source and is in no partition, or will never be read, with the reason; no Spark, writes
        nothing."""
        ...

    def latest(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """One past the newest offset that a run would find now; no Spark, writes nothing. A partition that cannot be
        looked at is left out; EnvironmentFailed where that is nobody's own fault."""
        ...

    def given(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """How many offsets were given so far; fewer than a table has consumed only if that was forgotten. Writes nothing."""
        ...

    def fix(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """Gives offsets to what is new, and the `latest` after it. A lost race gives nothing twice."""
        ...

    def unseen(self, partition: str) -> str:
        """Why the partition cannot be looked at, with the next step; empty where it can."""
        ...

    def first(self, latest: int, *, later: bool) -> int:
        """Where a partition begins that no table ever heard of, given its latest offset; `later`: other partitions were
        consumed before this one was there."""
        ...

    def capped(self, starts: Mapping[str, int], latest: Mapping[str, int]) -> tuple[Mapping[str, tuple[int, int]], ...]:
        """What one run reads, as jobs in the order of `starts`: none larger than the source's largest job, each partition
        in one of them, with at least one offset and at most its largest batch. Who has nothing new is in none."""
        ...

    def broken(self, ranges: Mapping[str, tuple[int, int]]) -> Mapping[str, RotaError]:
        """The partitions whose range is no longer what it was when its offsets were given (SourceChanged), or has what
        cannot be looked at now (EnvironmentFailed). Raises EnvironmentFailed where that is nobody's own fault."""
        ...

    def read(
        self, spark: "SparkSession", ranges: Mapping[str, tuple[int, int]], attempt: str
    ) -> "AbstractContextManager[DataFrame]":
        """The rows of all ranges in one frame, with `_partition` and `_offset` (and `_corrupt`), while the context lasts."""
        ...

    def held(self, ranges: Mapping[str, tuple[int, int]]) -> int | None:
        """How many records all ranges hold, counted without Spark; None where that is not to be had cheaply."""
        ...

    def place(self, partition: str, offset: int) -> str:
        """What a person looks for: the file behind an offset."""
        ...

    def told(self, text: str) -> str:
        """An error's text with what a person knows in place of what only the job knew."""
        ...

    def records(self, partition: str, offset: int) -> Iterable[str]:
        """The raw records behind an offset in their order, to tell where a bad one stands; empty where that is unknown."""
        ...

    def reason(self, raw: str) -> str:
        """Why a raw record is bad, as far as can be told from it alone."""
        ...
