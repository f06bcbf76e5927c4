"""The results of reading the tree: records with the versions that a compare-and-set names."""

from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from rota.coordination.records import Live, Record, Slots
from rota.coordination.store import Node

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Read(Generic[R]):
    """A record and the node that it was read from."""

    record: R
    node: Node

    @property
    def version(self) -> int:
        """The dataVersion that a compare-and-set names."""
        return self.node.version


@dataclass(frozen=True, slots=True)
class LiveView:
    """A live incarnation. `record` None: it is alive, but its record cannot be read."""

    incarnation: str
    worker: str
    session: int
    czxid: int
    record: Live | None


@dataclass(frozen=True, slots=True)
class OwnView:
    """An own record: the owner of the partition (None: free), the version to compare with, and the fencing token.

    `written`: when it was last written, in server seconds.
    """

    incarnation: str | None
    version: int
    token: int
    written: float = inf


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a worker since `epoch`.

    `previous` is the epoch in the other slot, if any; `version` is the assign node's, which a claim checks. `written`: when
    that node was last written, in server seconds.
    """

    epoch: int
    partitions: frozenset[str]
    previous: int | None
    version: int
    written: float = inf


@dataclass(frozen=True, slots=True)
class RunView:
    """A consuming run that is alive. `name` is its node's. `since`: when it was last written, in server seconds."""

    name: str
    run_id: str
    session: int
    incarnation: str
    partitions: tuple[str, ...]
    czxid: int
    since: float = inf


def target_of(slots: Slots, head: int, node: Node) -> Target | None:
    """The effective slot under `head` as a target; None without one."""
    effective = slots.effective(head)
    if effective is None:
        return None
    previous = next((s.epoch for s in slots.slots if s.epoch != effective.epoch), None)
    return Target(effective.epoch, effective.partitions, previous, node.version, node.mtime / 1000)
