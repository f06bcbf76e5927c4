"""Where files land: the port of a landing folder, on a disk (`disk`) or in a bucket (`bucket`).

Law: a landed file is named by its path below the landing folder, and is the same file while its size and `modified` are the
same. Every module that lists, stats or opens a landed file, or has Spark read it, does so through this port.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol

from rota.dataplane.files.file_index import LandedFile
from rota.ledger.values import Ranges
from rota.pipeline import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_FILE = -1  # the size of what is no file
Rested = tuple[str, list[LandedFile] | OSError]  # a folder or its partition, and what is in it
PORTION = 50_000  # new files for which the index is read once: some of them may have been another partition's


class LandedBytes(Protocol):
    """What can be opened; a `Path` of a disk is one."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        ...

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """Its bytes, a block at a time. Raises OSError."""
        ...


Refuse = Callable[[LandedBytes, str], str]  # why Spark must not read a file, by its bytes and path


class Shown(Protocol):
    """The files of a job as Spark reads them."""

    def load(
        self,
        spark: "SparkSession",
        declared: Files,
        options: Mapping[str, str],
        corrupt: str = "",
        added: Iterable[Mapping[str, Any]] = (),
    ) -> "DataFrame":
        """Their records, with the declared columns, the columns `corrupt`, and those that are `added`, as a schema of Spark
        has them in JSON."""
        ...

    def load_text(
        self, spark: "SparkSession", some: Sequence[LandedBytes], options: Mapping[str, str], whole: bool
    ) -> "DataFrame":
        """The lines of some of them, or each as a `whole`, as `value`, `_partition`, `_offset` and `begins`: whether it
        is of the part that Spark read from the beginning of its file."""
        ...

    def identify(self, frame: "DataFrame") -> "DataFrame":
        """A frame that `load` gave, with the columns `_partition` and `_offset`."""
        ...

    @property
    def named(self) -> Mapping[str, tuple[str, int]]:
        """See `Records.named`."""
        ...

    def check_seen(self, spark: "SparkSession") -> None:
        """Raises EnvironmentFailed where Spark does not see them all, each at its size."""
        ...


class Landing(Protocol):
    """A landing folder, of one source."""

    @property
    def place(self) -> str:
        """The folder, as a person writes it."""
        ...

    def find_place(self) -> str:
        """`place`. Raises ConfigError, with the next step, where it is not there."""
        ...

    def list_folders(self) -> Sequence[str]:
        """The names of the partitions' folders, in no order. Raises OSError, and ConfigError."""
        ...

    def list_ignored(self) -> Sequence[tuple[str, str]]:
        """Path -> why it is not read. Raises OSError, and ConfigError."""
        ...

    def list_rested(
        self, known: Mapping[str, frozenset[str]], settle: float, now: float, yet: list[float]
    ) -> Iterator[Rested]:
        """Yield each of these partitions' folders with its files that rested, without known paths, or with the error.

        Args:
            known: folder -> paths that are left out.
            settle: seconds for which a file must not have changed.
            now: the time, in seconds since 1970.
            yet: gets the seconds that each of the other files has to rest.
        """
        ...

    def look(self, files: Iterable[LandedFile]) -> Callable[[LandedFile], LandedFile | None]:
        """Return the function that gives the current state of each of these files.

        It returns None if the file is gone, and a file of size `NO_FILE` if something else is there. It raises OSError if
        the file cannot be looked at.
        """
        ...

    def is_gone(self, path: str) -> bool:
        """Whether it is known that nothing is there."""
        ...

    def is_away(self) -> bool:
        """Whether the whole folder seems to be out of reach: then a file that is not seen may exist."""
        ...

    def list_left(self, folder: str) -> set[str]:
        """Return the paths of the files of a partition's folder, and of files that a process left while it took them away.
        Raises OSError."""
        ...

    def take(self, file: LandedFile, to: str) -> bool:
        """Move the file to the hidden path `to`, or delete it if `to` is empty.

        A file at `to` is never overwritten. If it has the same content, the landed file is deleted.

        Returns: whether the file is gone. A different file that took its place stays.
        Raises: OSError; FileExistsError if `to` has different content: then the landed file stays where it is.
        """
        ...

    def find(self, file: LandedFile) -> LandedBytes:
        """What opens it."""
        ...

    def show(
        self, attempt: str, files: Mapping[str, Sequence[LandedFile]], ranges: Ranges
    ) -> AbstractContextManager[Shown]:
        """The files of the ranges for Spark, while the context lasts."""
        ...


def explain_archived(path: str) -> str:
    """Return why a consumed file stays in the landing folder, with the next step."""
    return f"{path} in the archive has different content. Rename it; the next maintenance archives this file then"


def count_files(rested: Rested) -> int:
    """How many files were listed."""
    return 0 if isinstance(rested[1], OSError) else len(rested[1])
