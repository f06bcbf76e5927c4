"""How Spark reads a range of a source: the port of a job.

Law: every reader of a range with assigned offsets gets the same records. The source chooses how many tasks read the range.
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
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


Explain = Callable[
    [str, Sequence[FieldPath]], str
]  # a raw record, and the paths of its null fields -> why the record is bad


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a reader: `identify` returns their frame with `_partition`, the id, and `_offset`.

    `explain` returns why a raw record is bad, as far as the record shows it; None: no record is bad by itself.

    A source has one of two ways with bad records. Without `mark` they are in the frame, and have a `_corrupt`. With `mark`
    they are left out of the frame, and `most` is the upper bound on the number of records, bad ones included. A job that
    reads exactly `most` good records saw no bad one. A job that reads fewer takes the frame of `mark`, which has the bad
    records as well, and the two columns of `identify`.

    `count` counts the records without Spark; None: only Spark can count them.

    `recount` reads the records of each offset again, and raises SourceChanged for the first offset that holds another
    number of them than the source states; EnvironmentFailed where Spark does not see all data. None: the source states no
    numbers.

    `list_raw` returns the raw records behind an offset, to find the place of a bad one; None: an offset is a record.

    `named` maps Spark's `input_file_name` of a record to the record's partition and offset; empty if `identify` costs no
    more than that function.
    """

    frame: "DataFrame"
    explain: Explain | None = None
    count: Callable[[], int] | None = None
    most: int | None = None
    mark: "Callable[[], DataFrame] | None" = None
    identify: "Callable[[DataFrame], DataFrame]" = columns.keep_ids
    named: "Mapping[str, tuple[str, int]]" = field(default_factory=dict)
    recount: Callable[[], None] | None = None
    list_raw: Callable[[str, int], Iterable[str]] | None = None

    def find_reason(self, raw: str, nulls: Sequence[FieldPath]) -> str:
        """Return why a raw record is bad; empty if none is bad by itself."""
        return self.explain(raw, nulls) if self.explain else ""


class SparkSource(Source, Protocol):
    """A source whose ranges Spark reads."""

    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> AbstractContextManager[Records]:
        """Let Spark read the records of all ranges while the context lasts."""
        ...


@dataclass(frozen=True, slots=True)
class DirectJob:
    """Records that tasks read and decode in Python: Spark runs the tasks, and no expression.

    Attributes:
        shares: a frame with a row for each share, which a task reads.
        tasks: the number of its partitions.
        read: the function for `mapInArrow` that returns the records of shares. It raises NotPlain for a record that is bad
            or needs Spark's parser. Then the range is read again by `SparkSource.read`.
        kind: the columns of the records, `_partition` and `_offset` last; the same as those of `SparkSource.read`.
    """

    shares: "DataFrame"
    tasks: int
    read: "Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]"
    kind: "StructType"


@runtime_checkable
class ReadsDirectly(Protocol):
    """A source whose records need no expression of Spark's, if the pipeline has no transform."""

    def read_directly(self, spark: "SparkSession", ranges: Ranges) -> AbstractContextManager[DirectJob | None]:
        """Let tasks read and decode the records while the context lasts. None: the format needs Spark's parser."""
        ...


@runtime_checkable
class Translates(Protocol):
    """A source whose jobs use their own names for the data."""

    def translate(self, text: str) -> str:
        """Return an error's text with the user's names in place of the job's, such as the address of a file."""
        ...
