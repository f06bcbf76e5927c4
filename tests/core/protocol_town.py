"""Workers that decide alone, without clocks, stores and faults: targets, grabs and owners.

Only the decisions are real. A worker claims what is free or gone, and releases at once what it does not name.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rota.core import Partition, Worker
from rota.core.protocols.known_protocols import check_protocol, find_protocol
from rota.core.protocols.observation import Decision, Member, Observation

EVEN: list[tuple[str, dict[str, Any]]] = [
    ("claim", {}),
    ("race", {}),
    ("ordinal", {"slices": "spread"}),
    ("ordinal", {"slices": "sticky"}),
]
PUBLISHED: list[tuple[str, dict[str, Any]]] = [("claim", {"steal": "published"}), ("ordinal", {})]
HOPPING: tuple[str, dict[str, Any]] = ("race", {"decide": "fastest"})
EVERY = [*EVEN, *PUBLISHED, HOPPING]


@dataclass
class Town:
    """A group. `owners` are the own records; `targets` and `grabs` are what each worker wrote."""

    protocol: str
    partitions: tuple[Partition, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    targets: dict[str, frozenset[str]] = field(default_factory=dict)
    grabs: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    memories: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    replicas: dict[str, int] = field(default_factory=dict)
    paused: bool = False
    changes: int = 0  # of hands
    now: float = 0.0
    draw: float = 0.5

    def join(self, *names: str, **more: Any) -> None:
        """They are live from now on and own nothing."""
        for name in names:
            self.workers[name] = Worker(name, incarnation=f"{name}@{len(self.memories):016x}", **more)
            self.targets[name], self.memories[name] = frozenset(), {}

    def hold(self, held: Mapping[str, int]) -> None:
        """They join, and own so many each, the first ones first."""
        left = [p.id for p in self.partitions]
        for name, count in held.items():
            self.join(name)
            mine, left = left[:count], left[count:]
            self.targets[name] = frozenset(mine)
            self.owners |= dict.fromkeys(mine, name)

    def kill(self, name: str) -> None:
        """It is gone, with its grabs."""
        del self.workers[name], self.targets[name]
        self.grabs = {p: w for p, w in self.grabs.items() if w != name}
        self.owners = {p: w for p, w in self.owners.items() if w != name}

    def see(self, name: str) -> Observation:
        """What the worker sees."""
        mine, members = self.targets[name], {w: Member(self.workers[w], t) for w, t in self.targets.items()}
        theirs = {p for p in mine if (o := self.owners.get(p, name)) != name and p in self.targets[o]}
        seen = Observation(
            name, members, self.partitions, dict(self.grabs), paused=self.paused, now=self.now, draw=self.draw
        )
        owned = frozenset(p for p in mine if self.owners.get(p) == name)
        return replace(seen, owned=owned, contested=frozenset(theirs) - seen.asks, replicas=self.replicas.get(name))

    def decide(self, name: str, seen: Observation | None = None) -> Decision:
        """What the worker decides, now or by what it has seen; nothing changes."""
        decide = find_protocol(self.protocol)
        assert decide is not None
        return decide(seen or self.see(name), check_protocol(self.protocol, self.options), self.memories[name])

    def step(self, name: str, seen: Observation | None = None, writes: int = 5) -> bool:
        """The worker decides, now or by what it has seen, asks, names, lets go, releases and claims: so many of these, as if
        it had died then, or a reply had been lost. Whether anything changed."""
        before = (dict(self.targets), dict(self.grabs), dict(self.owners))
        said = self.decide(name, seen)
        self.memories[name] = said.memory
        lost = {p for p in said.grabs if self.grabs.get(p, name) != name}
        if writes >= 1:
            self.grabs |= dict.fromkeys(said.grabs - lost, name)
        if writes >= 2:
            self.targets[name] = said.target - lost
        if writes >= 3:
            self.grabs = {p: w for p, w in self.grabs.items() if w != name or p in said.grabs}
        if writes >= 4:
            self.owners = {p: w for p, w in self.owners.items() if w != name or p in self.targets[name]}
        if writes >= 5:
            self.changes += len(self.targets[name] - self.owners.keys())
            self.owners |= dict.fromkeys(self.targets[name] - self.owners.keys(), name)
        return before != (self.targets, self.grabs, self.owners)

    def settle(self, rounds: int = 40) -> int:
        """All workers step until none changes anything. Returns the number of rounds."""
        for number in range(rounds):
            self.now += 100.0
            changed = [self.step(name) for name in sorted(self.workers)]
            if not any(changed):
                return number
        raise AssertionError(f"not settled after {rounds} rounds: {self.targets}")

    def run(self, seconds: int) -> None:
        """All workers decide twice a second."""
        for _ in range(2 * seconds):
            self.now += 0.5
            for name in sorted(self.workers):
                self.step(name)

    @property
    def counts(self) -> list[int]:
        """How many each live worker owns, the most first."""
        found = Counter(self.owners.values())
        return sorted((found[w] for w in self.workers), reverse=True)


def town(protocol: str, partitions: int, **options: Any) -> Town:
    """A group without workers."""
    return Town(protocol, tuple(Partition(f"p:{n}", source="p") for n in range(partitions)), options)
