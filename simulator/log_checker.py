"""Judges the table's log, checkpoints and parking records.

- `doubled`, `lost`, `ahead`: the visible rows of a partition are those from 0 to its offset, each once.
- `offset`, `token`: neither decreases in the table.
- `stale`: no batch is committed under an older token than one in the table. `impostor`: a batch is committed by the
  incarnation that got its token, by the history of own records.
- `checkpoint`: never decreases, and is never ahead of the table. `unowned`: written under the token of the owner.
- `unreported`: no checkpoint is beyond a batch that no run reported.
- `misparked`: no run parks an offset that a newer owner has consumed. `freed`: no parking record is removed before the
  table is beyond its offset.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.memory_log import MemoryCommit, MemoryLog
from simulator.truth import Changes

TOKEN, OFFSET = "token", "offset"


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of a partition in `[start, end)`. `name` is the name of their file."""

    name: str
    partition: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """The metadata of a commit, read without the code that wrote it."""

    version: int
    op: str
    incarnation: str
    tokens: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, commit: MemoryCommit) -> "LoggedCommit":
        """Read the documented keys of the commit's metadata."""
        info = commit.info
        tokens, ranges = (json.loads(info.get(f"rota.{key}") or "{}") for key in ("tokens", "ranges"))
        return cls(
            info["version"],
            info.get("rota.op", ""),
            info.get("rota.incarnation", ""),
            tokens,
            {p: (start, end) for p, (start, end) in ranges.items()},
        )


@dataclass(slots=True)
class Seen:
    """The state of one partition after the commits and records that were read."""

    slices: dict[str, Slice] = field(default_factory=dict)  # the visible ones
    offset: int = 0
    token: int = 0
    claims: dict[int, str] = field(default_factory=dict)  # token -> incarnation
    owner: str | None = None
    checkpoint: int = 0
    unreported: dict[int, int] = field(default_factory=dict)  # start -> end of batches that no run reported yet
    park: int | None = None

    def token_of(self, incarnation: str) -> int:
        """Return the newest token of the incarnation; 0 without one."""
        return max((token for token, owner in self.claims.items() if owner == incarnation), default=0)


class LogChecker:
    """Reads new commits and records after every event, and calls `blame` for each breach."""

    def __init__(self, log: MemoryLog, partitions: tuple[str, ...], blame: Callable[[str, str], None]) -> None:
        self.log, self.blame = log, blame
        self.seen = {p: Seen() for p in partitions}
        self.reported: list[tuple[str, int, int]] = []
        self.parked_by: Callable[[str], str] = lambda _: ""  # the reason of a park -> the incarnation that wrote it
        self._read = 0

    @property
    def pending(self) -> bool:
        """Return whether a commit or a report is not judged yet."""
        return bool(self.reported) or self._read < len(self.log.commits)

    def after_event(self, changes: Changes) -> None:
        """Judge everything that was written since the last call."""
        for change in changes.owners:
            self.seen[change.partition].owner = change.after
            if change.after is not None:
                self.seen[change.partition].claims[change.token] = change.after
        while self._read < len(self.log.commits):
            self._fold(self.log.commits[self._read])
            self._read += 1
        for partition, start, end in self.reported:
            if self.seen[partition].unreported.pop(start, end) != end:
                self.blame("unreported", f"{partition}: the batch at {start} was reported with another end")
        self.reported.clear()
        for partition, checkpoint in changes.checkpoints:
            self._checkpoint(partition, checkpoint)
        for partition, park in changes.parks:
            self._park(partition, park)

    def _fold(self, commit: MemoryCommit) -> None:
        logged, adds = LoggedCommit.of(commit), tuple(_list_slices(commit))
        removed = set(commit.removes or ())
        touched = {one.partition for one in adds}
        for partition, seen in self.seen.items() if removed else ():
            gone = removed & seen.slices.keys()
            touched |= {partition} if gone else set()
            for name in gone:
                del seen.slices[name]
        whole = {p: not removed and self._follows(p, adds, logged) for p in touched}
        for one in adds:
            slices = self.seen[one.partition].slices
            if one.name in slices:
                self.blame("doubled", f"{one.partition}: the rows from {one.start} were committed twice")
            slices[one.name] = one
        if logged.op == "commit":
            self._batch(logged)
        for name, value in commit.sets.items():
            path, _, kind = name.rpartition("/")  # rota/<group>/<partition>/offset
            partition = path.partition("/")[2].partition("/")[2]
            if partition in self.seen and kind in (TOKEN, OFFSET):
                self._set(partition, kind, value)
        for partition in touched:
            if not whole[partition]:
                self._rows(partition, logged.version)

    def _set(self, partition: str, kind: str, value: int) -> None:
        seen = self.seen[partition]
        before = seen.token if kind == TOKEN else seen.offset
        if value < before:
            self.blame(kind, f"{partition} went back from {before} to {value}")
        if kind == TOKEN:
            seen.token = max(seen.token, value)
        else:
            seen.offset = value

    def _follows(self, partition: str, adds: tuple[Slice, ...], logged: LoggedCommit) -> bool:
        """Return whether the commit adds one slice, from the partition's former end to its new end."""
        seen, mine = self.seen[partition], [one for one in adds if one.partition == partition]
        return len(mine) == 1 and mine[0].start == seen.offset and mine[0].end == logged.ranges[partition][1]

    def _batch(self, logged: LoggedCommit) -> None:
        for partition, (start, end) in logged.ranges.items():
            seen, token = self.seen[partition], logged.tokens[partition]
            if token < seen.token:
                self.blame("stale", f"{partition} was written under token {token} after {seen.token}")
            seen.unreported[start] = end
            if seen.claims.get(token) != logged.incarnation:
                self.blame("impostor", f"{partition}: {logged.incarnation} wrote under token {token}")

    def _rows(self, partition: str, version: int) -> None:
        """Judge whether the slices cover the offsets from 0 to the partition's offset, each once."""
        seen, at = self.seen[partition], 0
        for one in sorted(seen.slices.values(), key=lambda s: (s.start, s.end)):
            if one.start < at:
                self.blame("doubled", f"{partition} has rows twice from {one.start} at version {version}")
            elif one.start > at:
                self.blame("lost", f"{partition} misses rows from {at} to {one.start} at version {version}")
            at = max(at, one.end)
        if at < seen.offset:
            self.blame("lost", f"{partition} misses rows from {at} to {seen.offset} at version {version}")
        elif at > seen.offset:
            self.blame(
                "ahead", f"{partition} has rows up to {at}, beyond its offset {seen.offset}, at version {version}"
            )

    def _checkpoint(self, partition: str, record: dict[str, Any]) -> None:
        seen, offset, token = self.seen[partition], record["offset"], record["token"]
        if seen.owner is None or seen.claims.get(token) != seen.owner or token != max(seen.claims):
            self.blame("unowned", f"{partition}'s checkpoint was written under {token}, it is owned by {seen.owner}")
        if offset < seen.checkpoint:
            self.blame("checkpoint", f"{partition} went back from {seen.checkpoint} to {offset}")
        if offset > seen.offset:
            self.blame("checkpoint", f"{partition} is at {offset}, ahead of the table at {seen.offset}")
        if hidden := [start for start, end in seen.unreported.items() if end <= offset]:
            self.blame(
                "unreported", f"{partition}'s checkpoint is at {offset}; no run reported the batch at {hidden[0]}"
            )
        seen.checkpoint = offset

    def _park(self, partition: str, record: dict[str, Any] | None) -> None:
        seen, before = self.seen[partition], self.seen[partition].park
        offset = record["offset"] if record is not None else None
        if offset is None and before is not None and before >= seen.offset:
            self.blame("freed", f"{partition} was parked at {before}, and is still at {seen.offset}")
        if record is not None and offset is not None and offset < seen.offset:
            writer = self.parked_by(record["reason"])
            if not writer or seen.token_of(writer) < seen.token:
                self.blame("misparked", f"{partition} was parked at {offset}, and is at {seen.offset}")
        seen.park = offset


def _list_slices(commit: MemoryCommit) -> Iterator[Slice]:
    """Yield the rows of each file that the commit adds, by the statistics of the file."""
    for file in commit.adds:
        bounds = json.loads(file.statistics)
        yield Slice(file.path, file.partition, bounds["minValues"]["_offset"], bounds["maxValues"]["_offset"] + 1)
