"""Runs and tables of a simulated world that have a guard less: a table that compares less, a tree that lies to a run, a
process that hears its run too late. What ships has no switch for that.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rota.coordination.group_state import GroupState
from rota.coordination.store import Check, Op
from rota.coordination.views import OwnView, RunView, Target
from rota.dataplane.ports import Ports
from rota.deltalog.port import Log, Version
from rota.ids import worker_of
from rota.ledger.change import find_commit
from rota.ledger.ledger import Ledger
from rota.ledger.values import Batch, LogEntry, Position, TableClaim
from simulator.actors import Event, RunProcess
from simulator.table import MemoryTable
from tests.ablations import Change, among, where, writes

# --- tables


class Tokenless(MemoryTable):
    """Compares no tokens."""

    def find_newer(self, seen: Mapping[str, int | None], tokens: Mapping[str, int]) -> dict[str, int]:
        """No owner is newer."""
        return {}

    def check_tokens(self, table: Version, claimed: TableClaim, partitions: tuple[str, ...]) -> None:
        """None moved."""


class Offsetless(MemoryTable):
    """Compares no offsets."""

    def check_offsets(self, table: Version, claimed: TableClaim, partitions: tuple[str, ...]) -> None:
        """None moved."""


class Unfenced(Tokenless, Offsetless):
    """Compares neither tokens nor offsets."""


class TwoHandles(MemoryTable):
    """Commits on another version than the one on which the offset was read."""

    def commit(self, claimed: TableClaim, batch: Batch, follows: bool = True) -> LogEntry:
        """See `Ledger.commit`."""
        newest = replace(claimed, snapshot=self.log.open())
        return super().commit(newest, batch, follows)


class OneId(MemoryTable):
    """Every commit of a run has the same id."""

    def commit(self, claimed: TableClaim, batch: Batch, follows: bool = True) -> LogEntry:
        """See `Ledger.commit`."""
        return super().commit(claimed, replace(batch, id=batch.run), follows)


def find_far_back(log: Log, commit: str, since: int) -> LogEntry | None:
    """Looks for a commit in all that ever was."""
    return find_commit(log, commit, -1)


class Remembered:
    """A table whose positions stay for one run what they were when it read them first."""

    def __init__(self, table: Ledger) -> None:
        self.table = table
        self.positions: dict[str, Position] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def read_positions(self, partitions: tuple[str, ...]) -> Mapping[str, Position]:
        """See `Ledger.read_positions`."""
        self.positions = {**self.table.read_positions(partitions), **self.positions}
        return {p: self.positions[p] for p in partitions}


# --- trees of runs


class Owned(GroupState):
    """Reports that a worker owns everything that any worker owns."""

    incarnation = ""

    def owned(self, partitions: Iterable[str] | None = None) -> dict[str, OwnView]:
        """See `GroupState.owned`."""
        views = super().owned(partitions)
        return {p: replace(v, incarnation=self.incarnation) if v.incarnation else v for p, v in views.items()}


class Wanted(GroupState):
    """Reports that every target names everything that any worker owns."""

    def target(self, worker: str) -> Target | None:
        """See `GroupState.target`."""
        seen = super().target(worker)
        return replace(seen, partitions=frozenset(self.owned())) if seen is not None else None


class Alone(GroupState):
    """Reports no other run."""

    def runs(self, of: Container[str] | None = None) -> tuple[RunView, ...]:
        """See `GroupState.runs`."""
        return ()


class Early(GroupState):
    """Reports own records and the target as they were before the run's node was there."""

    def read_early(self, partitions: tuple[str, ...], worker: str) -> None:
        """What `owned` and `target` say from now on."""
        self.early, self.early_target = super().owned(partitions), super().target(worker)

    def owned(self, partitions: Iterable[str] | None = None) -> dict[str, OwnView]:
        """See `GroupState.owned`."""
        return {p: self.early[p] for p in partitions or () if p in self.early}

    def target(self, worker: str) -> Target | None:
        """See `GroupState.target`."""
        return self.early_target


# --- runs


class RunWithoutOwn(RunProcess):
    """Does not look at the owner of a partition."""

    def tree(self) -> GroupState:
        """The group as the run sees it."""
        tree = Owned(self.store, self.stage.group)
        tree.incarnation = self.incarnation
        return tree


class RunWithoutTarget(RunProcess):
    """Does not look at the target."""

    def tree(self) -> GroupState:
        """The group as the run sees it."""
        return Wanted(self.store, self.stage.group)


class RunWithoutElder(RunProcess):
    """Does not look at other runs of its incarnation."""

    def tree(self) -> GroupState:
        """The group as the run sees it."""
        return Alone(self.store, self.stage.group)


class RunNodeLater(RunProcess):
    """Reads its right before its node is there."""

    def tree(self) -> GroupState:
        """The group as the run sees it."""
        tree = Early(self.store, self.stage.group)
        tree.read_early(self.partitions, worker_of(self.incarnation))
        return tree


class RunHeardLater(RunProcess):
    """A batch is reported after its checkpoint."""

    def events(self) -> Iterator[Event]:
        """What the run reports, each when it reports the next."""
        before: Event | None = None
        for event in super().events():
            if before is not None:
                yield before
            before = event
        if before is not None:
            yield before


class RunThatRemembers(RunProcess):
    """Does not look at the table again before it parks."""

    def ports(self) -> Ports:
        """What it works with."""
        ports = super().ports()
        return replace(ports, main=Remembered(ports.main))


# --- stores


def no_right_to_park(op: Op, ops: object) -> Op | None:
    """A partition is parked whatever its owner is."""
    return None if isinstance(op, Check) and (among(op.path, "own") or among(op.path, "runs")) else op


NO_RIGHT: Change = where(no_right_to_park, writes("parked"))
