"""The log of a Delta table, on any store: versions to read from and to commit on.

Laws:
1. A commit is a file of the next number. A second writer of that number reads the commit, and commits after it or raises
   `Moved`. When a draft is committed, the log must still have its base version, unchanged. Otherwise the number could be
   that of a packed commit, or of a commit of a copy.
2. The cost of a commit does not grow with the commits before it.
3. A log keeps the newest version that it opened. The next opening reads the commits since then. The kept version is dropped
   if its commit has another tag, if its protocol changed, and after any failure.
4. An absent table is None. A failing store raises EnvironmentFailed. A location that delta-rs cannot open (`TAKEN`) raises
   ConfigError.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from rota.deltalog import features
from rota.deltalog.commits import State, clashes, find_info, write_commit
from rota.deltalog.features import check_writable, describe_error, explain_errors
from rota.deltalog.log_files import LOG, LogFiles
from rota.deltalog.names import AFTER_COPY
from rota.deltalog.past import Past
from rota.deltalog.port import Draft, Move, Moved
from rota.errors import ConfigError, EnvironmentFailed
from rota.stores import describe_client, is_url

log = logging.getLogger(__name__)
TAKEN = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f\ud800-\udfff]")  # delta-rs decodes the first, and opens no others
INTERVAL = "delta.checkpointInterval"
OFTEN = (
    20  # commits between checkpoints in a bucket, where an opening takes a request for each commit after the last one
)
TAIL = 100  # commits between checkpoints if the table does not state it, and after which maintenance writes one
LOOKS = 3  # tries of one opening; each further try follows a replacement of the log by another log
T = TypeVar("T")


class DeltaVersion:
    """The log at one version. See `rota.deltalog.port.Version`.

    `tag` is the tag of the version's commit; empty if the tag was not compared.
    """

    def __init__(self, log: "DeltaLog", state: State, tag: str, past: Past) -> None:
        self.log, self.state, self.tag, self._past = log, state, tag, past
        self.number = state.number

    @property
    def table(self) -> str:
        """See `Version.table`."""
        return str(self.state.metadata["id"])

    @property
    def schema(self) -> str:
        """See `Version.schema`."""
        return str(self.state.metadata["schemaString"])

    def transaction(self, name: str) -> int | None:
        """See `Version.transaction`."""
        if self.state.transactions is None:
            found: int | None = self._ask(lambda handle: handle.transaction_version(name))
            return found
        return self.state.transactions.get(name)

    def read_infos(self, versions: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """See `Version.read_infos`."""
        return self._past.read_infos(versions)

    def files(self) -> pa.Table:
        """See `Version.files`."""
        files = self._ask(lambda handle: pa.table(handle.get_add_actions(flatten=True)))
        self.list_later()  # raises if a copy took the place of this log
        return files

    def find_vectored(self, paths: Iterable[str]) -> set[str]:
        """See `Version.find_vectored`."""
        return self._find_vectored(paths)

    def _find_vectored(self, paths: Iterable[str]) -> set[str]:
        if features.VECTORS not in (self.state.protocol.get("readerFeatures") or ()):
            return set()
        return self._ask(lambda handle: features.find_vectored(handle, paths))

    def read_move(self, version: int) -> Move:
        """See `Version.read_move`."""
        with explain_errors(self.log.location, LOG):
            return self._past.read_move(version, self.state.protocol)

    def check_writable(self) -> None:
        """See `Version.check_writable`."""
        features.check_table(self.log.location, self.state)

    def append(self, draft: Draft[Any]) -> None:
        """See `Version.append`."""
        vectored = self._find_vectored(draft.removes) if draft.removes else ()
        check_writable(self.log.location, self.state, draft, vectored)
        try:
            if draft.columns:
                features.add_columns(self.log.load(self.number), self.state.protocol, draft.columns)
            else:
                self._write(draft)
        except (DeltaError, OSError, ValueError) as error:
            if isinstance(error, CommitFailedError) or features.CHANGED in str(error):
                raise Moved from error
            raise EnvironmentFailed(
                f"{self.log.location} cannot be written ({describe_error(error)}). Check the disk; the next run goes on"
            ) from error

    def _write(self, draft: Draft[Any]) -> None:
        body, later = write_commit(draft, self.state.metadata), self.list_later()
        for number in count(self.number + 1):
            tag = None if number in later else self.log.put_commit(number, body)
            if tag:
                self._keep_own(number, body, tag, draft.sets)
                return
            other = self.log.read_commit(number)
            if other == body:  # the reply to the first put was lost
                return
            if draft.alone or clashes(other, draft, self.state.metadata):
                raise Moved

    def list_later(self) -> Mapping[int, str]:
        """Return version -> tag of the first commits from this one on. Raises EnvironmentFailed if one is missing, or if
        this version's commit changed."""
        later, _ = self.log.list_page(self.number - 1)
        if self.tag and later.get(self.number) != self.tag:
            raise EnvironmentFailed(
                f"{self.log.location} is not the one of version {self.number}: another copy took its place. Nothing was "
                f"written; the next run looks at what is there"
            )
        if self.log.has_hole(max(later, default=self.number), later):
            raise EnvironmentFailed(
                f"{self.log.location} lacks a commit behind version {self.number}. Nothing was written. Bring its {LOG} "
                f"back from a copy, {AFTER_COPY}"
            )
        return later

    def _keep_own(self, number: int, body: bytes, tag: str, sets: Mapping[str, int]) -> None:
        """Keep the version of this commit if its number is the next one. Write a checkpoint if one is due."""
        known = self.state.transactions
        if number == self.number + 1:
            transactions = {**known, **sets} if known is not None else None
            state = replace(self.state, number=number, transactions=transactions)
            self.log.hold(DeltaVersion(self.log, state, tag, self._past))
            self._past.keep(find_info(number, body))
        try:
            if number % int(self.state.metadata["configuration"].get(INTERVAL, TAIL)) == 0:
                self._past.ask(number, DeltaTable.create_checkpoint)
        except (DeltaError, OSError, ValueError, ArithmeticError) as error:  # maintenance writes the checkpoint later
            log.warning("table=%s no_checkpoint=%s", self.log.location, describe_error(error))

    def follow(self, number: int) -> "DeltaVersion":
        """Return the version of this number, from the commits after this version. Its tag is not compared yet. Raises
        OSError, ValueError, KeyError, TypeError."""
        return DeltaVersion(self.log, self._past.follow(self.state, number), "", self._past)

    def _ask(self, what: Callable[[DeltaTable], T]) -> T:
        """Call `what` with a handle of delta-rs at this version, and return its result. Raises EnvironmentFailed."""
        with explain_errors(self.log.location, LOG):
            return self._past.ask(self.number, what)


class DeltaLog(LogFiles):
    """The log of the table at `location`. See `rota.deltalog.port.Log`.

    Keep one object for all openings of a table: each opening after the first is one request to a bucket.
    """

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._held: DeltaVersion | None = None
        self._client: object = None

    def open(self) -> DeltaVersion | None:
        """See `Log.open`. Raises ConfigError if delta-rs cannot open the location."""
        self._check_name()
        with explain_errors(self.location, LOG):
            try:
                return self._open_newest()
            except TableNotFoundError:
                return None

    def create(self, schema: str, settings: Mapping[str, str | None] | None = None) -> DeltaVersion:
        """See `Log.create`. The first of several processes creates the table. Raises ConfigError."""
        self._check_name()
        often = {INTERVAL: str(OFTEN)} if is_url(self.location) else {}
        try:
            if not is_url(self.location):
                os.makedirs(os.path.join(self.location, LOG), exist_ok=True)
            self.put_commit(0, features.make_first_commit(schema, {**often, **(settings or {})}))
        except (DeltaError, OSError) as error:
            raise EnvironmentFailed(
                f"{self.location} cannot be made ({describe_error(error)}). Check the disk and its rights"
            ) from error
        return self._open_newest()

    def hold(self, version: DeltaVersion) -> DeltaVersion:
        """Keep this version for the next opening, and return it."""
        self._held, self._client = version, describe_client()
        return version

    def checkpoint(self) -> bool:
        """Write a checkpoint if `TAIL` commits came since the last one, and return whether there is a table.

        Writers do this after commits, unless they are killed or the table has another interval. Raises EnvironmentFailed.
        """
        if (table := self.open()) is None:
            return False
        try:
            if table.number - max(self.list_checkpoints(), default=0) >= TAIL:
                self.load().create_checkpoint()
        except (DeltaError, OSError) as error:
            why = describe_error(error)
            raise EnvironmentFailed(
                f"{self.location} got no checkpoint ({why}). The next maintenance tries again"
            ) from error
        return True

    def _open_newest(self) -> DeltaVersion:
        """Return the newest version. Raises EnvironmentFailed, and what delta-rs raises, also if there is no table."""
        held, self._held = self._held, None  # after a failure none is kept; another client may see another log
        held = held if self._client == describe_client() else None
        for _ in range(LOOKS):
            tags, more = self.list_page(held.number - 1) if held else ({}, False)
            if held is None or more or tags.get(held.number) != held.tag:
                held, tags = None, self.find_newest()
            found = self._reach(held, max(tags, default=-1))
            if held and found is held:
                return self.hold(held)
            after = self.list_page(min(tags) - 1)[0] if tags else {}
            if all(after.get(version) == tag for version, tag in tags.items()):
                found.tag = tags.get(found.number, "")
                return self.hold(found) if found.tag else found
            held = None  # another log took its place
        raise EnvironmentFailed(
            f"{self.location} was another table at each of {LOOKS} looks. Let it rest; the next run goes on"
        )

    def _reach(self, held: DeltaVersion | None, number: int) -> DeltaVersion:
        """Return the version of this number; a newer one if delta-rs reads its state."""
        if held and held.number == number:
            return held
        if held:
            with suppress(OSError, ValueError, KeyError, TypeError):
                return held.follow(number)
        return DeltaVersion(self, self.read_state(number), "", Past(self))

    def _check_name(self) -> None:
        if taken := TAKEN.search(self.location):
            raise ConfigError(
                f"A Delta table cannot be in {self.location!r}: {taken[0]!r} is in its name. Give it another path"
            )
