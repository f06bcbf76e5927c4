"""The controller: calls the shipped `observe` and `rebalance`, as Dagster's sensor and job do.

Other events happen between two calls to its store. It has no state: the basis of the last decision, the time of the next one
and the assignor's memory are in ZooKeeper, so each round could be another process.
"""

from collections.abc import Mapping, Sequence

from rota.coordination.group_state import GroupState
from rota.coordination.publication import Publication, publish, take_control
from rota.coordination.store import Node, Op
from rota.errors import CoordinationError
from rota.group.rebalance import observe, rebalance
from simulator.actors import Scene
from simulator.journal import SteppedStore
from simulator.timeline import Life, steps, wait

ANOTHER = 3.0  # seconds until another process replaces a controller that died


class Died(Exception):
    """The process of the controller died between two of its writes."""


class MortalStore(SteppedStore):
    """A store whose process dies after `left` more writes. None: the process does not die."""

    left: int | None = None

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        """Write as the store does. Raise Died if no write is left."""
        if self.left == 0:
            raise Died
        if self.left is not None:
            self.left -= 1
        return super().multi(ops)


class Controller:
    """Observes once a second if something was written or a decision is due, and rebalances if that is needed."""

    def __init__(self, sim: Scene, begin: float) -> None:
        self.sim, self.begin, self.deaths = sim, begin, 0
        self._begin()

    def _begin(self) -> None:
        self.store = MortalStore(self.sim.server, lambda: wait(self.sim.late("")))
        self.tree = GroupState(self.store, self.sim.group)
        self.stirred = -1  # the server's count of events at the last observation
        self.due: float | None = None

    def life(self) -> Life:
        """Observe once a second, from `begin` on."""
        return steps(self._live)

    def _live(self) -> None:
        wait(self.begin)
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
        """Return whether a rebalance is needed. Like the sensor, it reads again only if something may have changed."""
        stirred = self.sim.server.stirred
        if stirred == self.stirred and not (self.due is not None and self.due <= self.sim.server.clock()):
            return False
        self.stirred = stirred
        seen = observe(self.tree, slots=True)
        self.due = seen.due
        return seen.needed

    def settle(self, owners: Mapping[str, str]) -> None:
        """Publish these owners as the target, without a plan."""
        tree = GroupState(self.sim.server.connect(), self.sim.group)
        target = {w: frozenset(p for p, o in owners.items() if o == w) for w in set(owners.values())}
        publish(tree, take_control(tree), Publication(target))
