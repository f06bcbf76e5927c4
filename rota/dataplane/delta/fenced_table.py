"""The Delta table as a ledger: data files, offsets and tokens of all partitions of a batch in one log entry.

Law: a commit is a compare-and-set of every partition's offset and token, because the offset was read on the very handle
that commits (delta-rs refuses a transaction id that moved since the handle's snapshot, and compares nothing else), and the
log still has what it said there: a copy that took the table's place meanwhile moved nothing, and is another table. After
any failure the table is opened again and history, token and offset decide what happened: a conflict alone is no fence.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from rota.dataplane import columns
from rota.dataplane.delta.commit_info import describe_commit, parse_entries
from rota.dataplane.delta.foreign_commits import ForeignCommit, find_foreign_commit, join_ranges
from rota.dataplane.delta.identity import Identity, belongs_to, count_adoptions
from rota.dataplane.ports import Batch, DataFile, LogEntry, Position, TableClaim
from rota.errors import EnvironmentFailed, Fenced, ForeignTable, OffsetGap
from rota.ledger.delta_log import DeltaLog, DeltaVersion, describe_error

CONFIGURATION = {"delta.logRetentionDuration": "interval 36500 days"}  # the log proves every offset: it is kept
TRIES = 100
RECENT = 500  # versions of a table that a check reads back


@dataclass(frozen=True, slots=True)
class FencedTable:
    """One Delta table of a group (`main` or `quarantine`): the `pipeline` of this `group` with this `meta` (the random id in
    its meta znode) owns it. `editable`: people change its rows, and nobody looks for that."""

    path: Path
    group: str
    meta: str
    pipeline: str = ""
    editable: bool = False

    def open(self) -> DeltaVersion | None:
        """The newest version; None when there is no table."""
        return self.log.open()

    @property
    def log(self) -> DeltaLog:
        """What the table stands on."""
        return DeltaLog(str(self.path))

    def open_or_make(self) -> DeltaVersion:
        """The table, made with `_partition` and `_offset` alone on first use; batches bring their columns along."""
        return self.open() or self.log.create(columns.FIRST, CONFIGURATION)

    @property
    def location(self) -> str:
        """See `Table.location`."""
        return str(self.path)

    def require(self) -> None:
        """See `Table.require`."""
        self.open_existing()

    def exists(self) -> bool:
        """See `OwnedTable.exists`."""
        return self.open() is not None

    def make(self) -> None:
        """See `OwnedTable.make`."""
        self.open_or_make()

    def check_adoptable(self) -> None:
        """See `OwnedTable.check_adoptable`."""
        if table := self.open():
            self._check_adoptable_handle(table)

    def read_schema(self) -> str | None:
        """See `Table.read_schema`."""
        table = self.open()
        return table.schema if table else None

    def open_existing(self) -> DeltaVersion:
        """The table that was there before. Raises EnvironmentFailed where it is not: nothing is written in its place."""
        table = self.open()
        if table is None:
            raise EnvironmentFailed(
                f"There is no table at {self.path}, and there was one. Nothing was written. Is its disk mounted? If the "
                f"table was dropped on purpose, type: rota adopt"
            )
        return table

    def read_positions(self, partitions: tuple[str, ...]) -> Mapping[str, Position]:
        """See `Table.read_positions`."""
        if table := self.open():
            self.check_owner(table)
        return self.read_positions_in(table, partitions)

    def read_positions_in(self, table: DeltaVersion | None, partitions: Iterable[str]) -> Mapping[str, Position]:
        """The positions at the version of the handle, whoever has the table."""
        if table is None:
            return dict.fromkeys(partitions, Position(None, None, None))
        at = table.transaction
        return {p: Position(at(self._offset_id(p)), at(self._token_id(p)), table.table) for p in partitions}

    def check_owner(self, table: DeltaVersion) -> None:
        """Raises ForeignTable, before anything is written, where the table belongs to another group, another past or another
        pipeline."""
        if self.owner.owns(table) or not (count_adoptions(table) or table.files().num_rows):
            return
        raise ForeignTable(self.owner.refusal(self.path, table))

    @property
    def owner(self) -> Identity:
        """Who the table must belong to."""
        return Identity(self.group, self.meta, self.pipeline)

    def find_foreign_commits(self, partitions: Iterable[str]) -> dict[str, str]:
        """Partition -> what somebody else did to the rows since we last looked, and the next step, with the offsets of it
        that a RESTORE took; empty if nothing."""
        table = self.open()
        if table is None or (found := self.find_foreign_commit(table)) is None:
            return {}
        past = self.read_log(found.back_to) if found.back_to is not None else ()
        taken = [one for one in past if one.op in ("commit", "replay")]  # what was skipped is not read
        spans = {p: join_ranges(one.ranges[p] for one in taken if p in one.ranges) for p in partitions}
        said = self._explain_foreign(found)
        return {
            p: f"{said} (of {p}: {', '.join(f'{start} to {end}' for start, end in of)})" if of else said
            for p, of in spans.items()
        }

    def find_foreign_commit(self, table: DeltaVersion) -> ForeignCommit | None:
        """The newest commit of somebody else that changed rows and was not adopted, if any."""
        return None if self.editable else find_foreign_commit(table)

    def _explain_foreign(self, found: ForeignCommit) -> str:
        return (
            f"{self.path}: version {found.version} ({found.operation}) changed rows, and rota did not make it. Look at it, "
            f"then: rota adopt; rows that are gone come back by a replay of their offsets"
        )

    def identity_moves(self, table: DeltaVersion) -> list[Transaction]:
        """What the first commit of this group into a table carries, so that it is known again."""
        return [] if self.owner.owns(table) else self.owner.taken(count_adoptions(table) or 1)

    def claim(self, tokens: Mapping[str, int], starts: Mapping[str, int], *, known: bool = False) -> TableClaim:
        """See `Table.claim`. Raises ForeignTable before anything is written."""
        for _ in range(TRIES):
            table = self.open_existing() if known else self.open_or_make()
            self.check_owner(table)
            self._check_untouched(table)
            seen = {p: table.transaction(self._token_id(p)) for p in tokens}
            newer = self.find_newer(seen, tokens)
            mine = {p: t for p, t in tokens.items() if p not in newer}
            heard = {p: table.transaction(self._offset_id(p)) for p in (*mine, *(starts.keys() - tokens.keys()))}
            wanted = [Transaction(self._token_id(p), t) for p, t in mine.items() if seen[p] != t]
            wanted += [Transaction(self._offset_id(p), starts[p]) for p, at in heard.items() if at is None]
            wanted += self.identity_moves(table) if wanted else []
            if not wanted:
                return self._make_claim(table, mine, {p: heard[p] or 0 for p in mine}, newer)
            claim = Batch(uuid.uuid4().hex, "", "", "", 0, {}, op="claim")
            try:
                self._write(table, (), wanted, {**self.describe(claim, {}), "rota.tokens": _shown(mine)})
            except (DeltaError, OSError) as error:
                check_lost_race(self.path, error)
        raise EnvironmentFailed(f"{self.path}: no claim in {TRIES} tries. Too many writers at once; try again")

    def find_newer(self, seen: Mapping[str, int | None], tokens: Mapping[str, int]) -> dict[str, int]:
        """The tokens that the table has seen and that are above these."""
        return {p: token for p, token in seen.items() if token is not None and token > tokens[p]}

    def renew(self, claimed: TableClaim, partitions: tuple[str, ...]) -> TableClaim:
        """The same claim on the newest version. Raises Fenced or OffsetGap where somebody else moved a partition."""
        table = self.open_existing()
        self.check_owner(table)
        self._check_untouched(table)
        self.check_unmoved(table, claimed, partitions)
        tokens = {p: claimed.tokens[p] for p in partitions}
        return self._make_claim(table, tokens, {p: claimed.offsets[p] for p in partitions}, {})

    def commit(self, claimed: TableClaim, batch: Batch, follows: bool = True) -> int:
        """See `Table.commit`."""
        moved = {p: r for p, r in batch.ranges.items() if claimed.offsets[p] != r[0]}
        if moved and follows:
            raise OffsetGap(
                f"{self.path}: {moved} do not start at { ({p: claimed.offsets[p] for p in moved}) }. Read the offsets again",
                partitions=tuple(moved),
            )
        partitions, since = tuple(batch.ranges), claimed.version
        for _ in range(TRIES):
            claimed = self._widen(claimed, batch)
            table = claimed.snapshot
            assert isinstance(table, DeltaVersion)
            self.check_same_copy(claimed)
            self.check_on_disk(batch.files)
            said, moves = self.describe(batch, claimed.tokens), self._moves(batch, claimed.tokens)
            write = partial(self._write, table, batch.files, moves, said)
            if (version := self.try_commit(batch.id, since, write)) is not None:
                return version
            claimed = self.renew(claimed, partitions)
        raise EnvironmentFailed(
            f"{self.path}: no commit in {TRIES} tries. Nothing of this batch was written; try again"
        )

    def read_log(self, since: int = -1) -> tuple[LogEntry, ...]:
        """See `Table.read_log`."""
        table = self.open()
        newer = table.number - since if table else 0
        return tuple(parse_entries(table.history(newer))) if table and newer > 0 else ()

    def read_recent_log(self) -> tuple[LogEntry, ...]:
        """What happened in the newest `RECENT` versions, newest first: as much as a check or a look reads back."""
        table = self.open()
        return tuple(parse_entries(table.history(RECENT))) if table else ()

    def read_log_back_to(self, offsets: Mapping[str, int]) -> tuple[LogEntry, ...]:
        """The commits, newest first, back to where each partition stood at its offset."""
        table, limit = self.open() if offsets else None, 64
        while table:
            entries = table.history(limit)
            found = tuple(one for one in parse_entries(entries) if one.op in ("commit", "skip"))
            reached = {p for one in found for p, (start, _) in one.ranges.items() if start <= offsets.get(p, start)}
            if reached >= set(offsets) or len(entries) < limit:
                return tuple(one for one in found if any(one.goes_beyond(p, at) for p, at in offsets.items()))
            limit *= 8
        return ()

    def list_partitions(self) -> set[str]:
        """See `OwnedTable.list_partitions`."""
        return {p for one in self.read_log() for p in (*one.tokens, *one.ranges)}

    def adopt(self) -> int:
        """See `OwnedTable.adopt`. The offsets of another pipeline are of other partitions: all would be read again."""
        for _ in range(TRIES):
            table = self.open_existing()
            self._check_adoptable_handle(table)
            if self.owner.owns(table) and not self.find_foreign_commit(table):
                return max((t for one in self.read_log() for t in one.tokens.values()), default=0)
            wanted = [*self.owner.taken((count_adoptions(table) or 0) + 1), *self._carry_former(table)]
            try:
                adoption = Batch(uuid.uuid4().hex, "", "", "", 0, {}, op="adopt")
                self._write(table, (), wanted, self.describe(adoption, {}))
            except (DeltaError, OSError) as error:
                check_lost_race(self.path, error)
        raise EnvironmentFailed(f"{self.path}: no adoption in {TRIES} tries. Stop the group's runs and try again")

    def _check_adoptable_handle(self, table: DeltaVersion) -> None:
        """Raises ForeignTable where the table is another pipeline's, or between two names."""
        if count_adoptions(table) is not None and not belongs_to(table, self.pipeline):
            raise ForeignTable(self.owner.refusal(self.path, table))

    def _carry_former(self, table: DeltaVersion) -> list[Transaction]:
        """The offsets of the group that wrote last under this group's name, and once more under its own: so none of its
        commits lies between the reading and the adoption, and none that began before comes after."""
        past = self.read_log()
        if not past or past[0].group == self.group:
            return []  # the same names: the next claim under a greater token does both
        former = replace(self, group=past[0].group)
        offsets = {p: table.transaction(former._offset_id(p)) for p in self.list_partitions()}
        both = ((one, p, at) for one in (self, former) for p, at in offsets.items() if at is not None)
        return [Transaction(one._offset_id(p), at) for one, p, at in both]

    def position_moves(self, partition: str, stands: Position) -> list[Transaction]:
        """What sets the partition's offset and token, as far as they are known."""
        both = ((self._offset_id(partition), stands.offset), (self._token_id(partition), stands.token))
        return [Transaction(name, number) for name, number in both if number is not None]

    def _offset_id(self, partition: str) -> str:
        return f"rota/{self.group}/{partition}/offset"

    def _token_id(self, partition: str) -> str:
        return f"rota/{self.group}/{partition}/token"

    def describe(self, batch: Batch, tokens: Mapping[str, int]) -> dict[str, str]:
        """What a commit of ours says of itself."""
        return describe_commit(batch, self.group, tokens, self.pipeline)

    def _moves(self, batch: Batch, tokens: Mapping[str, int]) -> list[Transaction]:
        offsets = [Transaction(self._offset_id(p), end) for p, (_, end) in batch.ranges.items()]
        return offsets + [Transaction(self._token_id(p), tokens[p]) for p in batch.ranges]

    def _write(
        self, table: DeltaVersion, files: tuple[DataFile, ...], moves: list[Transaction], said: Mapping[str, str]
    ) -> None:
        added = [make_add_action(f) for f in files]
        said = {**said, "rota.base": str(table.number)}
        properties = CommitProperties(app_transactions=moves, custom_metadata=said, max_commit_retries=30)
        handle = table.handle
        handle.create_write_transaction(
            added, "append", handle.schema(), partition_by=[], commit_properties=properties
        )  # fmt: skip

    def _make_claim(
        self, table: DeltaVersion, tokens: Mapping[str, int], offsets: Mapping[str, int], newer: Mapping[str, int]
    ) -> TableClaim:
        said = self.log.read_text(table.number)
        return TableClaim(table, table.number, table.table, table.schema, tokens, offsets, newer, said)

    def check_on_disk(self, files: Iterable[DataFile]) -> None:
        """Raises EnvironmentFailed where a file that is to be named is gone: nobody could read the table any more."""
        if gone := [f.path for f in files if not (self.path / f.path).exists()]:
            raise EnvironmentFailed(
                f"{gone[0]}, which this run wrote into {self.path}, is gone: another copy took its place. Nothing was "
                f"written; try again"
            )

    def check_same_copy(self, claimed: TableClaim) -> None:
        """Raises EnvironmentFailed where another copy of the table took its place since it was claimed."""
        if self.log.read_text(claimed.version) != claimed.entry:
            raise EnvironmentFailed(
                f"{self.path} is not the one of the claim: another copy took its place. Nothing was written; the next run "
                f"looks at what is there"
            )

    def _check_untouched(self, table: DeltaVersion) -> None:
        if found := self.find_foreign_commit(table):
            raise ForeignTable(f"{self._explain_foreign(found)}. Nothing was written")

    def _widen(self, claimed: TableClaim, batch: Batch) -> TableClaim:
        """The claim on a version whose schema has every column of the batch; a changed type is refused."""
        assert isinstance(claimed.snapshot, DeltaVersion)
        if not columns.find_added(claimed.columns, (f.columns for f in batch.files)):
            return claimed
        claimed = self.renew(claimed, tuple(batch.ranges))  # whoever was overtaken adds no column either
        assert isinstance(claimed.snapshot, DeltaVersion)
        if not (added := columns.find_added(claimed.columns, (f.columns for f in batch.files))):
            return claimed
        try:
            claimed.snapshot.add_columns(added)
        except (DeltaError, OSError) as error:
            check_lost_race(self.path, error)
        return self._widen(self.renew(claimed, tuple(batch.ranges)), batch)

    def try_commit(self, commit: str, since: int, write: Callable[[], None]) -> int | None:
        """Calls `write`, and returns the version after `since` that carries this commit id: the log says whether it went in,
        whatever `write` says. None where it lost a race. Raises EnvironmentFailed where the disk or the store fails."""
        error: Exception = OSError("the commit is not in the log")
        try:
            write()
        except (DeltaError, OSError) as caught:
            error = caught
        if (version := self.find_commit(commit, since)) is None:
            check_lost_race(self.path, error)
        return version

    def find_commit(self, commit: str, since: int) -> int | None:
        """The version after `since` that carries this commit id."""
        return next((one.version for one in self.read_log(since) if one.commit == commit), None)

    def check_unmoved(self, table: DeltaVersion, claimed: TableClaim, partitions: tuple[str, ...]) -> None:
        """Raises Fenced where a token, OffsetGap where an offset is not the one of the claim any more."""
        newer = tuple(p for p in partitions if table.transaction(self._token_id(p)) != claimed.tokens[p])
        if newer:
            seen = {p: table.transaction(self._token_id(p)) for p in newer}
            raise Fenced(
                f"Commit of {', '.join(newer)} refused: the table has seen the tokens {seen}, mine are "
                f"{ ({p: claimed.tokens[p] for p in newer}) }. Nothing was written; the new owner goes on",
                partitions=newer,
            )
        anew = {
            p for one in self.read_log(claimed.version) if one.op == "retry" for p in one.ranges
        }  # their files, as they are
        at = {p: table.transaction(self._offset_id(p)) for p in partitions}
        moved = tuple(p for p in partitions if at[p] != claimed.offsets[p] or p in anew)
        if moved:
            raise OffsetGap(
                f"{self.path}: the offset of {', '.join(moved)} moved meanwhile (another run of the same owner), or its "
                f"files were taken anew. Nothing was written; the next run reads it again",
                partitions=moved,
            )


def check_lost_race(path: Path, error: Exception) -> None:
    """Returns where trying again can help: a lost race. Raises EnvironmentFailed where the disk or the store fails."""
    if isinstance(error, CommitFailedError) or "Metadata changed" in str(error):
        return
    raise EnvironmentFailed(
        f"{path} cannot be written ({describe_error(error)}). Check the disk; the next run goes on"
    ) from error


def make_add_action(file: DataFile) -> AddAction:
    """The file as the log names it."""
    return AddAction(file.path, file.size, {}, file.modified, True, file.statistics)


def _shown(tokens: Mapping[str, int]) -> str:
    return describe_commit(replace(Batch("", "", "", "", 0, dict.fromkeys(tokens, (0, 0)))), "", tokens)["rota.tokens"]
