"""The interface of a log. `DeltaLog` and the simulator's log in memory implement it; both pass `LogSuite` of the tests.

A log is a sequence of numbered versions. One commit makes each version. A commit sets transactions (a name and a number),
adds and removes files, and has a `commitInfo`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")


class Moved(Exception):
    """Another writer changed something that a draft compares, after the version of the draft. Nothing was written."""


class AddedFile(Protocol):
    """A Parquet file that a commit adds."""

    @property
    def path(self) -> str:
        """The path below the table's location."""
        ...

    @property
    def size(self) -> int:
        """The size in bytes."""
        ...

    @property
    def rows(self) -> int:
        """The number of rows."""
        ...

    @property
    def modified(self) -> int:
        """The time of writing, in ms since 1970."""
        ...

    @property
    def statistics(self) -> str:
        """The statistics as JSON, as Delta states them."""
        ...


@dataclass(frozen=True, slots=True)
class Draft(Generic[T]):
    """A commit to be made on the version `base`.

    A draft compares: since `base` no commit set a transaction of `sets`, added or removed a file of `removes`, removed rows
    from the table, or changed the columns.

    Attributes:
        said: keys and texts of the `commitInfo`.
        removes: path -> bytes.
        alone: the draft also requires that no other commit followed `base`.
        changes: rows come or go; False if rows only move between files.
        columns: JSON of columns to add. Such a draft does nothing else.
        commit: the id by which the caller finds the commit in the log if the reply is lost, and the caller's result is the
            log's entry. The caller makes a draft without an id again until nothing is left to do.
        result: the caller's result once a draft without an id is in the log.
    """

    base: "Version"
    sets: Mapping[str, int] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)
    adds: tuple[AddedFile, ...] = ()
    removes: Mapping[str, int] = field(default_factory=dict)
    alone: bool = False
    changes: bool = True
    columns: str = ""
    commit: str = ""
    result: T | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A commit that states that it only moved rows between files (`dataChange: false`).

    Paths are as they are in the table's folder. Row counts exclude rows that were deleted in place. A count is None if the
    log does not state it.

    Attributes:
        adds: path -> rows.
        before: path -> rows, of the added or removed files that the table already had; None if the log lost that version.
    """

    adds: Mapping[str, int | None]
    removes: frozenset[str]
    before: Mapping[str, int | None] | None

    @property
    def keeps_rows(self) -> bool:
        """Whether the table has as many rows as before, and had each removed file."""
        if self.before is None or not self.removes <= self.before.keys():
            return False
        was, now = [*self.before.values()], [*self.adds.values()]
        return None not in (*was, *now) and sum(filter(None, was)) == sum(filter(None, now))


class Version(Protocol):
    """A log at one version.

    Invariant: the results never change, whatever commits follow.
    """

    @property
    def log(self) -> "Log":
        """The log itself."""
        ...

    @property
    def number(self) -> int:
        """The number of the version."""
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
        """Return the number of the transaction; None if no commit set it. The first call reads all transactions."""
        ...

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """Return what `Log.read_info` returns for each of these versions, in order. No version may be after this one. Each
        commit is read once."""
        ...

    def files(self) -> pa.Table:
        """Return the files that readers see: `path`, `size_bytes`, `modification_time`, `num_records`, and `min.<column>`,
        `max.<column>` if known."""
        ...

    def find_vectored(self, paths: Iterable[str]) -> set[str]:
        """Return those of these files that have a deletion vector: another program deleted rows in place. Such a file must
        not be removed."""
        ...

    def read_move(self, version: int) -> Move:
        """Return the move of the commit of `version`, which states that it changed no row and is not after this version.

        Raises: EnvironmentFailed.
        """
        ...

    def check_writable(self) -> None:
        """Raise ForeignTable or EnvironmentFailed, with the next step, if the table requires something of writers that this
        package does not do."""
        ...

    def append(self, draft: Draft[Any]) -> None:
        """Commit the draft, which was made on this version, at the end of the log.

        Raises:
            Moved: another commit changed something that the draft compares.
            EnvironmentFailed: the log no longer has this version (a copy replaced it), or the store fails. After a failure
                of the store the commit may be in the log.
        """
        ...


class Log(Protocol):
    """The log of one table. Every method may raise EnvironmentFailed.

    Invariant: a commit is in the log as a whole or not at all, and never changes.
    """

    @property
    def location(self) -> str:
        """The path or URL of the table."""
        ...

    def open(self) -> Version | None:
        """Return the newest version; None if there is no table. If no commit came since the last call, return the same
        version."""
        ...

    def create(self, schema: str, settings: Mapping[str, str | None] | None = None) -> Version:
        """Create the table, unless another process already did, and return its newest version."""
        ...

    def read_info(self, version: int) -> Mapping[str, Any]:
        """Return the info of this version: the `commitInfo` of its commit, and its number as `version`. Empty if there is no
        such commit."""
        ...

    def read_actions(self, version: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Return the actions of the commit of this version: `add`, `remove`, `txn`, ... each with its fields as in Delta."""
        ...
