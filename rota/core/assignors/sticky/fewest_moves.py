"""Pass 2 of the flow: the fewest moves among all balanced assignments, and the choices that are left for pass 3.

Law: this pass uses only arcs of reduced cost 0 in pass 1, so the balance stays optimal. Pass 3 uses the reduced costs of
this pass in the same way.
"""

from dataclasses import dataclass

import numpy as np

from rota.core.assignors.partition_classes import PartitionClasses
from rota.core.assignors.sticky.balance import NEVER, Prices
from rota.core.values import Bools, Ints
from rota.errors import AssignmentError


@dataclass(frozen=True, slots=True, eq=False)
class FewestMoves:
    """One answer with the fewest moves, and all others that are equally good.

    Tables classes x workers: units `kept` and `moved` in this answer. `may_leave` and `may_come` mark where units leave
    or come in some equally good answer, `must_leave` where they leave in all. Each worker holds `low` units, `extra` of
    the `optional` workers one more. `waiting` units are not placed, of classes that `may_wait`.
    """

    kept: Ints
    moved: Ints
    may_leave: Bools
    may_come: Bools
    must_leave: Bools
    low: Ints
    optional: Bools
    extra: int
    waiting: int
    may_wait: Bools


def minimise_moves(classes: PartitionClasses, units: Ints, price: Prices) -> FewestMoves:
    """Find the fewest moves that reach the balance of `units`, whose dual is `price`."""
    network = _MoveNetwork(classes, units, price)
    network.solve()
    return network.read_optimal_face()


class _MoveNetwork:
    """The nodes are classes, workers, a hub for the extra units of optional workers, and a node for waiting units."""

    def __init__(self, classes: PartitionClasses, units: Ints, price: Prices) -> None:
        self.classes, self.price = classes, price
        self.groups, self.workers = classes.may.shape
        on_face = classes.may & (price.worker == price.unit[:, None])
        self.move_row, self.move_column = np.nonzero(on_face)
        self.keep_row, self.keep_column = np.nonzero(on_face & (classes.have > 0))
        self.optional = np.flatnonzero(price.optional)
        self.may_wait = price.unit == NEVER
        self.waiting = int(classes.size.sum() - units.sum())
        self.extra = int(units.sum() - price.low.sum())
        self.hub, self.wait = self.groups + self.workers, self.groups + self.workers + 1

    def solve(self) -> None:
        """Find one flow of least cost. Raises AssignmentError if there is none."""
        from ortools.graph.python import min_cost_flow

        flow = min_cost_flow.SimpleMinCostFlow()
        add = flow.add_arcs_with_capacity_and_unit_cost
        g, size = self.groups, self.classes.size
        waiters, many = np.flatnonzero(self.may_wait), len(self.optional)
        unit = np.ones(many, np.int64), np.zeros(many, np.int64)
        moves = add(self.move_row, g + self.move_column, size[self.move_row], np.ones(len(self.move_row), np.int64))
        have = self.classes.have[self.keep_row, self.keep_column]
        keeps = add(self.keep_row, g + self.keep_column, have, np.zeros(len(have), np.int64))
        extras = add(g + self.optional, np.full(len(self.optional), self.hub), *unit)
        waits = add(waiters, np.full(len(waiters), self.wait), size[waiters], np.zeros(len(waiters), np.int64))
        supply = np.concatenate((size, -self.price.low, [-self.extra, -self.waiting]))
        flow.set_nodes_supplies(np.arange(len(supply)), supply)
        if flow.solve() != flow.OPTIMAL:
            raise AssignmentError("The fewest moves have no flow. Please report this snapshot: it is a bug")
        self.moved, self.kept = flow.flows(moves), flow.flows(keeps)
        self.on_optional = flow.flows(extras)
        self.waits, self.waiters = flow.flows(waits), waiters

    def read_optimal_face(self) -> FewestMoves:
        """Return all flows of least cost: potentials by relaxation of the residual network, then each arc's reduced cost."""
        have = self.classes.have[self.keep_row, self.keep_column]
        g, move = self.groups, (self.move_row, self.groups + self.move_column)
        keep, extra_arc = (
            (self.keep_row, g + self.keep_column),
            (g + self.optional, np.full(len(self.optional), self.hub)),
        )
        wait = (self.waiters, np.full(len(self.waiters), self.wait))
        residual = [
            (*move, 1, np.ones(len(move[0]), np.bool_)),
            (*move[::-1], -1, self.moved > 0),
            (*keep, 0, self.kept < have),
            (*keep[::-1], 0, self.kept > 0),
            (*extra_arc, 0, self.on_optional < 1),
            (*extra_arc[::-1], 0, self.on_optional > 0),
            (*wait, 0, np.ones(len(wait[0]), np.bool_)),
            (*wait[::-1], 0, self.waits > 0),
        ]
        tail = np.concatenate([t[m] for t, _, _, m in residual])
        head = np.concatenate([h[m] for _, h, _, m in residual])
        cost = np.concatenate([np.full(int(m.sum()), c) for _, _, c, m in residual])
        level = np.zeros(g + self.workers + 2, np.int64)
        while True:
            nearer = level.copy()
            np.minimum.at(nearer, head, level[tail] + cost)
            if (nearer == level).all():
                break
            level = nearer
        shape = self.classes.may.shape
        slack = {name: c + level[t] - level[h] for name, t, h, c in (("move", *move, 1), ("keep", *keep, 0))}
        come, leave, must = (np.zeros(shape, np.bool_) for _ in range(3))
        come[self.move_row, self.move_column] = slack["move"] == 0
        leave[self.keep_row, self.keep_column] = slack["keep"] == 0
        must |= self.classes.have > 0
        must[self.keep_row, self.keep_column] = slack["keep"] > 0
        gap = level[extra_arc[0]] - level[extra_arc[1]]
        fixed = self.optional[gap < 0]
        low, optional = self.price.low.copy(), np.zeros(self.workers, np.bool_)
        low[fixed] += 1
        optional[self.optional[gap == 0]] = True
        may_wait = self.may_wait.copy()
        may_wait[self.waiters] = level[wait[0]] == level[wait[1]]
        kept, moved = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        kept[self.keep_row, self.keep_column], moved[self.move_row, self.move_column] = self.kept, self.moved
        extra = self.extra - len(fixed)
        return FewestMoves(kept, moved, leave, come, must, low, optional, extra, self.waiting, may_wait)
