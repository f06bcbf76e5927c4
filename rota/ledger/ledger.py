"""The table as a ledger: one commit of its log has the data files, offsets and tokens of all partitions of a batch.

Law: a commit is a compare-and-set of the offset and token of each of its partitions. The ledger reads the offsets on the
version that is the commit's base. The log refuses the commit if one of its transactions was set since that version, or if
the log no longer has that version: a copy in the table's place is another table. After any failure the ledger opens the
table again. The log, tokens and offsets decide whether the commit succeeded or is fenced; a conflict alone does not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rota.deltalog.port import Draft, Log, Version
from rota.errors import EnvironmentFailed, Fenced, ForeignTable, OffsetGap
from rota.ledger import schema
from rota.ledger.change import commit_change, read_back
from rota.ledger.entries import describe_commit, describe_step, parse_entries
from rota.ledger.foreign_commits import ForeignCommit, find_foreign_commit
from rota.ledger.gone_files import explain_gone
from rota.ledger.identity import Identity, belongs_to, count_adoptions
from rota.ledger.port import Files
from rota.ledger.undoing import plan_undo
from rota.ledger.values import Batch, DataFile, LogEntry, Position, TableClaim, join_ranges

SETTINGS = {"delta.logRetentionDuration": "interval 36500 days"}  # the log proves every offset, so it is kept
RECENT = 500  # versions that `read_recent_log` reads


@dataclass(frozen=True, slots=True)
class Ledger:
    """One table, `main` or `quarantine`, of a pipeline of a group; `meta` is the random id in the group's meta znode.

    If operators may change its rows (`editable`), the ledger searches for no foreign commits. Each method opens the newest
    version. Each may raise EnvironmentFailed, and ForeignTable for another owner's table; then nothing was written.
    """

    log: Log
    files: Files
    group: str
    meta: str
    pipeline: str = ""
    editable: bool = False

    # --- reading

    @property
    def location(self) -> str:
        """The path or URL of the table."""
        return self.log.location

    def open(self) -> Version | None:
        """Return the newest version; None if there is no table."""
        return self.log.open()

    def open_or_make(self) -> Version:
        """Return the newest version. If there is no table, create one with `_partition` and `_offset` alone."""
        return self.open() or self.log.create(schema.FIRST, SETTINGS)

    def open_existing(self) -> Version:
        """Return the newest version of a table that existed before. Raises EnvironmentFailed if there is none."""
        table = self.open()
        if table is None:
            raise EnvironmentFailed(
                f"There is no table at {self.location}, and there was one. Nothing was written. Is its disk mounted? If the "
                f"table was dropped on purpose, type: rota adopt"
            )
        return table

    def read_schema(self) -> str | None:
        """Return the columns of the table, JSON; None if there is no table."""
        table = self.open()
        return table.schema if table else None

    def read_positions(self, partitions: tuple[str, ...]) -> Mapping[str, Position]:
        """Return the position of each of these partitions. Does not create a missing table."""
        if table := self.open():
            self.check_owner(table)
        return self.read_positions_in(table, partitions)

    def read_positions_in(self, table: Version | None, partitions: Iterable[str]) -> Mapping[str, Position]:
        """Return the positions at this version, without a check of the owner."""
        if table is None:
            return dict.fromkeys(partitions, Position(None, None, None))
        at, its = table.transaction, table.table
        return {
            p: Position(at(self._offset_id(p)), at(self._token_id(p)), its, at(self._leader_id(p))) for p in partitions
        }

    def read_log(self, since: int = -1) -> tuple[LogEntry, ...]:
        """Return the commits after version `since`, newest first."""
        table = self.open()
        newer = table.number - since if table else 0
        return tuple(parse_entries(read_back(table, newer))) if table and newer > 0 else ()

    def read_recent_log(self) -> tuple[LogEntry, ...]:
        """Return the commits of the newest `RECENT` versions, newest first."""
        table = self.open()
        return tuple(parse_entries(read_back(table, RECENT))) if table else ()

    def read_log_back_to(self, offsets: Mapping[str, int]) -> tuple[LogEntry, ...]:
        """Return the commits and skips, newest first, that moved a partition beyond its offset in `offsets`."""
        table, limit = self.open() if offsets else None, 64
        while table:
            entries = read_back(table, limit)
            found = tuple(one for one in parse_entries(entries) if one.op in ("commit", "skip"))
            reached = {p for one in found for p, (start, _) in one.ranges.items() if start <= offsets.get(p, start)}
            if reached >= set(offsets) or len(entries) < limit:
                return tuple(one for one in found if any(one.goes_beyond(p, at) for p, at in offsets.items()))
            limit *= 8
        return ()

    def list_partitions(self) -> set[str]:
        """Return each partition that the log names."""
        return {p for one in self.read_log() for p in (*one.tokens, *one.ranges)}

    def explain_harm(self, most: int | None = None) -> str:
        """Return the change by another program that stops the pipeline, with the next step; empty if there is none. Of
        the files, the newest `most`, or all, are checked."""
        if (table := self.open()) is None:
            return ""
        try:
            table.check_writable()
        except (ForeignTable, EnvironmentFailed) as error:
            return str(error)
        harm = explain_gone(self.location, table.files(), self.files.exists, most)
        found = self.find_foreign_commit(table)
        return harm or (self._explain_foreign(table, found) if found else "")

    # --- the owner

    @property
    def owner(self) -> Identity:
        """The owner that the table must have."""
        return Identity(self.group, self.meta, self.pipeline)

    def check_owner(self, table: Version) -> None:
        """Raise ForeignTable if another group, ZooKeeper or pipeline owns the table, or if it has rows and no owner."""
        if self.owner.owns(table) or not (count_adoptions(table) or table.files().num_rows):
            return
        raise ForeignTable(self.owner.refusal(table))

    def check_adoptable(self) -> None:
        """Raise ForeignTable if another pipeline owns the table, or if a rename is under way."""
        if table := self.open():
            self._check_adoptable_version(table)

    def find_foreign_commits(self, partitions: Iterable[str]) -> dict[str, str]:
        """Return partition -> the foreign commit that changed rows, with the next step and the partition's offsets that a
        RESTORE removed; empty if there is none."""
        table = self.open()
        if table is None or (found := self.find_foreign_commit(table)) is None:
            return {}
        past = self.read_log(found.back_to) if found.back_to is not None else ()
        taken = [one for one in past if one.op in ("commit", "replay")]  # skipped offsets have no rows
        spans = {p: join_ranges(one.ranges[p] for one in taken if p in one.ranges) for p in partitions}
        said = self._explain_foreign(table, found)
        return {
            p: f"{said} (of {p}: {', '.join(f'{start} to {end}' for start, end in of)})" if of else said
            for p, of in spans.items()
        }

    def find_foreign_commit(self, table: Version) -> ForeignCommit | None:
        """Return the newest foreign commit that changed rows and was not adopted; None if the table is unclaimed."""
        return None if self.editable or count_adoptions(table) is None else find_foreign_commit(table)

    def _explain_foreign(self, table: Version, found: ForeignCommit) -> str:
        what = f"{self.location}: version {found.version} ({found.operation}) changed rows, and rota did not make it"
        if found.only_moves and plan_undo(table, self.files, found.moves).undone == found.moves:
            return (
                f"{what}. It states that it only moved rows to other files, and now rows are gone or there twice. To undo "
                f"it, type: rota adopt"
            )
        return f"{what}. Look at it, then: rota adopt; a replay of its offsets brings back rows and takes second copies away"

    def check_untouched(self, table: Version) -> None:
        """Raise ForeignTable if a foreign commit changed rows and was not adopted. See also `Version.check_writable`."""
        table.check_writable()
        if found := self.find_foreign_commit(table):
            raise ForeignTable(f"{self._explain_foreign(table, found)}. Nothing was written")

    def check_held(self, its: str) -> None:
        """Raise ForeignTable or EnvironmentFailed unless the table has this id and its rows are as rota left them."""
        table = self.open_existing()
        self.check_owner(table)
        if table.table != its:
            raise ForeignTable(f"{self.location} is another table than a moment ago")
        self.check_untouched(table)

    def adopt(self) -> int:
        """Take the table over, as it is, for this group and ZooKeeper.

        The former owner is stopped at its next claim or commit. Foreign commits that state `dataChange: false`, but changed
        the number of rows, are undone (see `plan_undo`).

        Returns: the greatest token that the table has seen.
        Raises: ForeignTable as `check_adoptable` does, because this pipeline would read all its data again into the table
            of another one; ForeignTable if a foreign commit came meanwhile.
        """

        looked: list[ForeignCommit | None] = []

        def make(_: int) -> Draft[bool] | bool:
            table = self.open_existing()
            self._check_adoptable_version(table)
            found = self.find_foreign_commit(table)
            if looked and found and looked != [found]:  # no operator has seen this commit
                raise ForeignTable(f"{self._explain_foreign(table, found)}. Nothing was written")
            looked[:] = [found]
            if self.owner.owns(table) and not found:
                return True
            undo = plan_undo(table, self.files, found.moves if found else ())
            took = bool(found and (found.took or found.moves != undo.undone))
            taken = self.owner.taken((count_adoptions(table) or 0) + 1)
            draft = self._draft_step(table, "adopt", {**taken, **self._carry_former(table)})
            said, adds = {**draft.said, "rota.took": str(int(took))}, tuple(map(self.files.describe, undo.adds))
            return replace(draft, said=said, adds=adds, removes=undo.removes, changes=False, result=True)

        commit_change(self.log, make)
        return max((t for one in self.read_log() for t in one.tokens.values()), default=0)

    def _check_adoptable_version(self, table: Version) -> None:
        if count_adoptions(table) is not None and not belongs_to(table, self.pipeline):
            raise ForeignTable(self.owner.refusal(table))

    def _carry_former(self, table: Version) -> dict[str, int]:
        """Return transactions with the offsets of the group that wrote last, under this group's name and under the former
        group's. The latter conflict with each commit that the former group began before the adoption."""
        past = self.read_log()
        if not past or past[0].group == self.group:
            return {}  # the next claim of this group sets the tokens, and so conflicts with earlier commits
        former = replace(self, group=past[0].group)
        offsets = {p: table.transaction(former._offset_id(p)) for p in self.list_partitions()}
        return {one._offset_id(p): at for one in (self, former) for p, at in offsets.items() if at is not None}

    def identity_moves(self, table: Version) -> dict[str, int]:
        """Return the transactions that make this pipeline the owner; empty if it already is."""
        return {} if self.owner.owns(table) else self.owner.taken(count_adoptions(table) or 1)

    # --- claim and commit

    def claim(self, tokens: Mapping[str, int], starts: Mapping[str, int], *, known: bool = False) -> TableClaim:
        """Claim partitions. This fences every older owner: the table refuses commits on earlier claims.

        `starts` is partition -> first offset. It is written for each partition that the table does not know, claimed or
        not. If there is no table, create one, or raise EnvironmentFailed if it was `known` to exist.
        """

        def make(_: int) -> Draft[TableClaim] | TableClaim:
            table = self.open_existing() if known else self.open_or_make()
            self.check_owner(table)
            self.check_untouched(table)
            seen = {p: table.transaction(self._token_id(p)) for p in tokens}
            newer = self.find_newer(seen, tokens)
            mine = {p: t for p, t in tokens.items() if p not in newer}
            heard = {p: table.transaction(self._offset_id(p)) for p in (*mine, *(starts.keys() - tokens.keys()))}
            wanted = {self._token_id(p): t for p, t in mine.items() if seen[p] != t}
            wanted |= {self._offset_id(p): starts[p] for p, at in heard.items() if at is None}
            if not wanted:
                return self._make_claim(table, mine, {p: heard[p] or 0 for p in mine}, newer)
            return self._draft_step(table, "claim", {**wanted, **self.identity_moves(table)}, mine)

        return commit_change(self.log, make)

    def find_newer(self, seen: Mapping[str, int | None], tokens: Mapping[str, int]) -> dict[str, int]:
        """Return partition -> token, of those in `seen` that are greater than in `tokens`."""
        return {p: token for p, token in seen.items() if token is not None and token > tokens[p]}

    def renew(self, claimed: TableClaim, partitions: tuple[str, ...]) -> TableClaim:
        """Return the same claim on the newest version. Raises Fenced or OffsetGap: see `check_unmoved`."""
        table = self.open_existing()
        self.check_owner(table)
        self.check_untouched(table)
        self.check_unmoved(table, claimed, partitions)
        tokens = {p: claimed.tokens[p] for p in partitions}
        return self._make_claim(table, tokens, {p: claimed.offsets[p] for p in partitions}, {})

    def commit(self, claimed: TableClaim, batch: Batch, follows: bool = True) -> LogEntry:
        """Commit the batch exactly once, even if a reply is lost, and return its entry in the log.

        With `follows` each range must start at the claim's offset. Raises Fenced if a newer owner claimed a partition,
        OffsetGap if an offset moved, BadTransform if a column's type changed. After an error nothing was written.
        """
        moved = {p: r for p, r in batch.ranges.items() if claimed.offsets[p] != r[0]}
        if moved and follows:
            raise OffsetGap(
                f"{self.location}: {moved} do not start at { ({p: claimed.offsets[p] for p in moved}) }. Read the offsets "
                f"again",
                partitions=tuple(moved),
            )
        partitions = tuple(batch.ranges)

        def make(tries: int) -> Draft[LogEntry] | LogEntry:
            claim = self.renew(claimed, partitions) if tries else claimed
            if not tries and self._find_added(claim.columns, batch):
                claim = self.renew(claimed, partitions)  # raises if the run is fenced: then it adds no column
            table: Any = claim.snapshot
            if added := self._find_added(claim.columns, batch):
                return Draft(table, columns=added)
            self.check_on_disk(batch.files)
            sets = {self._offset_id(p): end for p, (_, end) in batch.ranges.items()}
            sets |= {self._token_id(p): claim.tokens[p] for p in partitions}
            sets |= self._leader_moves(table, batch)
            said = {**self.describe(batch, claim.tokens), "rota.base": str(table.number)}
            return Draft(table, sets, said, batch.files, commit=batch.id)

        return commit_change(self.log, make)

    def append(self, batch: Batch) -> LogEntry:
        """Add the bad records of a replay without moving an offset or a token. Of an offset's bad records, those of the
        newest attempt count."""
        batch = replace(batch, op="quarantine replay")

        def make(_: int) -> Draft[LogEntry] | LogEntry:
            table = self.open_or_make()
            self.check_owner(table)
            if added := self._find_added(table.schema, batch):
                return Draft(table, columns=added)
            self.check_on_disk(batch.files)
            return Draft(table, self.identity_moves(table), self.describe(batch, {}), batch.files, commit=batch.id)

        return commit_change(self.log, make)

    def check_on_disk(self, files: Iterable[DataFile]) -> None:
        """Raise EnvironmentFailed if one of these files is gone: a commit that names it would make the table unreadable."""
        if gone := next((f.path for f in files if not self.files.exists(f.path)), ""):
            raise EnvironmentFailed(
                f"{gone}, which this run wrote into {self.location}, is gone: another copy took its place. Nothing was "
                f"written; try again"
            )

    def check_unmoved(self, table: Version, claimed: TableClaim, partitions: tuple[str, ...]) -> None:
        """Raise Fenced as `check_tokens`, OffsetGap as `check_offsets`."""
        self.check_tokens(table, claimed, partitions)
        self.check_offsets(table, claimed, partitions)

    def check_tokens(self, table: Version, claimed: TableClaim, partitions: tuple[str, ...]) -> None:
        """Raise Fenced if a token changed since the claim."""
        seen = {p: table.transaction(self._token_id(p)) for p in partitions}
        if newer := tuple(p for p in partitions if seen[p] != claimed.tokens[p]):
            raise Fenced(
                f"Commit of {', '.join(newer)} refused: the table has seen the tokens { ({p: seen[p] for p in newer}) }, "
                f"mine are { ({p: claimed.tokens[p] for p in newer}) }. Nothing was written; the new owner goes on",
                partitions=newer,
            )

    def check_offsets(self, table: Version, claimed: TableClaim, partitions: tuple[str, ...]) -> None:
        """Raise OffsetGap if an offset changed since the claim, or if an operator retried the partition."""
        retried = (one for one in self.read_log(claimed.version) if one.op == "retry")
        anew = {p for one in retried for p in one.ranges}  # a retry accepts the present state of their files
        at = {p: table.transaction(self._offset_id(p)) for p in partitions}
        if moved := tuple(p for p in partitions if at[p] != claimed.offsets[p] or p in anew):
            raise OffsetGap(
                f"{self.location}: the offset of {', '.join(moved)} moved meanwhile (another run of the same owner), or its "
                f"files were taken anew. Nothing was written; the next run reads it again",
                partitions=moved,
            )

    # --- what a commit states

    def describe(self, batch: Batch, tokens: Mapping[str, int]) -> dict[str, str]:
        """Return the `commitInfo` of the commit of this batch."""
        return describe_commit(batch, self.group, tokens, self.pipeline)

    def describe_step(self, op: str, tokens: Mapping[str, int] | None = None) -> dict[str, str]:
        """Return the `commitInfo` of a commit without a batch."""
        return describe_step(op, self.group, self.pipeline, tokens)

    def position_moves(self, partition: str, position: Position) -> dict[str, int]:
        """Return the transactions that set the partition's offset, token and leader epoch, unless they are None."""
        ids = self._offset_id(partition), self._token_id(partition), self._leader_id(partition)
        known = zip(ids, (position.offset, position.token, position.leader_epoch), strict=True)
        return {name: number for name, number in known if number is not None}

    def _leader_moves(self, table: Version, batch: Batch) -> dict[str, int]:
        """Return the transactions that set leader epochs. If the batch, such as a skip, has none, -1 replaces the old."""
        had = {p for p in batch.ranges if table.transaction(self._leader_id(p)) is not None}
        return {self._leader_id(p): batch.leader_epochs.get(p, -1) for p in had | batch.leader_epochs.keys()}

    def _draft_step(
        self, table: Version, op: str, sets: Mapping[str, int], tokens: Mapping[str, int] | None = None
    ) -> Draft[Any]:
        return Draft(table, sets, {**self.describe_step(op, tokens), "rota.base": str(table.number)})

    def _make_claim(
        self, table: Version, tokens: Mapping[str, int], offsets: Mapping[str, int], newer: Mapping[str, int]
    ) -> TableClaim:
        return TableClaim(table, table.number, table.table, table.schema, tokens, offsets, newer)

    def _find_added(self, columns: str, batch: Batch) -> str:
        """Return the columns that the batch adds to the table. Raises BadTransform for a changed type."""
        return schema.find_added(columns, (f.columns for f in batch.files))

    def _offset_id(self, partition: str) -> str:
        return f"rota/{self.group}/{partition}/offset"

    def _token_id(self, partition: str) -> str:
        return f"rota/{self.group}/{partition}/token"

    def _leader_id(self, partition: str) -> str:
        return f"rota/{self.group}/{partition}/leader-epoch"
