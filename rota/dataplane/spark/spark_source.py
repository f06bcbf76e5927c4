"""What a Spark job asks of a source, beside what the verbs ask.

Law: of a range whose offsets were assigned, every reader gets the same records; how many tasks read it is the source's
choice.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, Self

from rota.dataplane.ports import OwnedSource, Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORRUPT = "_corrupt"  # the raw text of a record that does not match the schema; null for a good one


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

    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> "AbstractContextManager[DataFrame]":
        """The rows of all ranges in one frame while the context lasts: with `_partition`, as `names.split` has it, and
        `_offset` (and `_corrupt`)."""
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
