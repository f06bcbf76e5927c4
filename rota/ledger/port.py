"""What the ledger asks of a table's data files. `rota.deltalog.port` has what it asks of the log."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rota.ledger.values import DataFile, Ranges

Rows = tuple[Mapping[str, object], ...]


class Merges(Protocol):
    """Files that can be merged."""

    def merge(self, paths: Sequence[str], attempt: str) -> DataFile | None:
        """Write one file with the rows of these, in their order. A column that a file lacks is null in its rows.

        Returns: None if their columns do not fit together, or if some readers would read the new file differently.
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
        """Return the first `most` rows, column -> value, of one of these files for each partition. A file that cannot be
        read is left out."""
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
        """Write the rows of this file under the ids of another pipeline. Raises EnvironmentFailed."""
        ...

    def describe(self, path: str) -> DataFile:
        """Return the file as a commit adds it. Raises EnvironmentFailed if it cannot be read."""
        ...
