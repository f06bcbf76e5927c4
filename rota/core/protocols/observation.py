"""What a worker that decides alone sees, and what it decides: the frozen values of every such protocol.

Laws of every such protocol:
1. It only proposes. A decision names this worker's own target and the grabs that it shall hold. What owns (claim, release,
   wait, force, leave) is `reconcile.assigned`, unchanged; a wrong decision unbalances, it never makes two owners.
2. Level, not edge: the same observation and memory give the same decision. A grab that is not in the decision is let go.
3. Nobody names what a live worker names, unless he holds the grab of it: he asks for it. Whoever is asked drops it.
4. Whoever named in vain, because a live worker that names it too was first to own it, drops it, unless he asks for it.

A worker writes its target before it looks at its runs; a run enters itself before it reads that target. So whatever a target
dropped is released after its run, as with a published one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.core.constraints import matches
from rota.core.values import Partition, Worker


@dataclass(frozen=True, slots=True)
class Member:
    """A live worker, by its newest incarnation, and the target that it wrote in this life."""

    worker: Worker
    target: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """What one worker, `me`, sees. It is among the `members`, with the target that stands, whoever wrote that.

    `partitions` are in the order of the numbers in their ids. `grabs` say which live worker asks for a partition, or has
    an ordinal. `owned` is what its incarnation owns of its target, and `contested` what is named in vain (law 4). `now` is
    on its own monotonic clock, in seconds; `draw` is a random number from 0 to 1. `ordinal` and `replicas` are as the
    worker was started, None where they were not given.
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
        """This worker's target without what it named in vain, and without what another asks for."""
        asked = {p for p, worker in self.grabs.items() if worker != self.me}
        return self.mine.target - self.contested - asked

    @property
    def asks(self) -> frozenset[str]:
        """The grabs that this worker holds."""
        return frozenset(name for name, worker in self.grabs.items() if worker == self.me)

    def find_holders(self) -> dict[str, str]:
        """Partition -> the live worker that names it; of several the one that asks for it, else this one, if it does not
        name it in vain."""
        known = {p.id for p in self.partitions}
        holders: dict[str, str] = {}
        for name in sorted(self.members, key=str.encode):
            holders |= dict.fromkeys(self.members[name].target, name)
        holders |= dict.fromkeys(self.mine.target - self.contested, self.me)
        named = {p: worker for p, worker in self.grabs.items() if p in self.members[worker].target}
        return {p: worker for p, worker in (holders | named).items() if p in known}

    def find_free(self, wanted: Iterable[str], holders: Collection[str]) -> set[str]:
        """Of the wanted those that nobody names or asks for."""
        return {p for p in wanted if p not in holders and self.grabs.get(p, self.me) == self.me}

    def may_hold(self, partition: Partition, worker: Worker | None = None) -> bool:
        """Whether the worker (None: this one) has the labels that the partition requires, and no pin names another."""
        return matches(worker or self.mine.worker, (tuple(partition.requires.items()), partition.pin))


@dataclass(frozen=True, slots=True)
class Decision:
    """This worker's target, the grabs that it shall hold, and its memory for the next decision.

    `due` is when to decide again even if nothing changed, on the same clock. `pending`: something is on its way, so look
    again soon. `note` is what a person should know, one line; empty if nothing."""

    target: frozenset[str]
    grabs: frozenset[str] = frozenset()
    memory: Mapping[str, Any] = field(default_factory=dict)
    due: float | None = None
    pending: bool = False
    note: str = ""


Decide = Callable[[Observation, Mapping[str, Any], Mapping[str, Any]], Decision]
"""A protocol: what it sees, its options as checked, its memory -> what it decides. Pure."""
