"""Where files land: the port of a landing folder, on a disk (`disk`) or in a bucket (`bucket`).

Law: a landed file is named by its path below the landing folder, and is the same file while its size and `modified` are the
same. Every module that lists, stats or opens a landed file does so through this port; Spark reads it as `listed` names it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, Literal, Protocol

from rota.dataplane.files.file_index import LandedFile

NO_FILE = -1  # the size of an entry that is no regular file
Rested = tuple[str, list[LandedFile] | OSError]  # a folder or partition, with its settled files or the error
PORTION = 50_000  # new files for which the index is searched once for renamed folders


class LandedBytes(Protocol):
    """A landed file that can be opened, such as a `Path` of a disk."""

    @property
    def name(self) -> str:
        """The last part of the file's path."""
        ...

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """Return a stream of the file's bytes. Raises OSError."""
        ...


Refuse = Callable[[LandedBytes, str], str]  # bytes and path -> why Spark must not read the file


class Landing(Protocol):
    """The landing folder of one source."""

    @property
    def place(self) -> str:
        """The path or address of the folder, for messages."""
        ...

    @property
    def spark_place(self) -> str:
        """The address of the folder in the form of Hadoop."""
        ...

    def find_place(self) -> str:
        """Return `place`. Raises ConfigError, with the next step, if it does not exist."""
        ...

    def list_folders(self) -> Sequence[str]:
        """Return the names of the partitions' folders, in no order. Raises OSError, and ConfigError."""
        ...

    def list_ignored(self) -> Sequence[tuple[str, str]]:
        """Return the path of each ignored entry, with the reason. Raises OSError, and ConfigError."""
        ...

    def list_rested(
        self, known: Mapping[str, frozenset[str]], settle: float, now: float, yet: list[float]
    ) -> Iterator[Rested]:
        """Yield each folder of `known` with its settled files, without the known paths, or with the error of its listing.

        Args:
            known: folder -> paths that are left out.
            settle: seconds for which a file must not have changed.
            now: the time, in seconds since 1970.
            yet: receives the seconds until each other file has settled.
        """
        ...

    def look(self, files: Iterable[LandedFile]) -> Callable[[LandedFile], LandedFile | None]:
        """Return a function that returns the current state of each of these files.

        The function returns None if the file is gone, and a file of size `NO_FILE` if something else is there. It raises
        OSError if the state cannot be read.
        """
        ...

    def is_gone(self, path: str) -> bool:
        """Whether it is certain that nothing exists at the path."""
        ...

    def is_away(self) -> bool:
        """Whether the whole folder seems unreachable: then a file that is not found may still exist."""
        ...

    def list_left(self, folder: str) -> set[str]:
        """Return the paths of the files of a partition's folder, and of files that an interrupted `take` left. Raises
        OSError."""
        ...

    def take(self, file: LandedFile, to: str) -> bool:
        """Move the file to the hidden path `to`, or delete it if `to` is empty.

        A file at `to` is never overwritten. If it has the same content, the landed file is deleted.

        Returns: whether the file is gone. A different file that took its place stays.
        Raises: OSError; FileExistsError if `to` has different content. The landed file then stays in its place.
        """
        ...

    def find(self, file: LandedFile) -> LandedBytes:
        """Return the file in a form that can be opened."""
        ...


def explain_archived(path: str) -> str:
    """Return why a consumed file stays in the landing folder, with the next step."""
    return f"{path} in the archive has different content. Rename it; the next maintenance archives this file then"


def count_files(rested: Rested) -> int:
    """How many files were listed."""
    return 0 if isinstance(rested[1], OSError) else len(rested[1])
