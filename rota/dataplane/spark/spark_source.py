"""How Spark reads a range of a source: the port of a job.

Law: of a range whose offsets were assigned, every reader gets the same records; how many tasks read it is the source's
choice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rota.dataplane import columns
from rota.dataplane.ports import Source
from rota.ledger.values import Ranges
from rota.record import FieldPath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Explain = Callable[
    [str, Sequence[FieldPath]], str
]  # why a raw record is bad; also the paths of its fields that are null


@dataclass(frozen=True, slots=True)
class Records:
    """Records as a reader gives them: `identify` gives their frame `_partition`, the id, and `_offset`.

    `explain` returns why a raw record is bad, as far as it shows; None: no record is bad by itself.

    A source has one of two ways with bad records. Without `mark` they are in the frame, and have a `_corrupt`. With `mark`
    they are left out of the frame, and `most` is the upper bound on the number of records, bad ones included. A job that
    reads exactly `most` good records saw no bad one. A job that reads fewer takes the frame of `mark`, which has the bad
    records as well, and the two columns of `identify`.

    `count` counts without Spark how many records there are; None: only Spark could.

    `recount` reads the records of each offset again, and raises SourceChanged for the first offset that holds another number
    of them than the source states; EnvironmentFailed where Spark does not see all data. None: the source states no numbers.

    `list_raw` returns the raw records behind an offset, to find the place of a bad one; None: an offset is a record.

    `named` maps Spark's `input_file_name` of a record to the record's partition and offset; empty if `identify` costs no
    more than that function."""

    frame: "DataFrame"
    explain: Explain | None = None
    count: Callable[[], int] | None = None
    most: int | None = None
    mark: "Callable[[], DataFrame] | None" = None
    identify: "Callable[[DataFrame], DataFrame]" = columns.restore_ids  # from what `names.split` has
    named: "Mapping[str, tuple[str, int]]" = field(default_factory=dict)
    recount: Callable[[], None] | None = None
    list_raw: Callable[[str, int], Iterable[str]] | None = None

    def find_reason(self, raw: str, nulls: Sequence[FieldPath]) -> str:
        """Return why a raw record is bad; empty if none is bad by itself."""
        return self.explain(raw, nulls) if self.explain else ""


class SparkSource(Source, Protocol):
    """A source whose ranges Spark reads."""

    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> AbstractContextManager[Records]:
        """The records of all ranges, while the context lasts."""
        ...


@runtime_checkable
class Translates(Protocol):
    """A job knows its data by names of the job's own."""

    def translate(self, text: str) -> str:
        """An error's text with what a person knows in place of what only the job knew, such as the name of a link."""
        ...
