"""What a Spark job asks of a source, beside what the verbs ask.

Law: of a range whose offsets were assigned, every reader gets the same records; how many tasks read it is the source's
choice.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from rota.dataplane.ports import OwnedSource
from rota.ledger.values import Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORRUPT = "_corrupt"  # the raw text of a record that does not match the schema; null for a good one


@dataclass(frozen=True, slots=True)
class Records:
    """Records as a reader gives them: `frame`, with `_partition`, as `names.split` has it unless `plain`, and `_offset`. Bad
    ones have a `_corrupt`. Or they are left out, where somebody counted without Spark how many records there are at `most`;
    then `mark` gives the frame that has them."""

    frame: "DataFrame"
    most: int | None = None
    mark: "Callable[[], DataFrame] | None" = None
    plain: bool = False


class SparkSource(OwnedSource, Protocol):
    """A source whose ranges Spark reads."""

    @property
    def corruptible(self) -> bool:
        """Whether a record can be bad by itself; then `read` has the column `_corrupt`."""
        ...

    def as_now(self, ranges: Ranges) -> Self:
        """The same source, which takes what is in the ranges now for what their offsets mean. What cannot be read stays as
        it was, and `find_broken` names it."""
        ...

    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> AbstractContextManager[Records]:
        """The records of all ranges, while the context lasts."""
        ...

    def count_records(self, ranges: Ranges) -> int | None:
        """How many records all ranges hold, counted without Spark; None, whatever the ranges, where only Spark could count
        them."""
        ...

    def translate(self, text: str) -> str:
        """An error's text with what a person knows in place of what only the job knew, such as the name of a link."""
        ...

    def read_records(self, partition: str, offset: int) -> Iterable[str]:
        """The raw records behind an offset in their order, to find the place of a bad one; empty where that is unknown."""
        ...

    def explain_bad(self, raw: str) -> str:
        """Why a raw record is bad, as far as it alone shows."""
        ...
