"""The judge of the hand-over simulation: it reads the table's log and the own records, and shares no code with the actors.

Invariants, checked after every event that wrote something:
- rows: the visible offsets of a partition are 0 .. offset-1, each once (nothing doubled, nothing lost, no hole);
- offset and token of a partition never go back in the table;
- stale: no batch is committed under a token older than one the table has seen;
- impostor: a batch is committed by the incarnation that holds that token, by the own records' history;
- own: a record is claimed only by a live incarnation and released only by its owner, its version grows by one;
- uninvited: a claim is of a partition that the claimant's target names (or named when it looked); robbed: what is said
  to be taken from a dead incarnation is not taken from a live one;
- overfull: no incarnation ever owns more partitions than its worker's cap;
- usurped: of two live incarnations of one worker the older never takes from the newer;
- checkpoint: never back, never ahead of the table; unowned: written under the token that owns;
- untold: no checkpoint stands behind a batch that nobody told of;
- misparked: nobody parks what a newer owner (without faults: anybody) has consumed already;
- freed: no park ends before the table is past it;
- foreign, restored: a run never takes a hand-over for a restored ZooKeeper or table.
And in a world without faults (`rude`): nobody is fenced, forced, outrun, refused or broken.
At the end (`unsettled` is empty): what is placed is owned by its worker's newest incarnation, everything is consumed,
and the checkpoints say so.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.sim.handover.table import Commit, Table


@dataclass(slots=True)
class Seen:
    """What the judge has folded of one partition."""

    rows: Counter[int] = field(default_factory=Counter)
    offset: int = 0
    token: int = 0
    claims: dict[int, str] = field(default_factory=dict)  # token -> incarnation
    owner: str | None = None
    own_version: int = -1
    own_mzxid: int = -1
    checkpoint: int = 0
    checkpoint_mzxid: int = -1
    untold: dict[int, int] = field(default_factory=dict)  # start -> end of batches that nobody told of yet
    park: int | None = None
    park_mzxid: int = -1


class Checker:
    """Counts damage by kind; `damage` is empty as long as every law held."""

    def __init__(self, table: Table, partitions: tuple[str, ...], cap: int) -> None:
        self.table, self.seen, self.cap = table, {p: Seen() for p in partitions}, cap
        self.damage: Counter[str] = Counter()
        self.said: list[str] = []
        self._read = 0
        self._files: dict[int, tuple[str, tuple[int, ...]]] = {}

    def blame(self, kind: str, what: str) -> None:
        """Note damage, with a line that helps to find it."""
        self.damage[kind] += 1
        self.said.append(f"{kind}: {what}")

    def own(
        self,
        partition: str,
        owner: str | None,
        version: int,
        mzxid: int,
        live: Mapping[str, int],
        invited: frozenset[str],
    ) -> None:
        """Note an own record as it is after an event that wrote it; `invited` are the workers whose slots name it, `live`
        the live incarnations with their czxid."""
        seen = self.seen[partition]
        if owner is not None and owner.rpartition("@")[0] not in invited:
            self.blame("uninvited", f"{partition} was claimed by {owner}, wanted on {sorted(invited)}")
        twins = (
            owner is not None and seen.owner is not None and owner.rpartition("@")[0] == seen.owner.rpartition("@")[0]
        )
        if twins and live.get(owner or "", 0) < live.get(seen.owner or "", 0):
            self.blame("usurped", f"{partition} was taken from {seen.owner} by its older twin {owner}")
        if version != seen.own_version + 1:
            self.blame("own", f"{partition} went from version {seen.own_version} to {version}")
        if owner is not None and owner not in live:
            self.blame("own", f"{partition} was claimed by {owner}, which is not live")
        if owner is not None and owner == seen.owner:
            self.blame("own", f"{partition} was claimed again by its own owner {owner}")
        if owner is not None:
            seen.claims[mzxid] = owner
        seen.owner, seen.own_version, seen.own_mzxid = owner, version, mzxid
        if owner is not None and (held := sum(one.owner == owner for one in self.seen.values())) > self.cap:
            self.blame("overfull", f"{owner} holds {held} with {partition}, its cap is {self.cap}")

    def checkpoint(self, partition: str, offset: int, token: int) -> None:
        """Note a checkpoint as it is after an event that wrote it."""
        seen = self.seen[partition]
        if token != seen.own_mzxid or seen.owner is None:
            self.blame("unowned", f"{partition}'s checkpoint was written under {token}, owned under {seen.own_mzxid}")
        if offset < seen.checkpoint:
            self.blame("checkpoint", f"{partition} went back from {seen.checkpoint} to {offset}")
        if offset > seen.offset:
            self.blame("checkpoint", f"{partition} is at {offset}, ahead of the table at {seen.offset}")
        if hidden := [start for start, end in seen.untold.items() if end <= offset]:
            self.blame(
                "untold", f"{partition}'s checkpoint is at {offset}, and nobody told of the batch at {hidden[0]}"
            )
        seen.checkpoint = offset

    def told(self, partition: str, start: int, end: int) -> None:
        """Note that a run told of a batch; more than once is no harm."""
        self.commits()
        if self.seen[partition].untold.pop(start, end) != end:
            self.blame("untold", f"{partition}: the batch at {start} was told with another end")

    def parked(self, partition: str, offset: int | None, token: int = 0) -> None:
        """Note the offset of a park that was written, and under which token, or that there is none any more."""
        seen = self.seen[partition]
        if offset is None and seen.park is not None and seen.park >= seen.offset:
            self.blame("freed", f"{partition} was parked at {seen.park}, and is still at {seen.offset}")
        if offset is not None and offset < seen.offset and token < seen.token:
            self.blame("misparked", f"{partition} was parked at {offset}, and is at {seen.offset}")
        seen.park = offset

    def commits(self) -> None:
        """Fold the log entries that are new since the last call."""
        for commit in self.table.log[self._read :]:
            self._fold(commit)
        self._read = len(self.table.log)

    def _fold(self, commit: Commit) -> None:
        touched = {f.partition for f in commit.adds}
        for name in commit.removes:
            partition, offsets = self._files.pop(name)
            touched.add(partition)
            self.seen[partition].rows.subtract(offsets)
        for file in commit.adds:
            self._files[file.name] = (file.partition, file.offsets)
            self.seen[file.partition].rows.update(file.offsets)
        for app, value in commit.transactions.items():
            partition, _, kind = app.partition("/")
            touched.add(partition)
            self._transaction(partition, kind, value)
        if commit.facts["what"] == "batch":
            self._batch(commit)
        for partition in touched:
            self._rows(partition, commit.version)

    def _transaction(self, partition: str, kind: str, value: int) -> None:
        seen = self.seen[partition]
        before = seen.offset if kind == "offset" else seen.token
        if value < before:
            self.blame(kind, f"{partition} went back from {before} to {value}")
        if kind == "offset":
            seen.offset = value
        else:
            seen.token = max(seen.token, value)

    def _batch(self, commit: Commit) -> None:
        tokens: Mapping[str, int] = commit.facts["tokens"]  # type: ignore[assignment]
        for partition, token in tokens.items():
            seen = self.seen[partition]
            if token < seen.token:
                self.blame("stale", f"{partition} was written under token {token} after {seen.token}")
            seen.token = max(seen.token, token)
            start, end = commit.facts["ranges"][partition]  # type: ignore[index]
            seen.untold[start] = end
            if seen.claims.get(token) != commit.facts["incarnation"]:
                self.blame("impostor", f"{partition}: {commit.facts['incarnation']} wrote under token {token}")

    def _rows(self, partition: str, version: int) -> None:
        seen = self.seen[partition]
        rows = +seen.rows
        if doubled := sum(n - 1 for n in rows.values() if n > 1):
            self.blame("doubled", f"{partition} has {doubled} rows twice at version {version}")
        if lost := sum(1 for offset in range(seen.offset) if offset not in rows):
            self.blame("lost", f"{partition} misses {lost} rows at version {version}")
        if any(offset >= seen.offset for offset in rows):
            self.blame("ahead", f"{partition} has rows beyond its offset {seen.offset} at version {version}")

    def unsettled(self, latest: Mapping[str, int], target: Mapping[str, str], newest: Mapping[str, str]) -> list[str]:
        """What is not at rest yet, a line each."""
        lines = []
        for partition, seen in self.seen.items():
            worker = target.get(partition)
            if worker is None:
                lines.append(f"{partition} is not placed")
            elif seen.owner != newest.get(worker):
                lines.append(f"{partition} is owned by {seen.owner}, wanted {newest.get(worker)}")
            elif seen.offset != latest[partition] or seen.checkpoint != seen.offset:
                lines.append(
                    f"{partition}: {latest[partition]} there, {seen.offset} in the table, {seen.checkpoint} noted"
                )
        return lines
