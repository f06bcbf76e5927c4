"""What a process keeps of the Delta tables that it opened: who opens one again asks for what came since.

Laws:
1. What is kept is of the log that is there: the commit of its version had the same tag before and after it was read, and
   has it at each look. A tag is the ETag in a bucket; inode, time and size on a disk. Else nothing is kept, as after any
   failure: all is read anew.
2. A commit never changes under its number: what it says of itself is read once. The state of a version is that of an
   earlier one of the same log, and what the commits since then made of it, in order.
3. A handle of delta-rs is asked for the files of a version, and for nothing else. Nobody has the one that is kept while it
   is moved.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rota.deltalog.commits import State, find_info, fold, list_actions, list_moved
from rota.deltalog.features import count_rows
from rota.deltalog.port import Move
from rota.errors import EnvironmentFailed
from rota.stores import describe_client, do_each, tag_file

COMMIT = re.compile(r"(?:.*/)?(\d{20})\.json")
MOST = 600  # commits of a table whose words are kept: more than a check reads back
MOVES = 16  # commits of others of which it is kept what they moved
TABLES = 300  # of which something is kept
LOOKS = 3  # at most, each after another log took the place of the one that was looked at
T = TypeVar("T")


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

    def read_commit(self, version: int) -> bytes:
        """The commit as it was written. Raises OSError."""
        ...

    def read_state(self, version: int) -> State:
        """The state of this version, or of a newer one, read anew. Raises what delta-rs raises."""
        ...

    def load(self, version: int | None = None) -> DeltaTable:
        """A handle at this version, or at the newest. Raises what delta-rs raises."""
        ...


@dataclass(slots=True)
class Past:
    """The commits of a log, as far as this process has read them, and a handle of delta-rs."""

    log: LogToKeep
    infos: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # what each says of itself
    handle: DeltaTable | None = None
    moves: dict[int, Move] = field(default_factory=dict)

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """What these commits say of themselves, with their numbers; empty of one that is not there. Raises
        EnvironmentFailed."""
        return do_each(self.log.location, self._read_info, versions)

    def follow(self, state: State, version: int) -> State:
        """The state of this version, from that of an older one. Raises OSError, ValueError, KeyError, TypeError."""
        numbers = range(state.number + 1, version + 1)
        commits = list(do_each(self.log.location, self.log.read_commit, numbers))
        found = fold(version, map(list_actions, commits), state)
        if found.protocol is not state.protocol:
            raise ValueError("it may have a feature that is not known here")
        for number, commit in zip(numbers, commits, strict=True):
            self.keep(find_info(number, commit))
        return found

    def ask(self, version: int, what: Callable[[DeltaTable], T]) -> T:
        """What a handle at this version says. Raises what delta-rs raises."""
        kept, self.handle = self.handle, None  # whoever asks meanwhile finds none
        if kept is not None and kept.version() < version:
            try:
                kept.update_incremental()
            except DeltaError:
                kept = None
        mine = kept if kept is not None and kept.version() == version else self.log.load(version)
        try:
            answer = what(mine)
        except DeltaError:
            if mine is not kept:
                raise
            mine = self.log.load(version)  # a checkpoint that it goes back to is gone since; the table has another
            answer = what(mine)
        self.handle = kept if kept is not None and kept.version() > version else mine
        return answer

    def read_move(self, version: int, protocol: Mapping[str, Any]) -> Move:
        """See `Version.read_move`. A process reads it once. Raises OSError, ValueError, and what delta-rs raises."""
        if version not in self.moves:
            adds, removes = list_moved(self.log.read_commit(version))
            try:
                known = self.ask(version - 1, lambda handle: count_rows(handle, protocol))
                before = {path: known[path] for path in {*adds, *removes}.intersection(known)}
            except DeltaError:
                if version - 1 in self.log.list_page(version - 2)[0]:
                    raise
                before = None  # the commit before is packed, or somebody shortened the log
            self.moves[version] = Move(adds, removes, before)
            drop_oldest(self.moves, MOVES)
        return self.moves[version]

    def keep(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a commit says of itself, and its number; nothing of one that is not there."""
        if info:
            self.infos[info["version"]] = info
        if len(self.infos) > MOST:
            self.infos.pop(min(list(self.infos)), None)
        return info

    def _read_info(self, version: int) -> Mapping[str, Any]:
        return self.infos.get(version) or self.keep(self.log.read_info(version))


@dataclass(frozen=True, slots=True)
class Kept:
    """The state of a log at a version whose commit had this tag; empty: nobody looked."""

    state: State
    tag: str
    past: Past


KEPT: dict[tuple[object, ...], Kept] = {}  # by location, and by what a client is made of
NEWEST: dict[tuple[object, ...], int] = {}  # the newest version of a table that this process has seen
K = TypeVar("K")


def open_kept(log: LogToKeep) -> Kept:
    """The newest version. Raises EnvironmentFailed, and what delta-rs raises, also where there is none."""
    kept = KEPT.pop(identify(log), None)
    for _ in range(LOOKS):
        tags, more = log.list_page(kept.state.number - 1) if kept else ({}, False)
        if kept is None or more or tags.get(kept.state.number) != kept.tag:
            kept, newest = None, find_newest(log)
            tags = dict([newest]) if newest else {}
        found = _read_on(log, kept, max(tags, default=-1))
        number = found.state.number
        if kept and found.state is kept.state:
            return keep(log, kept)
        after = log.list_page(min(tags) - 1)[0] if tags else {}
        if all(after.get(version) == tag for version, tag in tags.items()):
            return keep(log, Kept(found.state, tags[number], found.past)) if number in tags else found
        kept = None  # another log took its place
    raise EnvironmentFailed(
        f"{log.location} was another table at each of {LOOKS} looks. Let it rest; the next run goes on"
    )


def _read_on(log: LogToKeep, kept: Kept | None, version: int) -> Kept:
    """The state of this version, or of a newer one where it had to be read anew."""
    if kept and kept.state.number == version:
        return kept
    if kept:
        with suppress(OSError, ValueError, KeyError, TypeError):
            return Kept(kept.past.follow(kept.state, version), "", kept.past)
    return Kept(log.read_state(version), "", Past(log))


def keep(log: LogToKeep, kept: Kept) -> Kept:
    """Who opens the log next goes on from here."""
    KEPT[identify(log)] = kept
    drop_oldest(KEPT, TABLES)
    return kept


def find_newest(log: LogToKeep) -> tuple[int, str] | None:
    """The newest version and its tag; None where there is none. From the newest that this process knew on, so that it
    takes one list. Raises EnvironmentFailed."""
    key, newest = identify(log), None
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


def stat_commits(folder: str, after: int) -> dict[int, str]:
    """Version -> tag of the commits that come after this one, up to one that is not there: so no folder is listed, unless
    the first is not there and all are asked for. Raises OSError."""
    found: dict[int, str] = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        for version in count(after + 1):
            found[version] = tag_file(f"{folder}/{version:020}.json")
    if after < 0 and not found:
        with suppress(FileNotFoundError, NotADirectoryError):
            there = (match for name in os.listdir(folder) if (match := COMMIT.fullmatch(name)))
            found = {int(match[1]): tag_file(f"{folder}/{match[0]}") for match in there}
    return found


def drop_oldest(kept: dict[K, Any], most: int) -> None:
    """Leaves the `most` that were put there last. Threads may do it at once."""
    while len(kept) > most:
        with suppress(RuntimeError, StopIteration):  # another one puts or drops
            kept.pop(next(iter(kept)), None)


def identify(log: LogToKeep) -> tuple[object, ...]:
    """What a client of the log is made of: another one may see another log."""
    return (log.location, *describe_client())
