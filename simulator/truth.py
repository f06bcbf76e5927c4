"""The true state, derived from the journal: owners, live workers, running work, and the load of each partition. It decodes
the bytes of the znodes itself, as docs/protocol.md describes them."""

import json
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rota.ids import worker_of
from simulator.journal import JournalServer, folder


@dataclass(frozen=True, slots=True)
class Change:
    """An own record that was written: the owner of the partition before and now (None: free), at which version and
    under which token."""

    partition: str
    before: str | None
    after: str | None
    version: int
    token: int


@dataclass(slots=True)
class Changes:
    """The writes since the last event. `checkpoints` and `parks` are the current records; None: removed."""

    owners: list[Change] = field(default_factory=list)
    checkpoints: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    parks: list[tuple[str, dict[str, object] | None]] = field(default_factory=list)
    published: bool = False
    chosen: bool = False  # a target was written
    controlled: bool = False  # a process took control, or published
    staffed: bool = False  # the live workers, their announcements, or operators' overrides changed


UNCHANGED = Changes()
KINDS = ("head", "assign", "workers", "live", "own", "checkpoints", "parked")
HEADER = 12  # bytes before each packed set: a mark, how many ids, a checksum


@dataclass(slots=True)
class Truth:
    """The state that the checker judges and the meter measures. `load` is the true load of each partition."""

    load: dict[str, float]
    owner: dict[str, str | None] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)  # the last worker that owned it
    lost_by_need: dict[str, bool] = field(default_factory=dict)  # whether that worker could not keep it
    live: dict[str, int] = field(default_factory=dict)  # incarnations with a session -> when they joined (czxid)
    dead: set[str] = field(default_factory=set)  # incarnations whose machine died, detected or not
    announced: dict[str, dict[str, Any]] = field(default_factory=dict)  # live incarnation -> its live record
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)  # worker -> its overrides
    epoch: int = 0
    slots: dict[str, list[tuple[int, frozenset[str]]]] = field(default_factory=dict)  # worker -> its targets by epoch
    held: Counter[str] = field(default_factory=Counter)  # partitions by incarnation
    working: dict[str, Counter[str]] = field(default_factory=dict)  # partition -> runs by incarnation
    doubly: set[str] = field(default_factory=set)  # partitions that runs of two incarnations work on now

    def take_in(self, server: JournalServer) -> Changes:
        """Return the changes since the last event, and empty the journal."""
        if not server.journal:
            return UNCHANGED
        changes = Changes()
        for path in dict.fromkeys(server.journal):
            kind, name = folder(path), path.rpartition("/")[2]
            changes.published |= kind == "head"
            changes.chosen |= kind == "assign"
            changes.controlled |= kind == "controller"
            changes.staffed |= kind in ("live", "workers")
            if kind not in KINDS:
                continue
            node = server.node(path)
            data = node.data if node is not None else b""
            if kind == "head" and data:
                self.epoch = json.loads(data)["epoch"]
            elif kind == "assign" and name != kind:
                self.slots[name] = read_slots(data) if data else []
            elif kind == "workers" and name != kind:
                self.overrides[name] = json.loads(data) if data else {}
            elif kind == "live" and "@" in name:
                if node is not None:
                    self.live[name], self.announced[name] = node.czxid, json.loads(data)
                else:
                    self.live.pop(name, None)
                    self.announced.pop(name, None)
            elif name not in self.load:
                continue
            elif kind == "own" and node is not None:
                changes.owners += self._own(name, json.loads(node.data)["incarnation"], node.version, node.mzxid)
            elif kind == "checkpoints" and node is not None:
                changes.checkpoints.append((name, json.loads(node.data)))
            elif kind == "parked":
                changes.parks.append((name, json.loads(node.data) if node is not None else None))
        server.journal.clear()
        return changes

    def _own(self, partition: str, after: str | None, version: int, token: int) -> list[Change]:
        before = self.owner.get(partition)
        if before is None and after is None:
            return []
        self.owner[partition] = after
        if before is not None:
            self.held[before] -= 1
        if after is not None:
            self.held[after] += 1
        return [Change(partition, before, after, version, token)]

    def targets(self) -> dict[str, frozenset[str]]:
        """Return worker -> its target at this epoch."""
        found = {w: [(e, names) for e, names in slots if e <= self.epoch] for w, slots in self.slots.items()}
        return {w: max(slots, key=lambda one: one[0])[1] for w, slots in found.items() if slots}

    def cap(self, worker: str) -> int | None:
        """Return the worker's maximum of partitions: the operator's, else the announced one; None: no bound."""
        cap = self.overrides.get(worker, {}).get("max_partitions")
        if cap is None and (newest := self.newest(worker)) is not None:
            cap = self.announced[newest]["max_partitions"]
        return None if cap is None else int(cap)

    def may_keep(self, worker: str) -> bool:
        """Return whether the worker could keep its partitions, apart from its cap: it is live, not leaving, not drained."""
        newest = self.newest(worker)
        leaves = newest is None or self.announced[newest]["leaving"]
        return not leaves and not self.overrides.get(worker, {}).get("draining", False)

    def newest(self, worker: str) -> str | None:
        """Return the live incarnation of the worker that joined last."""
        return max((i for i in self.live if worker_of(i) == worker), key=self.live.__getitem__, default=None)

    def workers(self) -> set[str]:
        """Return the workers with a live incarnation."""
        return {worker_of(i) for i in self.live if i not in self.dead}

    def serving(self, owner: str | None) -> bool:
        """Return whether this owner exists, is live, and is on a machine that runs."""
        return owner in self.live and owner not in self.dead

    def unowned(self) -> int:
        """Count the partitions without an owner, or with a dead one, detected or not."""
        return sum(1 for p in self.load if not self.serving(self.owner.get(p)))

    def begins(self, partition: str, incarnation: str) -> None:
        """Count a run of this incarnation that begins to work on the partition."""
        self.working.setdefault(partition, Counter())[incarnation] += 1
        self._count(partition)

    def ends(self, partition: str, incarnation: str) -> None:
        """Count the end of that work."""
        runs = self.working[partition]
        runs[incarnation] -= 1
        if runs[incarnation] <= 0:
            del runs[incarnation]
        if not runs:
            del self.working[partition]
        self._count(partition)

    def _count(self, partition: str) -> None:
        (self.doubly.add if len(self.working.get(partition, ())) > 1 else self.doubly.discard)(partition)


def read_slots(data: bytes) -> list[tuple[int, frozenset[str]]]:
    """Return the targets in a worker's node: a line of JSON with epoch and size of each, then the sets, front-coded and
    deflated."""
    line, _, rest = data.partition(b"\n")
    found = []
    for slot in json.loads(line)["slots"]:
        raw, rest = zlib.decompress(rest[HEADER : slot["bytes"]]), rest[slot["bytes"] :]
        names, name, at = set(), b"", 0
        while at < len(raw):
            name = name[: raw[at]] + raw[at + 2 : at + 2 + raw[at + 1]]
            names.add(name.decode())
            at += 2 + raw[at + 1]
        found.append((slot["epoch"], frozenset(names)))
    return found
