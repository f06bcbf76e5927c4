"""Pass 2 of the flow: the fewest moves among all balanced assignments, and what that leaves open for pass 3.

Law: only arcs of reduced cost 0 in pass 1 are used, so balance is never traded; the reduced costs of this pass say the
same to the next one.
"""

from dataclasses import dataclass

import numpy as np

from rota.core.assignors.partition_classes import Classes
from rota.core.assignors.sticky.balance import NEVER, Prices
from rota.core.values import Bools, Ints
from rota.errors import AssignmentError


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Units kept and moved, classes x workers, and the face of all answers as good: where units `may_leave` and
    `may_come`, which units `must_leave`, and the seats of each worker."""

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


def kept(classes: Classes, units: Ints, price: Prices) -> Kept:
    """The fewest moves that reach the balance of `units`, whose dual is `price`."""
    network = _Network(classes, units, price)
    network.solve()
    return network.face()


class _Network:
    """Classes, workers, a hub for optional seats, a node for what waits. Only arcs of pass 1's optimal face."""

    def __init__(self, classes: Classes, units: Ints, price: Prices) -> None:
        self.classes, self.price = classes, price
        self.groups, self.workers = classes.may.shape
        on_face = classes.may & (price.worker == price.unit[:, None])
        self.move_row, self.move_column = np.nonzero(on_face)
        self.keep_row, self.keep_column = np.nonzero(on_face & (classes.have > 0))
        self.seats = np.flatnonzero(price.optional)
        self.may_wait = price.unit == NEVER
        self.waiting = int(classes.size.sum() - units.sum())
        self.extra = int(units.sum() - price.low.sum())
        self.hub, self.wait = self.groups + self.workers, self.groups + self.workers + 1

    def solve(self) -> None:
        from ortools.graph.python import min_cost_flow

        flow = min_cost_flow.SimpleMinCostFlow()
        add = flow.add_arcs_with_capacity_and_unit_cost
        g, size = self.groups, self.classes.size
        waiters = np.flatnonzero(self.may_wait)
        moves = add(self.move_row, g + self.move_column, size[self.move_row], np.ones(len(self.move_row), np.int64))
        have = self.classes.have[self.keep_row, self.keep_column]
        keeps = add(self.keep_row, g + self.keep_column, have, np.zeros(len(have), np.int64))
        seats = add(g + self.seats, np.full(len(self.seats), self.hub), *_ones_at_zero(len(self.seats)))
        waits = add(waiters, np.full(len(waiters), self.wait), size[waiters], np.zeros(len(waiters), np.int64))
        supply = np.concatenate((size, -self.price.low, [-self.extra, -self.waiting]))
        flow.set_nodes_supplies(np.arange(len(supply)), supply)
        if flow.solve() != flow.OPTIMAL:
            raise AssignmentError("The fewest moves have no flow. Please report this snapshot: it is a bug")
        self.moved, self.kept = flow.flows(moves), flow.flows(keeps)
        self.seated = flow.flows(seats)
        self.waits, self.waiters = flow.flows(waits), waiters

    def face(self) -> Kept:
        """Potentials by relaxation of the residual network, then every arc by its reduced cost."""
        have = self.classes.have[self.keep_row, self.keep_column]
        g, move = self.groups, (self.move_row, self.groups + self.move_column)
        keep, seat = (self.keep_row, g + self.keep_column), (g + self.seats, np.full(len(self.seats), self.hub))
        wait = (self.waiters, np.full(len(self.waiters), self.wait))
        residual = [
            (*move, 1, np.ones(len(move[0]), np.bool_)),
            (*move[::-1], -1, self.moved > 0),
            (*keep, 0, self.kept < have),
            (*keep[::-1], 0, self.kept > 0),
            (*seat, 0, self.seated < 1),
            (*seat[::-1], 0, self.seated > 0),
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
        gap = level[seat[0]] - level[seat[1]]
        fixed = self.seats[gap < 0]
        low, optional = self.price.low.copy(), np.zeros(self.workers, np.bool_)
        low[fixed] += 1
        optional[self.seats[gap == 0]] = True
        may_wait = self.may_wait.copy()
        may_wait[self.waiters] = level[wait[0]] == level[wait[1]]
        kept, moved = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        kept[self.keep_row, self.keep_column], moved[self.move_row, self.move_column] = self.kept, self.moved
        extra = self.extra - len(fixed)
        return Kept(kept, moved, leave, come, must, low, optional, extra, self.waiting, may_wait)


def _ones_at_zero(size: int) -> tuple[Ints, Ints]:
    return np.ones(size, np.int64), np.zeros(size, np.int64)
