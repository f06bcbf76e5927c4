"""The interface of the ledger to a table's data files. `rota.deltalog.port` is the interface to the log."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rota.ledger.values import DataFile, Ranges

Rows = tuple[Mapping[str, object], ...]


class Merges(Protocol):
    """The methods of `Files` that a merge uses."""

    def merge(self, paths: Sequence[str], attempt: str) -> DataFile | None:
        """Write the rows of the files into one file, in the order of `paths`. Missing columns become null.

        Returns: None if the columns do not fit together, or if readers would read different values from the new file.
        Raises: EnvironmentFailed if a file cannot be read.
        """
        ...

    def discard(self, files: Iterable[DataFile]) -> None:
        """Delete files that no commit names."""
        ...


class Files(Merges, Protocol):
    """The data files of a table, which its log names.

    Invariant: a file never changes under its name.
    """

    def exists(self, path: str) -> bool:
        """Return whether the file exists."""
        ...

    def read_first(self, paths: Iterable[str], partitions: Iterable[str], most: int) -> Mapping[str, Rows]:
        """Return partition -> the first `most` rows, column -> value, of one of the partition's files in `paths`.
        Unreadable files are left out."""
        ...

    def count_rows(self, path: str) -> Mapping[str, int]:
        """Return how many rows of each partition the file has."""
        ...

    def cut(self, said: Mapping[str, Any], ranges: Ranges, attempt: str) -> tuple[DataFile, ...] | None:
        """Write the rows of a file that are outside the ranges into new files.

        Args:
            said: the file as `Version.files` describes it.
        Returns: the new files; None if all rows are outside.
        Raises: EnvironmentFailed if the file cannot be read.
        """
        ...

    def rename(self, path: str, attempt: str, old: str, new: str) -> DataFile:
        """Write a copy of the file whose partition ids name pipeline `new` instead of `old`. Raises EnvironmentFailed."""
        ...

    def describe(self, path: str) -> DataFile:
        """Return the file's size, rows and statistics for a commit. Raises EnvironmentFailed if the file cannot be read."""
        ...
