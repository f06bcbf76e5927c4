"""What a process keeps of the Delta tables that it opened: who opens one again asks for what came since.

Laws:
1. delta-rs moves a handle in place, and compares what it commits with all that came after the version that the handle is
   at. So a handle is lent to one version at a time, and moved only once nobody has that version any more. Who opens the
   table meanwhile gets another handle.
2. What is kept is of the log that is there: the commit at which a handle is had the same tag before and after it was read,
   and has it at each look. A tag is the ETag in a bucket; inode, time and size on a disk. Else nothing is kept, as after any
   failure: all is read anew.
3. A commit never changes under its number: what it says of itself is read once. The transactions of a version are those of
   an earlier one of the same log, and what the commits since then set, in order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from weakref import ref

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rota.ledger.delta_commits import Said
from rota.stores import describe_client, do_each

MOST = 600  # commits of a table whose words are kept: more than a check reads back
TABLES = 300  # of which a handle is kept: three a pipeline


class LogToKeep(Protocol):
    """What is asked of a log here."""

    @property
    def location(self) -> str:
        """Where its table is."""
        ...

    def guess_newest(self) -> int:
        """A version from which on the newest one is looked for. It may be wrong. Raises nothing."""
        ...

    def list_page(self, after: int) -> tuple[Mapping[int, str], bool]:
        """Version -> tag of the first commits that come after this one; and whether there may be more. In a bucket it takes
        one request, on a disk a look at each and at the next name. Raises EnvironmentFailed."""
        ...

    def read_info(self, version: int) -> Mapping[str, Any]:
        """See `Log.read_info`. Raises EnvironmentFailed."""
        ...

    def read_said(self, version: int) -> Said | None:
        """Of the commit of this version; None where it is not there. Raises EnvironmentFailed."""
        ...

    def read_transactions(self, version: int) -> Mapping[str, int] | None:
        """All at this version, read anew; None where delta-rs must be asked."""
        ...


@dataclass(slots=True)
class Past:
    """The commits of a log, as far as this process has read them."""

    log: LogToKeep
    infos: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # what each says of itself
    known: tuple[int, Mapping[str, int]] | None = None  # a version, and all transactions at it

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """What these commits say of themselves, with their numbers; empty of one that is not there. Raises
        EnvironmentFailed."""
        return do_each(self.log.location, self._read_info, versions)

    def read_transactions(self, version: int) -> Mapping[str, int] | None:
        """All at this version; None where delta-rs must be asked. Raises EnvironmentFailed."""
        summed = self._add_up(version)
        found = self.log.read_transactions(version) if summed is None else summed
        if found is not None:
            self.known = version, found
        return found

    def _add_up(self, version: int) -> dict[str, int] | None:
        if self.known is None or self.known[0] > version:
            return None
        base, found = self.known[0], dict(self.known[1])
        for said in do_each(self.log.location, self.log.read_said, range(base + 1, version + 1)):
            if said is None or said[1] is None:
                return None
            self._keep(said[0])
            found |= said[1]
        return found

    def _read_info(self, version: int) -> Mapping[str, Any]:
        return self.infos.get(version) or self._keep(self.log.read_info(version))

    def _keep(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        if info:
            self.infos[info["version"]] = info
        if len(self.infos) > MOST:
            self.infos.pop(min(list(self.infos)), None)
        return info


@dataclass(frozen=True, slots=True)
class Kept:
    """A handle at version `number`, whose commit had this tag; `lent` is the version that has it."""

    handle: DeltaTable
    number: int
    tag: str
    past: Past
    lent: "ref[Any]"


KEPT: dict[tuple[object, ...], Kept] = {}  # by location, and by what a client is made of
NEWEST: dict[tuple[object, ...], int] = {}  # the newest version of a table that this process has seen
K = TypeVar("K")
V = TypeVar("V")


def open_kept(log: LogToKeep, make: Callable[[DeltaTable, Past], V], load: Callable[[], DeltaTable]) -> V:
    """The newest version, which `make` makes of a handle; `load` opens the table anew. Raises EnvironmentFailed, and what
    `load` raises."""
    kept = KEPT.pop(key := _identify(log), None)  # whoever opens it meanwhile finds none
    before = list_tags(log, kept.number - 1) if kept else {}
    if kept is None or before.get(kept.number) != kept.tag:
        kept, newest = None, find_newest(log)
        before = dict([newest]) if newest else {}
    past = kept.past if kept else Past(log)
    first = min(before, default=0)
    if kept and kept.lent() is None and kept.handle.version() == kept.number:
        handle, after = kept.handle, before
        if max(before) > kept.number:
            try:
                handle.update_incremental()
            except DeltaError:
                handle = load()
            after = list_tags(log, first - 1)
    else:
        handle, after = load(), list_tags(log, first - 1) if before else {}
    if any(after.get(number) != tag for number, tag in before.items()):
        return make(load(), Past(log))  # another log took its place
    version, number = make(handle, past), handle.version()
    if number in before:
        KEPT[key] = Kept(handle, number, before[number], past, ref(version))
        drop_oldest(KEPT, TABLES)
    return version


def find_newest(log: LogToKeep) -> tuple[int, str] | None:
    """The newest version and its tag; None where there is none. From the newest that this process knew on, so that it
    takes one list. Raises EnvironmentFailed."""
    key, newest = _identify(log), None
    known = NEWEST.get(key) or log.guess_newest()
    commits, more = log.list_page(known - 1)
    if not commits and known:
        commits, more = log.list_page(-1)  # another table took its place
    while commits:
        newest = max(commits.items())
        commits, more = log.list_page(newest[0]) if more else ({}, False)
    if newest:
        NEWEST.pop(key, None)
        NEWEST[key] = newest[0]
        drop_oldest(NEWEST, TABLES)
    return newest


def list_tags(log: LogToKeep, after: int) -> Mapping[int, str]:
    """Version -> tag of the first commits that come after this version. Raises EnvironmentFailed."""
    return log.list_page(after)[0]


def drop_oldest(kept: dict[K, Any], most: int) -> None:
    """Leaves the `most` that were put there last. Threads may do it at once."""
    while len(kept) > most:
        with suppress(RuntimeError, StopIteration):  # another one puts or drops
            kept.pop(next(iter(kept)), None)


def _identify(log: LogToKeep) -> tuple[object, ...]:
    return (log.location, *describe_client())
