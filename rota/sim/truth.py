"""What really is the case, kept from the journal: who owns, who lives, who works, how heavy everything is."""

import json
from collections import Counter
from dataclasses import dataclass, field

from rota.ids import worker_of
from rota.sim.journal import JournalServer, folder


@dataclass(frozen=True, slots=True)
class Change:
    """An own record that was written: who owned the partition before and owns it now (None: free), and its version."""

    partition: str
    before: str | None
    after: str | None
    version: int


@dataclass(slots=True)
class Truth:
    """The state that the checker judges and the meter measures. `load` is the true load of each partition."""

    load: dict[str, float]
    owner: dict[str, str | None] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)  # the last worker that owned it
    lost_by_need: dict[str, bool] = field(default_factory=dict)  # whether that worker had to give it up
    live: set[str] = field(default_factory=set)  # incarnations with a session
    dead: set[str] = field(default_factory=set)  # incarnations whose machine died, known or not
    held: Counter[str] = field(default_factory=Counter)  # partitions by incarnation
    working: dict[str, Counter[str]] = field(default_factory=dict)  # partition -> runs by incarnation
    doubly: set[str] = field(default_factory=set)  # partitions that runs of two incarnations work on now
    published: list[str] = field(default_factory=list)

    def take_in(self, server: JournalServer) -> list[Change]:
        """What changed since the last event; the journal is empty afterwards."""
        changes: list[Change] = []
        for path in server.journal:
            kind, name = folder(path), path.rpartition("/")[2]
            if kind == "own" and name in self.load:
                node = server.node(path)
                if node is not None and (change := self._own(name, node.data, node.version)) is not None:
                    changes.append(change)
            elif kind == "live" and "@" in name:
                (self.live.add if server.node(path) is not None else self.live.discard)(name)
            elif kind == "head":
                self.published.append(path)
        server.journal.clear()
        return changes

    def _own(self, partition: str, data: bytes, version: int) -> Change | None:
        before, after = self.owner.get(partition), json.loads(data)["owner"]
        if before == after:
            return None
        self.owner[partition] = after
        if before is not None:
            self.held[before] -= 1
        if after is not None:
            self.held[after] += 1
        return Change(partition, before, after, version)

    def workers(self) -> set[str]:
        """The workers with a living incarnation."""
        return {worker_of(i) for i in self.live - self.dead}

    def serving(self, owner: str | None) -> bool:
        """Whether this owner is somebody, alive, and on a machine that runs."""
        return owner in self.live and owner not in self.dead

    def unowned(self) -> int:
        """Partitions whose owner is nobody, or dead, noticed or not."""
        return sum(1 for p in self.load if not self.serving(self.owner.get(p)))

    def begins(self, partition: str, incarnation: str) -> None:
        """A run of this incarnation begins to work on the partition."""
        self.working.setdefault(partition, Counter())[incarnation] += 1
        self._count(partition)

    def ends(self, partition: str, incarnation: str) -> None:
        """That run no longer works on it."""
        runs = self.working[partition]
        runs[incarnation] -= 1
        if runs[incarnation] <= 0:
            del runs[incarnation]
        if not runs:
            del self.working[partition]
        self._count(partition)

    def _count(self, partition: str) -> None:
        (self.doubly.add if len(self.working.get(partition, ())) > 1 else self.doubly.discard)(partition)
