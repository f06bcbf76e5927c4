"""A Delta table as the data plane uses it, in memory: a log of commits, transactions by app id, optimistic handles.

Facts it keeps (each seen on delta-rs): a commit conflicts if an app id in it was written, or a file that it removes was
removed, after its handle's version; otherwise it lands on top, however old the handle; versions of an app id are never
compared; a handle does not advance with its own commit; a commit may land although its call raised.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


class Conflicted(Exception):
    """Somebody else wrote one of the commit's app ids, or removed one of its files, since the handle."""


class Broken(Exception):
    """The call failed; the commit may or may not have landed."""


@dataclass(frozen=True, slots=True)
class File:
    """Rows of one partition, by offset. `name` is unique in the table."""

    name: int
    partition: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the log."""

    version: int
    transactions: Mapping[str, int]
    adds: tuple[File, ...]
    removes: tuple[int, ...]
    facts: Mapping[str, object]


@dataclass(slots=True)
class Table:
    """The log, and a hook that may break a commit's call: it returns "before", "after" or None."""

    log: list[Commit] = field(default_factory=list)
    fault: Callable[[], str | None] = lambda: None
    _app: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _removed: dict[int, int] = field(default_factory=dict)
    _files: dict[int, File] = field(default_factory=dict)
    _names: int = 0

    def open(self) -> "Handle":
        """A handle on the newest version."""
        return Handle(self, len(self.log))

    def name(self) -> int:
        """A file name never given before."""
        self._names += 1
        return self._names

    def commit(
        self,
        base: int,
        transactions: Mapping[str, int],
        adds: Sequence[File] = (),
        removes: Sequence[int] = (),
        **facts: object,
    ) -> None:
        """Append a commit made on version `base`, or raise Conflicted; Broken if the fault hook says so."""
        fault = self.fault()
        if fault == "before":
            raise Broken
        stale = [a for a in transactions if a in self._app and self._app[a][-1][0] >= base]
        if stale or any(r in self._removed for r in removes):
            raise Conflicted(stale)
        version = len(self.log)
        self.log.append(Commit(version, dict(transactions), tuple(adds), tuple(removes), facts))
        for app, value in transactions.items():
            self._app.setdefault(app, []).append((version, value))
        for name in removes:
            self._removed[name] = version
            del self._files[name]
        self._files.update((f.name, f) for f in adds)
        if fault == "after":
            raise Broken


@dataclass(frozen=True, slots=True)
class Handle:
    """The table as of one version: reads see that version, a commit is compared with it."""

    table: Table
    version: int

    def transaction(self, app: str) -> int | None:
        """The value of an app id at this version."""
        for version, value in reversed(self.table._app.get(app, [])):
            if version < self.version:
                return value
        return None

    def files(self, partition: str) -> tuple[File, ...]:
        """The visible files of a partition; exact only while the handle is the newest, which is all that is needed."""
        return tuple(f for f in self.table._files.values() if f.partition == partition)

    def landed(self, commit_id: object, since: int = 0) -> bool:
        """Whether a commit of this id stands in the log from version `since` on."""
        return any(c.facts.get("commit") == commit_id for c in self.table.log[since : self.version])

    def batches(self, partition: str, after: int) -> tuple[tuple[str, tuple[int, int]], ...]:
        """The partition's batches that end after an offset, the oldest first."""
        batches = (c.facts["ranges"] for c in self.table.log[: self.version] if c.facts["what"] == "batch")
        mine = (r[partition] for r in batches if partition in r)  # type: ignore[operator, index]
        return tuple((partition, r) for r in mine if r[1] > after)

    def commit(
        self, transactions: Mapping[str, int], adds: Sequence[File] = (), removes: Sequence[int] = (), **facts: object
    ) -> None:
        """See `Table.commit`; this handle stays where it is."""
        self.table.commit(self.version, transactions, adds, removes, **facts)
