"""The controller: look -> plan -> publish, level-triggered, as the rebalance job does it, through the product's own code.

It remembers nothing: what it decided from, when to look again, and the assignor's memory are found in the tree, so each
round may as well be another process.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rota.coordination.group_state import GroupState
from rota.coordination.memory import MemoryStore
from rota.coordination.publication import Publication, publication_of, publish, take_control
from rota.coordination.snapshot import read_basis, read_snapshot
from rota.coordination.store import Node, Op
from rota.core import Policy
from rota.errors import CoordinationError
from rota.sim.timeline import Life

if TYPE_CHECKING:
    from rota.sim.simulation import Simulation


ANOTHER = 3.0  # seconds until another process takes the place of a controller that died


class Died(Exception):
    """The process of the controller is gone, between two of its writes."""


class MortalStore(MemoryStore):
    """A store whose process dies when `left` more writes have reached the server; None: it lives."""

    left: int | None = None

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        """As the store's, while it lives."""
        if self.left == 0:
            raise Died
        if self.left is not None:
            self.left -= 1
        return super().multi(ops)


class Controller:
    """Looks once a second; decides again where the basis is not that of the head, or its due has passed."""

    def __init__(self, sim: "Simulation") -> None:
        self.sim, self.deaths = sim, 0
        self._born()

    def _born(self) -> None:
        self.store = MortalStore(self.sim.server)
        self.tree = GroupState(self.store, self.sim.group)
        self.stirred = -1  # what had happened at the last look
        self.due: float | None = None

    def life(self) -> Life:
        """One look a second; where the start is given, from `begin` on."""
        yield self.sim.world.begin if self.sim.world.initial else 1.0
        while True:
            try:
                if self._needed():
                    yield from self.rebalance()
            except CoordinationError:
                self.stirred = -1
            except Died:
                self.deaths += 1
                self.store.close()
                self._born()
                yield ANOTHER
            yield 1.0

    def _needed(self) -> bool:
        stirred = self.sim.server.stirred
        late = self.due is not None and self.due <= self.sim.now
        if stirred == self.stirred and not late:
            return False
        self.stirred = stirred
        seen = read_basis(self.tree)
        self.due = seen.head.record.due
        return seen.moved or (self.due is not None and self.due <= self.sim.now)

    def rebalance(self) -> Life:
        """One round; somebody else may act between its steps."""
        term = take_control(self.tree)
        yield self.sim.late("")
        look = read_snapshot(self.tree)
        meta = look.basis.meta
        policy = Policy(meta.budget, meta.cooldown, meta.grace)
        result = self.sim.parts.plan(
            look.snapshot, meta.assignor, meta.options, look.basis.controller.record.memory, policy
        )
        yield self.sim.late("")
        self.sim.checker.check_plan(result)
        publication = publication_of(look, result, result.measures.reason or "rebalanced")
        self.sim.parts.publish(self.tree, term, publication)
        self.due = result.due

    def settle(self, owners: Mapping[str, str]) -> None:
        """Publishes a target that nobody planned."""
        target = {w: frozenset(p for p, o in owners.items() if o == w) for w in set(owners.values())}
        publish(self.tree, take_control(self.tree), Publication(target))
