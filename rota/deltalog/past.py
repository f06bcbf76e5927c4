"""The cache of one `DeltaLog`: infos and moves of commits that were read, and a handle of delta-rs.

Laws:
1. A commit never changes under its number, so its info is read once.
2. delta-rs reads only what this package does not, such as the files of a version. One thread at a time uses the handle.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rota.deltalog.commits import State, find_info, fold, list_actions, list_moved
from rota.deltalog.features import count_rows
from rota.deltalog.log_files import LogFiles
from rota.deltalog.port import Move
from rota.stores import do_each

MAX_INFOS = 600  # infos in the cache: more than a check reads
MAX_MOVES = 16  # moves in the cache
T = TypeVar("T")


@dataclass(slots=True)
class Past:
    """The commits of a log that were read.

    Attributes:
        infos: version -> info, see `Log.read_info`.
        moves: version -> move of a commit of another program.
        handle: a handle of delta-rs at the newest version that a call named; None while a thread uses it.
    """

    files: LogFiles
    infos: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    moves: dict[int, Move] = field(default_factory=dict)
    handle: DeltaTable | None = None

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """See `Version.read_infos`."""
        return do_each(self.files.location, self._read_info, versions)

    def follow(self, state: State, version: int) -> State:
        """Return the state of this version, from an older state. Raises OSError, ValueError, KeyError, TypeError."""
        numbers = range(state.number + 1, version + 1)
        commits = list(do_each(self.files.location, self.files.read_commit, numbers))
        found = fold(version, map(list_actions, commits), state)
        if found.protocol is not state.protocol:
            raise ValueError("it may have a feature that is not known here")
        for number, commit in zip(numbers, commits, strict=True):
            self.keep(find_info(number, commit))
        return found

    def ask(self, version: int, what: Callable[[DeltaTable], T]) -> T:
        """Call `what` with a handle at this version, and return its result. Raises what delta-rs raises."""
        kept, self.handle = self.handle, None  # meanwhile another thread loads a handle
        if kept is not None and kept.version() < version:
            try:
                kept.update_incremental()
            except DeltaError:
                kept = None
        mine = kept if kept is not None and kept.version() == version else self.files.load(version)
        try:
            answer = what(mine)
        except DeltaError:
            if mine is not kept:
                raise
            mine = self.files.load(version)  # the checkpoint of the handle was deleted; the table has a newer one
            answer = what(mine)
        self.handle = kept if kept is not None and kept.version() > version else mine
        return answer

    def read_move(self, version: int, protocol: Mapping[str, Any]) -> Move:
        """See `Version.read_move`. A commit is read once. Raises OSError, ValueError, and what delta-rs raises."""
        if version not in self.moves:
            adds, removes = list_moved(self.files.read_commit(version))
            try:
                known = self.ask(version - 1, lambda handle: count_rows(handle, protocol))
                before = {path: known[path] for path in {*adds, *removes}.intersection(known)}
            except DeltaError:
                if version - 1 in self.files.list_page(version - 2)[0]:
                    raise
                before = None  # the previous commit is packed, or another program shortened the log
            while len(self.moves) >= MAX_MOVES:
                self.moves.pop(min(self.moves), None)
            self.moves[version] = Move(adds, removes, before)
        return self.moves[version]

    def keep(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep the info of a commit, unless it is empty, and return it."""
        if info:
            self.infos[info["version"]] = info
        if len(self.infos) > MAX_INFOS:
            self.infos.pop(min(list(self.infos)), None)
        return info

    def _read_info(self, version: int) -> Mapping[str, Any]:
        return self.infos.get(version) or self.keep(self.files.read_info(version))
