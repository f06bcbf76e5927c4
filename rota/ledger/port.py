"""What the ledger asks of a table: of its log, and of its data files. `DeltaLog` is such a log, and so is the one in
memory on which the simulator runs; both pass one suite, `LogSuite` of the conformance tests.

A log is a row of numbered versions; each is made by one commit. A commit sets transactions (a name with a number), adds and
removes files, and says something of itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from rota.ledger.values import DataFile, Ranges

T = TypeVar("T")
Rows = tuple[Mapping[str, object], ...]


class Moved(Exception):
    """Somebody else wrote what a draft compares since the version that it was made on. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Draft(Generic[T]):
    """A commit to be made on the version `base`.

    It compares: since then nobody set a transaction of `sets`, removed or named a file of `removes`, took rows from the
    table, or changed the columns. `alone`: nobody wrote anything since. `changes`: rows come or go; else they only move
    between files. A draft that adds `columns` (JSON) does nothing else. `commit` is the id by which it is found where its
    answer is lost; its entry is the answer then. Without an id whoever made the draft makes it again, until nothing is left
    to do; with a `result` that is the answer once it went in.
    """

    base: "Version"
    sets: Mapping[str, int] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)
    adds: tuple[DataFile, ...] = ()
    removes: Mapping[str, int] = field(default_factory=dict)  # path -> bytes
    alone: bool = False
    changes: bool = True
    columns: str = ""
    commit: str = ""
    result: T | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A commit that states that it only moved rows between files (`dataChange: false`).

    Paths are as they are in the table's folder. `adds`: path -> rows. `before`: path -> rows, of each touched file that the
    table had before the commit; None: the log cannot tell any more. Rows are None where the log does not state them. Rows
    that were deleted in place do not count.
    """

    adds: Mapping[str, int | None]
    removes: frozenset[str]
    before: Mapping[str, int | None] | None

    @property
    def keeps_rows(self) -> bool:
        """Whether the table has as many rows as before, and each removed file was in it."""
        if self.before is None or not self.removes <= self.before.keys():
            return False
        was, now = [*self.before.values()], [*self.adds.values()]
        return None not in (*was, *now) and sum(filter(None, was)) == sum(filter(None, now))


class Version(Protocol):
    """A log at one version. Law: it says the same for ever, whatever is written after it."""

    @property
    def log(self) -> "Log":
        """The log itself."""
        ...

    @property
    def number(self) -> int:
        """Its number."""
        ...

    @property
    def table(self) -> str:
        """The table's own id."""
        ...

    @property
    def schema(self) -> str:
        """The table's columns, JSON."""
        ...

    def transaction(self, name: str) -> int | None:
        """The number that was set last; None: it never was. All are read at once, with the first."""
        ...

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """What `Log.read_info` says of each of these versions, in order, none after this one. One that was read before is
        not read again."""
        ...

    def files(self) -> pa.Table:
        """The files that readers see: `path`, `size_bytes`, `modification_time`, `num_records`, and `min.<column>`,
        `max.<column>` where it is known."""
        ...

    def find_vectored(self, paths: Iterable[str]) -> set[str]:
        """Those of these files that have rows which another program deleted in place: nobody removes such a file."""
        ...

    def read_move(self, version: int) -> Move:
        """What the commit of this version did, which states that it changed no row. Not asked of a commit after this one.
        Raises EnvironmentFailed."""
        ...

    def check_writable(self) -> None:
        """Raises ForeignTable or EnvironmentFailed, with the next step, if the table requires of a writer what rota does not
        do."""
        ...

    def append(self, draft: Draft[Any]) -> None:
        """Commits the draft, which was made on this version, at the end of the log. Raises Moved where something that it
        compares moved; EnvironmentFailed where the log has this version no more, another copy's for example, or where the
        store fails: then it may have gone in all the same."""
        ...


class Log(Protocol):
    """The log of one table. Law: a commit is there as a whole or not at all, and never changes. Every method may raise
    EnvironmentFailed."""

    @property
    def location(self) -> str:
        """Where a person finds the table."""
        ...

    def open(self) -> Version | None:
        """The newest version; None where there is no table."""
        ...

    def create(self, schema: str, settings: Mapping[str, str | None] | None = None) -> Version:
        """The table, made by whoever is first."""
        ...

    def read_info(self, version: int) -> Mapping[str, Any]:
        """What the commit of this version says of itself, with its number as `version`; empty where it is not there."""
        ...

    def stamp_newest(self) -> object:
        """What is another value after each commit, read without opening the table; None where there is no table."""
        ...

    def read_actions(self, version: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What the commit of this version did: `add`, `remove`, `txn`, ... with its fields as Delta names them."""
        ...


class Files(Protocol):
    """The data files of a table, which its log names. A file never changes under its name."""

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        ...

    def read_first(self, paths: Iterable[str], partitions: Iterable[str], most: int) -> Mapping[str, Rows]:
        """The first rows, column -> value, of one of these files that were written for each partition. What cannot be read
        is left out."""
        ...

    def count_rows(self, path: str) -> Mapping[str, int]:
        """How many rows of each partition the file has."""
        ...

    def cut(self, said: Mapping[str, Any], ranges: Ranges, attempt: str) -> tuple[DataFile, ...] | None:
        """New files with the rows of this one (as `Version.files` says it) that are outside the ranges; None where all
        are. Raises EnvironmentFailed where it cannot be read."""
        ...

    def merge(self, paths: Sequence[str], attempt: str) -> DataFile | None:
        """A new file with the rows of these, in their order; a column that one has not is null in its rows. None where their
        columns do not go together, or not everybody would read the new one for the same. Raises EnvironmentFailed where one
        cannot be read."""
        ...

    def rename(self, path: str, attempt: str, old: str, new: str) -> DataFile:
        """A new file with the rows of this one under the ids of another pipeline. Raises EnvironmentFailed."""
        ...

    def describe(self, path: str) -> DataFile:
        """Return the file as a commit adds it. Raises EnvironmentFailed if it cannot be read."""
        ...

    def discard(self, files: Iterable[DataFile]) -> None:
        """Deletes files that no commit names."""
        ...
