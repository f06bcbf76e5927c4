"""What a worker that decides alone observes and decides: the frozen values of all such protocols.

Laws of all such protocols:
1. A protocol only proposes. A decision names this worker's own target and the grabs that it shall hold. Ownership
   (claim, release, wait, force, leave) is `reconcile.assigned`, unchanged. A wrong decision unbalances, and never makes
   two owners.
2. Level, not edge: the same observation and memory give the same decision. A grab that is not in the decision is
   released.
3. A worker does not name a partition that another live worker names, unless it holds the partition's grab. The grab
   asks the other worker for the partition, and the other worker drops it.
4. A worker that named a partition in vain, because another live worker named and owned it first, drops the partition,
   unless it holds the partition's grab.

A worker writes its target before it reads its runs, and a run registers itself before it reads that target. So a
partition that the target dropped is released after its run ends, as under a published target.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.core.constraints import matches
from rota.core.values import Partition, Worker


@dataclass(frozen=True, slots=True)
class Member:
    """A live worker in its newest incarnation, and the target that it wrote in this incarnation."""

    worker: Worker
    target: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """What one worker, `me`, observes. It is among the `members`, with its current target, regardless of the writer.

    `partitions` are in the order of the numbers in their ids. `grabs` map a partition, or an ordinal, to the live
    worker that holds its grab. `owned` is the part of its target that its incarnation owns, and `contested` what it
    names in vain (law 4). `now` is in seconds on its own monotonic clock; `draw` is a random number from 0 to 1.
    `ordinal` and `replicas` are the worker's start options, None if not given.
    """

    me: str
    members: Mapping[str, Member]
    partitions: tuple[Partition, ...]
    grabs: Mapping[str, str] = field(default_factory=dict)
    owned: frozenset[str] = frozenset()
    contested: frozenset[str] = frozenset()
    paused: bool = False
    now: float = 0.0
    draw: float = 0.0
    ordinal: int | None = None
    replicas: int | None = None

    @property
    def mine(self) -> Member:
        """This worker."""
        return self.members[self.me]

    @property
    def kept(self) -> frozenset[str]:
        """This worker's target without the partitions that it names in vain or that another worker asks for."""
        asked = {p for p, worker in self.grabs.items() if worker != self.me}
        return self.mine.target - self.contested - asked

    @property
    def asks(self) -> frozenset[str]:
        """The grabs that this worker holds."""
        return frozenset(name for name, worker in self.grabs.items() if worker == self.me)

    def find_holders(self) -> dict[str, str]:
        """Maps each named partition to its live worker. If several workers name it, the one with the grab counts, else
        this one.

        This worker does not count for a partition that it names in vain.
        """
        known = {p.id for p in self.partitions}
        holders: dict[str, str] = {}
        for name in sorted(self.members, key=str.encode):
            holders |= dict.fromkeys(self.members[name].target, name)
        holders |= dict.fromkeys(self.mine.target - self.contested, self.me)
        named = {p: worker for p, worker in self.grabs.items() if p in self.members[worker].target}
        return {p: worker for p, worker in (holders | named).items() if p in known}

    def find_free(self, wanted: Iterable[str], holders: Collection[str]) -> set[str]:
        """The wanted partitions that no live worker names or asks for."""
        return {p for p in wanted if p not in holders and self.grabs.get(p, self.me) == self.me}

    def may_hold(self, partition: Partition, worker: Worker | None = None) -> bool:
        """Whether the worker (None: this one) has the labels that the partition requires, and no pin names another."""
        return matches(worker or self.mine.worker, (tuple(partition.requires.items()), partition.pin))


@dataclass(frozen=True, slots=True)
class Decision:
    """This worker's target, the grabs that it shall hold, and its memory for the next decision.

    `due` is when to decide again if nothing changes, on the same clock. `pending`: a change is in progress, so the next
    observation should come soon. `note` is one line for an operator, or empty.
    """

    target: frozenset[str]
    grabs: frozenset[str] = frozenset()
    memory: Mapping[str, Any] = field(default_factory=dict)
    due: float | None = None
    pending: bool = False
    note: str = ""


Decide = Callable[[Observation, Mapping[str, Any], Mapping[str, Any]], Decision]
"""A protocol: what it sees, its options as checked, its memory -> what it decides. Pure."""
