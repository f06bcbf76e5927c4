"""What the judge checks in the table's log, in checkpoints and in parking records.

- `doubled`, `lost`, `ahead`: the rows that readers see of a partition are those from 0 to its offset, each once.
- `offset`, `token`: neither goes back in the table.
- `stale`: no batch is committed under a token older than one that the table has seen. `impostor`: a batch is committed by
  the incarnation that holds its token, by the own records' history.
- `checkpoint`: never back, never ahead of the table. `unowned`: written under the token that owns the partition.
- `unreported`: no checkpoint is behind a batch that no run reported.
- `misparked`: no run parks what a newer owner has consumed. `freed`: no parking ends before the table is past it.
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
    """The rows of a partition from `start` to before `end`. `name` is that of their file."""

    name: str
    partition: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """What a commit records, read without the code that wrote it."""

    version: int
    op: str
    incarnation: str
    tokens: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, commit: MemoryCommit) -> "LoggedCommit":
        """By the documented keys of its metadata."""
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
    """What was folded of one partition."""

    slices: dict[str, Slice] = field(default_factory=dict)  # those that readers see
    offset: int = 0
    token: int = 0
    claims: dict[int, str] = field(default_factory=dict)  # token -> incarnation
    owner: str | None = None
    checkpoint: int = 0
    unreported: dict[int, int] = field(default_factory=dict)  # start -> end of batches that no run reported yet
    park: int | None = None

    def token_of(self, incarnation: str) -> int:
        """The newest token that the incarnation had; 0 without one."""
        return max((token for token, owner in self.claims.items() if owner == incarnation), default=0)


class LogChecker:
    """Reads what is new after every event, and blames."""

    def __init__(self, log: MemoryLog, partitions: tuple[str, ...], blame: Callable[[str, str], None]) -> None:
        self.log, self.blame = log, blame
        self.seen = {p: Seen() for p in partitions}
        self.reported: list[tuple[str, int, int]] = []
        self.parked_by: Callable[[str], str] = lambda _: ""  # the reason of a park -> the incarnation that wrote it
        self._read = 0

    @property
    def pending(self) -> bool:
        """Whether a commit or a telling is not judged yet."""
        return bool(self.reported) or self._read < len(self.log.commits)

    def after_event(self, changes: Changes) -> None:
        """What was written since the last call."""
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
        said, adds = LoggedCommit.of(commit), tuple(_list_slices(commit))
        removed = set(commit.removes or ())
        touched = {one.partition for one in adds}
        for partition, seen in self.seen.items() if removed else ():
            gone = removed & seen.slices.keys()
            touched |= {partition} if gone else set()
            for name in gone:
                del seen.slices[name]
        whole = {p: not removed and self._follows(p, adds, said) for p in touched}
        for one in adds:
            slices = self.seen[one.partition].slices
            if one.name in slices:
                self.blame("doubled", f"{one.partition}: the rows from {one.start} were committed twice")
            slices[one.name] = one
        if said.op == "commit":
            self._batch(said)
        for name, value in commit.sets.items():
            path, _, kind = name.rpartition("/")  # rota/<group>/<partition>/offset
            partition = path.partition("/")[2].partition("/")[2]
            if partition in self.seen and kind in (TOKEN, OFFSET):
                self._set(partition, kind, value)
        for partition in touched:
            if not whole[partition]:
                self._rows(partition, said.version)

    def _set(self, partition: str, kind: str, value: int) -> None:
        seen = self.seen[partition]
        before = seen.token if kind == TOKEN else seen.offset
        if value < before:
            self.blame(kind, f"{partition} went back from {before} to {value}")
        if kind == TOKEN:
            seen.token = max(seen.token, value)
        else:
            seen.offset = value

    def _follows(self, partition: str, adds: tuple[Slice, ...], said: LoggedCommit) -> bool:
        """Whether the commit adds one slice, from exactly where the partition ended to where it ends now."""
        seen, mine = self.seen[partition], [one for one in adds if one.partition == partition]
        return len(mine) == 1 and mine[0].start == seen.offset and mine[0].end == said.ranges[partition][1]

    def _batch(self, said: LoggedCommit) -> None:
        for partition, (start, end) in said.ranges.items():
            seen, token = self.seen[partition], said.tokens[partition]
            if token < seen.token:
                self.blame("stale", f"{partition} was written under token {token} after {seen.token}")
            seen.unreported[start] = end
            if seen.claims.get(token) != said.incarnation:
                self.blame("impostor", f"{partition}: {said.incarnation} wrote under token {token}")

    def _rows(self, partition: str, version: int) -> None:
        """That the slices lie one after the other, from 0 to the offset."""
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
    """The rows of each file that it adds, by the statistics of the file."""
    for file in commit.adds:
        said = json.loads(file.statistics)
        yield Slice(file.path, file.partition, said["minValues"]["_offset"], said["maxValues"]["_offset"] + 1)
