"""What a caller asks of a log. `DeltaLog` is one; the simulator has one in memory. Both pass `LogSuite` of the tests.

A log is a sequence of numbered versions. One commit makes each version. A commit sets transactions (a name and a number),
adds and removes files, and carries text about itself.
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
        """Its path below the table's location."""
        ...

    @property
    def size(self) -> int:
        """Its bytes."""
        ...

    @property
    def rows(self) -> int:
        """Its rows."""
        ...

    @property
    def modified(self) -> int:
        """When it was written, in ms since 1970."""
        ...

    @property
    def statistics(self) -> str:
        """JSON, as Delta states statistics."""
        ...


@dataclass(frozen=True, slots=True)
class Draft(Generic[T]):
    """A commit to be made on the version `base`.

    A draft compares: since `base` no commit set a transaction of `sets`, removed or named a file of `removes`, took rows
    from the table, or changed the columns.

    Attributes:
        said: text that the commit carries about itself.
        removes: path -> bytes.
        alone: the draft also requires that no other commit followed `base`.
        changes: rows come or go; False if rows only move between files.
        columns: JSON of columns to add. A draft with `columns` does nothing else.
        commit: the id by which the commit is found if its answer is lost; the log's entry is the answer then. A draft
            without an id is made again until nothing is left to do.
        result: the answer once a draft without an id is in the log.
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

    Paths are as they are in the table's folder. Row counts are None if the log does not state them. They exclude rows that
    were deleted in place.

    Attributes:
        adds: path -> rows.
        before: path -> rows, of each touched file that the table had before the commit; None if the log no longer states it.
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
    """A log at one version.

    Invariant: its answers never change, whatever is written after it.
    """

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
        """Return the number that was set last; None if none was set. The first call reads all transactions."""
        ...

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """Return what `Log.read_info` returns for each of these versions, in order. None of them is after this version. A
        commit is read once."""
        ...

    def files(self) -> pa.Table:
        """Return the files that readers see: `path`, `size_bytes`, `modification_time`, `num_records`, and `min.<column>`,
        `max.<column>` where they are known."""
        ...

    def find_vectored(self, paths: Iterable[str]) -> set[str]:
        """Return those of these files that have rows which another program deleted in place. Such a file must not be
        removed."""
        ...

    def read_move(self, version: int) -> Move:
        """Return what the commit of `version` did. The commit states that it changed no row, and is not after this version.

        Raises: EnvironmentFailed.
        """
        ...

    def check_writable(self) -> None:
        """Raise ForeignTable or EnvironmentFailed, with the next step, if the table requires of a writer what this package
        does not do."""
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
        """Where the table is."""
        ...

    def open(self) -> Version | None:
        """Return the newest version; None if there is no table. The version equals the one that was opened before if no
        commit came since."""
        ...

    def create(self, schema: str, settings: Mapping[str, str | None] | None = None) -> Version:
        """Create the table, unless another process already did, and return its newest version."""
        ...

    def read_info(self, version: int) -> Mapping[str, Any]:
        """Return what the commit of this version states about itself, with its number as `version`; empty if there is no
        such commit."""
        ...

    def read_actions(self, version: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Return what the commit of this version did: `add`, `remove`, `txn`, ... with its fields as Delta names them."""
        ...
