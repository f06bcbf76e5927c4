"""The controller: the shipped `observe` and `rebalance`, as Dagster's sensor and job call them, over a store that stops
between two calls.

It remembers nothing: what it decided from, when to look again, and the assignor's memory are found in the tree, so each
round may as well be another process.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rota.coordination.group_state import GroupState
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.store import Node, Op
from rota.errors import CoordinationError
from rota.group.rebalance import observe, rebalance
from simulator.journal import SteppedStore
from simulator.timeline import Life, steps, wait

if TYPE_CHECKING:
    from simulator.simulation import Simulation


ANOTHER = 3.0  # seconds until another process takes the place of a controller that died


class Died(Exception):
    """The process of the controller is gone, between two of its writes."""


class MortalStore(SteppedStore):
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
    """Looks once a second, where something was written or its time has come, and rebalances where that is due."""

    def __init__(self, sim: "Simulation") -> None:
        self.sim, self.deaths = sim, 0
        self._begin()

    def _begin(self) -> None:
        self.store = MortalStore(self.sim.server, lambda: wait(self.sim.late("")))
        self.tree = GroupState(self.store, self.sim.group)
        self.stirred = -1  # what had happened at the last look
        self.due: float | None = None

    def life(self) -> Life:
        """One look a second; where the start is given, from `begin` on."""
        return steps(self._live)

    def _live(self) -> None:
        wait(self.sim.world.begin if self.sim.world.initial else 1.0)
        while True:
            try:
                if self._is_needed():
                    rebalance(self.tree, "sim")
            except CoordinationError:
                self.stirred = -1
            except Died:
                self.deaths += 1
                self.store.close()
                self._begin()
                wait(ANOTHER)
            wait(1.0)

    def _is_needed(self) -> bool:
        """Whether a rebalance is due. As the sensor does, it reads again only where something may have changed."""
        stirred = self.sim.server.stirred
        if stirred == self.stirred and not (self.due is not None and self.due <= self.sim.server.clock()):
            return False
        self.stirred = stirred
        seen = observe(self.tree, slots=True)
        self.due = seen.due
        return seen.needed

    def settle(self, owners: Mapping[str, str]) -> None:
        """Publishes a target that no plan contains."""
        tree = GroupState(self.sim.server.connect(), self.sim.group)
        target = {w: frozenset(p for p, o in owners.items() if o == w) for w in set(owners.values())}
        publish(tree, take_control(tree), Publication(target))
