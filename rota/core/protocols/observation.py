"""The frozen values that a worker without a controller observes and decides, for all such protocols.

Laws of all such protocols:
1. A protocol only proposes. A decision names this worker's own target and the grabs that it shall hold. Ownership (claim,
   release, wait, force, leave) is `reconcile.assigned`, unchanged. A wrong decision makes the group less even, but never
   makes two owners.
2. Level, not edge: the same observation and memory give the same decision. A grab that is not in the decision is
   released.
3. If another live worker names a partition, this worker names it only while holding the partition's grab. The grab
   requests the partition from the other worker, which then drops it.
4. A partition is contested if this worker names it, but another live worker named and owned it first. This worker drops a
   contested partition, unless it holds the partition's grab.

A worker writes its target before it reads its runs, and a run registers itself before it reads that target. Therefore a
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
    """What one worker, `me`, observes. `me` is among the `members`, with its current target, even if an earlier
    incarnation wrote that target.

    `partitions` are in the order of the numbers in their ids. `grabs` maps a partition, an ordinal or a challenge to the
    live worker that holds its grab. `owned` is the part of its target that the incarnation of `me` owns, and `contested`
    the contested part (law 4). `now` is in seconds on the monotonic clock of `me`; `draw` is a random number from 0 to 1.
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
        """The member that is this worker."""
        return self.members[self.me]

    @property
    def kept(self) -> frozenset[str]:
        """This worker's target without contested partitions and those that another worker asks for."""
        asked = {p for p, worker in self.grabs.items() if worker != self.me}
        return self.mine.target - self.contested - asked

    @property
    def asks(self) -> frozenset[str]:
        """The grabs that this worker holds."""
        return frozenset(name for name, worker in self.grabs.items() if worker == self.me)

    def find_holders(self) -> dict[str, str]:
        """Map each partition that live workers name to one of these workers: to the worker with its grab, else to this
        worker if it names the partition uncontested, else to the worker with the last id."""
        known = {p.id for p in self.partitions}
        holders: dict[str, str] = {}
        for name in sorted(self.members, key=str.encode):
            holders |= dict.fromkeys(self.members[name].target, name)
        holders |= dict.fromkeys(self.mine.target - self.contested, self.me)
        named = {p: worker for p, worker in self.grabs.items() if p in self.members[worker].target}
        return {p: worker for p, worker in (holders | named).items() if p in known}

    def find_free(self, wanted: Iterable[str], holders: Collection[str]) -> set[str]:
        """Return the wanted partitions that no live worker names and no other worker asks for."""
        return {p for p in wanted if p not in holders and self.grabs.get(p, self.me) == self.me}

    def may_hold(self, partition: Partition, worker: Worker | None = None) -> bool:
        """Return whether the worker (None: this one) has the required labels and no pin names another worker."""
        return matches(worker or self.mine.worker, (tuple(partition.requires.items()), partition.pin))


@dataclass(frozen=True, slots=True)
class Decision:
    """This worker's target, the grabs that it shall hold, and its memory for the next decision.

    `due` is when to decide again if nothing changes, on the clock of the observation. `pending`: a change is in progress,
    so the next observation should come soon. `note` is one line for an operator, or empty.
    """

    target: frozenset[str]
    grabs: frozenset[str] = frozenset()
    memory: Mapping[str, Any] = field(default_factory=dict)
    due: float | None = None
    pending: bool = False
    note: str = ""


Decide = Callable[[Observation, Mapping[str, Any], Mapping[str, Any]], Decision]
"""A protocol: what it sees, its options as checked, its memory -> what it decides. Pure."""
