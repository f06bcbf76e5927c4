"""A table in memory that promises what the Delta table promises, for simulation and tests.

Facts it keeps (each seen on delta-rs): a commit conflicts if an offset or a token that it sets, or a slice that it removes,
was written after the version that it was made on; else it lands on top, however old that version is; a commit may land
although its call fails. Whoever lost a commit reads what is there and decides.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import count

from rota.errors import EnvironmentFailed, Fenced, ForeignTable, OffsetGap
from rota.ledger.values import Batch, LogEntry, Position, TableClaim

TRIES = 100
OFFSET, TOKEN = "offset", "token"
Mark = tuple[str, str]  # a partition, and OFFSET or TOKEN


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of a partition from `start` to before `end`. `name` is unique in the table."""

    name: int
    partition: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: what it says of itself, what it sets, and the rows that it adds and removes."""

    said: LogEntry
    owner: str
    incarnation: str
    sets: Mapping[Mark, int]
    adds: tuple[Slice, ...]
    removes: tuple[Slice, ...]

    def find_brought(self, partition: str) -> Slice | None:
        """The rows of the batch itself; a replay also adds anew what stays of the slices that it cuts."""
        start, end = self.said.ranges.get(partition, (0, 0))
        return next((s for s in self.adds if s.partition == partition and start <= s.start and s.end <= end), None)


class Conflicted(Exception):
    """Somebody else wrote what the commit would write, since the version that it was made on."""


class MemoryTable:
    """One table, as its owner sees it: a pipeline of a group. `pause` is called before each effect that others can see;
    `fault` says of a commit's call whether it fails "before" or "after" the commit landed, or not at all (None)."""

    def __init__(
        self,
        group: str = "g",
        pause: Callable[[], None] = lambda: None,
        fault: Callable[[], str | None] = lambda: None,
        owner: str = "",
    ) -> None:
        self.group, self.pause, self.fault, self.owner = group, pause, fault, owner
        self.commits: list[Commit] = []
        self.slices: dict[str, dict[int, Slice]] = {}  # partition -> those that readers see
        self._marks: dict[Mark, tuple[int, int]] = {}  # the version that set it last, and its value
        self._removed: set[int] = set()
        self._names = count()
        self.refused = 0  # claims and commits that a newer owner had overtaken, counted by partition

    def seen_by(self, group: str, owner: str) -> "MemoryTable":
        """The same table, as somebody else sees it."""
        other = copy(self)
        other.group, other.owner = group, owner
        return other

    # --- what readers see

    @property
    def location(self) -> str:
        """Where a person would find it."""
        return "memory"

    @property
    def version(self) -> int:
        """The newest version; -1 where nobody wrote yet."""
        return len(self.commits) - 1

    def require(self) -> None:
        """See `Table.require`."""
        if not self.commits:
            raise EnvironmentFailed("There is no table in memory, and there was one. Nothing was written")

    def read_positions(self, partitions: tuple[str, ...]) -> Mapping[str, Position]:
        """See `Table.read_positions`."""
        self.pause()
        self._identify()
        table = "memory" if self.commits else None
        return {p: Position(self._value(p, OFFSET), self._value(p, TOKEN), table) for p in partitions}

    def read_schema(self) -> str | None:
        """See `Table.read_schema`."""
        return "{}" if self.commits else None

    def find_foreign_commits(self, partitions: Iterable[str]) -> Mapping[str, str]:  # noqa: ARG002
        """Nobody but rota writes here."""
        return {}

    def read_log(self, since: int = -1) -> tuple[LogEntry, ...]:
        """See `Table.read_log`."""
        return tuple(commit.said for commit in reversed(self.commits[since + 1 :]))

    def read_recent_log(self) -> tuple[LogEntry, ...]:
        """See `Table.read_recent_log`."""
        return self.read_log(self.version - 500)

    def read_log_back_to(self, offsets: Mapping[str, int]) -> tuple[LogEntry, ...]:
        """See `Table.read_log_back_to`."""
        found: list[LogEntry] = []
        missing = dict(offsets)
        for commit in reversed(self.commits) if offsets else ():
            if commit.said.op not in ("commit", "skip"):
                continue
            if any(commit.said.goes_beyond(p, at) for p, at in offsets.items()):
                found.append(commit.said)
            for p in [p for p in missing if p in commit.said.ranges and commit.said.ranges[p][0] <= missing[p]]:
                del missing[p]
            if not missing:
                break
        return tuple(found)

    def read_samples(self, versions: Mapping[str, int], most: int) -> Mapping[str, tuple[Mapping[str, object], ...]]:
        """See `Table.read_samples`."""
        there = {p: self.commits[version] for p, version in versions.items() if version < len(self.commits)}
        added = {p: commit.find_brought(p) for p, commit in there.items()}
        return {p: tuple({"_offset": o} for o in range(s.start, s.end)[:most]) for p, s in added.items() if s}

    def count_rows(self, partitions: Iterable[str]) -> Mapping[str, int]:
        """See `Table.count_rows`."""
        return {p: sum(one.end - one.start for one in self.slices.get(p, {}).values()) for p in partitions}

    # --- what writers do

    def explain_harm(self, most: int | None = None) -> str:  # noqa: ARG002
        """See `Table.explain_harm`."""
        return ""

    def claim(self, tokens: Mapping[str, int], starts: Mapping[str, int], *, known: bool = False) -> TableClaim:
        """See `Table.claim`."""
        for _ in range(TRIES):
            self.pause()
            self._identify()
            if known:
                self.require()
            base, newer = self.version, self.find_newer(tokens)
            self.refused += len(newer)
            mine = {p: t for p, t in tokens.items() if p not in newer}
            sets = {(p, TOKEN): t for p, t in mine.items() if self._value(p, TOKEN) != t}
            began = (*mine, *(starts.keys() - tokens.keys()))
            sets |= {(p, OFFSET): starts[p] for p in sorted(began) if self._value(p, OFFSET) is None}
            if not sets and self.commits:
                return self._make_claim(mine, newer)
            self.pause()
            try:
                self._land(base, Batch(f"claim {base}", "", "", "", 0, {}, op="claim"), mine, sets)
            except (Conflicted, EnvironmentFailed):
                continue
        raise EnvironmentFailed(f"no claim in {TRIES} tries. Too many writers at once; try again")

    def commit(self, claim: TableClaim, batch: Batch, follows: bool = True) -> LogEntry:
        """See `Table.commit`."""
        moved = tuple(p for p, (start, _) in batch.ranges.items() if claim.offsets[p] != start)
        if moved and follows:
            raise OffsetGap(f"{moved} do not start where the table ends. Read the offsets again", partitions=moved)
        sets = {(p, OFFSET): end for p, (_, end) in batch.ranges.items()}
        sets |= {(p, TOKEN): claim.tokens[p] for p in batch.ranges}
        base, since = claim.version, claim.version
        for _ in range(TRIES):
            self.pause()
            self._identify()
            try:
                return self._land(base, batch, claim.tokens, sets, _list_written(batch))
            except (Conflicted, EnvironmentFailed) as error:
                self.pause()
                if (landed := self.find_commit(batch.id, since)) is not None:
                    return landed
                if isinstance(error, EnvironmentFailed):
                    raise
            base = self.version
            self._check_unmoved(claim, batch)
        raise EnvironmentFailed(f"no commit in {TRIES} tries. Nothing of this batch was written; try again")

    def replace(self, batch: Batch) -> LogEntry:
        """See `Table.replace`."""
        batch = replace(batch, op="replay")
        first = self.version
        for _ in range(TRIES):
            self.pause()
            self._identify()
            base = self.version
            beyond = tuple(p for p, (_, end) in batch.ranges.items() if end > (self._value(p, OFFSET) or 0))
            if beyond:
                raise OffsetGap(f"{beyond} were not consumed so far. Give a range that ends before", partitions=beyond)
            adds, removes = self._replace_slices(batch)
            self.pause()
            try:
                return self._land(base, batch, {}, {}, adds, removes)
            except (Conflicted, EnvironmentFailed):
                self.pause()
                if (landed := self.find_commit(batch.id, first)) is not None:
                    return landed
        raise EnvironmentFailed(f"no replay in {TRIES} tries. Nothing was replaced; try again")

    def append(self, batch: Batch) -> LogEntry:
        """See `Table.append`."""
        self.pause()
        self._identify()
        return self._land(self.version, replace(batch, op="quarantine replay"), {}, {}, _list_written(batch))

    def compact(self, version: int) -> None:
        """Its slices are small."""

    # --- what a commit is compared with

    def find_newer(self, tokens: Mapping[str, int]) -> dict[str, int]:
        """The partitions of which the table has seen a greater token: partition -> that token."""
        return {p: seen for p, t in tokens.items() if (seen := self._value(p, TOKEN)) is not None and seen > t}

    def find_moved(self, offsets: Mapping[str, int]) -> tuple[str, ...]:
        """The partitions that are not at these offsets."""
        return tuple(p for p, at in offsets.items() if self._value(p, OFFSET) != at)

    def find_commit(self, commit: str, since: int) -> LogEntry | None:
        """The entry after `since` that carries this commit id."""
        return next((c.said for c in self.commits[since + 1 :] if c.said.commit == commit), None)

    def _check_unmoved(self, claim: TableClaim, batch: Batch) -> None:
        if newer := tuple(self.find_newer({p: claim.tokens[p] for p in batch.ranges})):
            self.refused += len(newer)
            raise Fenced(f"Commit of {newer} refused: the table has seen a newer owner", partitions=newer)
        later = [one.said for one in self.commits[claim.version + 1 :] if one.said.op == "retry"]
        anew = tuple(p for p in batch.ranges if any(p in one.ranges for one in later))  # their data, as it is now
        if moved := self.find_moved({p: claim.offsets[p] for p in batch.ranges}) or anew:
            raise OffsetGap(f"The offset of {moved} moved meanwhile. The next run reads it again", partitions=moved)

    def _make_claim(self, mine: Mapping[str, int], newer: Mapping[str, int]) -> TableClaim:
        offsets = {p: self._value(p, OFFSET) or 0 for p in mine}
        return TableClaim(None, self.version, "memory", "{}", mine, offsets, newer)

    def _identify(self) -> None:
        """Raises ForeignTable where somebody else made the table."""
        if self.commits and (self.commits[0].said.group, self.commits[0].owner) != (self.group, self.owner):
            raise ForeignTable("The table in memory is somebody else's. Nothing was written")

    def _replace_slices(self, batch: Batch) -> tuple[list[tuple[str, int, int]], list[Slice]]:
        """The slices that stand in place of those that hold rows of the batch's ranges."""
        adds = _list_written(batch)
        removes: list[Slice] = []
        for p, (start, end) in batch.ranges.items():
            touched = [s for s in self.slices.get(p, {}).values() if s.start < end and s.end > start]
            removes += touched
            adds += [(p, s.start, start) for s in touched if s.start < start]
            adds += [(p, end, s.end) for s in touched if s.end > end]
        return adds, removes

    def _value(self, partition: str, kind: str) -> int | None:
        mark = self._marks.get((partition, kind))
        return mark[1] if mark else None

    def _land(
        self,
        base: int,
        batch: Batch,
        tokens: Mapping[str, int],
        sets: Mapping[Mark, int],
        adds: Iterable[tuple[str, int, int]] = (),
        removes: Iterable[Slice] = (),
    ) -> LogEntry:
        """Appends a commit that was made on version `base`. Raises Conflicted; EnvironmentFailed where its call fails."""
        fault = self.fault()
        if fault == "before":
            raise EnvironmentFailed("the commit was lost. The next run goes on")
        removes = tuple(removes)
        if any(m in self._marks and self._marks[m][0] > base for m in sets) or any(
            s.name in self._removed for s in removes
        ):
            raise Conflicted
        version = len(self.commits)
        added = tuple(Slice(next(self._names), *one) for one in adds)
        kept = {p: t for p, t in tokens.items() if p in batch.ranges} if batch.ranges else tokens
        said = LogEntry(
            version=version,
            at=0.0,
            op=batch.op,
            group=self.group,
            commit=batch.id,
            run=batch.run,
            attempt=batch.attempt,
            epoch=batch.epoch,
            tokens=kept,
            ranges=batch.ranges,
            rows=batch.rows,
            bad=batch.bad,
            seconds=batch.seconds,
        )
        self.commits.append(Commit(said, self.owner, batch.incarnation, sets, added, removes))
        self._marks |= {mark: (version, value) for mark, value in sets.items()}
        for one in removes:
            self._removed.add(one.name)
            del self.slices[one.partition][one.name]
        for one in added:
            self.slices.setdefault(one.partition, {})[one.name] = one
        if fault == "after":
            raise EnvironmentFailed("the commit's answer was lost. The next run goes on")
        return said


def _list_written(batch: Batch) -> list[tuple[str, int, int]]:
    """The rows of the batch: those of its ranges of which it has a file."""
    there = {file.partition for file in batch.files}
    return [(p, start, end) for p, (start, end) in batch.ranges.items() if p in there]
