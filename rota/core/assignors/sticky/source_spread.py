"""Law 4 by a network: each source spread evenly, among all assignments of the same balance and number of moves.

Law: `spread_by_flow` minimises the sum over sources and workers of count² exactly, as a flow of minimum cost with convex
unit costs. A hash of ids breaks ties. The hash ignores the giver, so an interrupted plan leads to the same end.
"""

import numpy as np

from rota.core.assignors.hashing import hash_pairs
from rota.core.assignors.sticky.open_choices import OpenChoices
from rota.core.values import Ints
from rota.errors import AssignmentError


def spread_by_flow(choices: OpenChoices) -> tuple[Ints, Ints]:
    """Return how many units each worker releases and takes, groups x workers."""
    network = _SpreadNetwork(choices)
    while not network.solve():
        pass
    return network.released, network.taken


class _SpreadNetwork:
    """The flow over cells (source, worker). Each cell has exact marginal costs within a window of counts, which widens until
    the optimum lies inside."""

    def __init__(self, choices: OpenChoices) -> None:
        self.choices = f = choices
        groups, workers = f.have.shape
        self.simple = bool((np.bincount(f.source) <= 1).all())  # each source is one group: cells need no nodes
        sources = int(f.source.max()) + 1
        top = f.low + f.optional
        total = int(f.free.sum() + f.have.sum())
        count = np.zeros((sources, workers), np.int64)
        np.add.at(count, f.source, f.have)
        may_leave = np.zeros_like(count)
        np.add.at(may_leave, f.source, np.where(f.release, f.have, 0))
        may_come = np.zeros((sources, workers), np.bool_)
        np.logical_or.at(may_come, f.source, f.take)
        most_out, most_in = f.limit_moves()
        out = np.minimum(may_leave, most_out)
        come = np.where(may_come, np.minimum(most_in, total), 0)
        self.cells = np.flatnonzero((out > 0) | (come > 0))
        self.count = count.ravel()[self.cells]
        self.lowest = self.count - out.ravel()[self.cells]
        self.highest = self.count + come.ravel()[self.cells]
        size = np.bincount(f.source, f.free + f.have.sum(axis=1), minlength=sources)
        share = np.floor(size[:, None] * top / max(int(top.sum()), 1)).astype(np.int64).ravel()[self.cells]
        self.bottom = np.clip(share - 1, self.lowest, self.highest)
        self.ceiling = np.clip(share + 2, self.lowest, self.highest)
        self.worker = groups + self.cells % workers
        self.scale, self.salt = self._scale_ties(int(f.free.sum() + np.minimum(out.sum(axis=0), most_out).sum()))
        if self.simple:
            group_of = np.zeros(sources, np.int64)
            group_of[f.source] = np.arange(groups)
            self.node = group_of[self.cells // workers]
        else:
            self.node = groups + workers + 2 + np.arange(len(self.cells))

    def _scale_ties(self, units: int) -> tuple[int, Ints]:
        """Return the factor on costs and the tie-break of each group and worker. The tie-breaks of all `units` together
        are less than one unit of cost."""
        f = self.choices
        nodes = sum(f.have.shape) + len(self.cells)
        highest = 2 * int(max(self.highest.max(initial=1), 1)) + 1
        widest = min(2**10, 2**60 // (highest * (2 * units + 1) * (nodes + 2)))
        if widest < 2:
            return 1, np.zeros(f.have.shape, np.int64)
        return (2 * units + 1) * widest, hash_pairs(*f.salt) % widest

    def solve(self) -> bool:
        """Return whether the windows were wide enough. If so, `released` and `taken` are the optimum; otherwise the
        windows are wider now. Raises AssignmentError if there is no flow."""
        from ortools.graph.python import min_cost_flow

        flow = min_cost_flow.SimpleMinCostFlow()
        arcs = self._list_segments()
        cell_arcs = [flow.add_arcs_with_capacity_and_unit_cost(t, h, c, k) for t, h, c, k, _ in arcs]
        links = self._add_links(flow)
        supply = self._list_supplies()
        flow.set_nodes_supplies(np.arange(len(supply)), supply)
        if flow.solve() != flow.OPTIMAL:
            raise AssignmentError("The spread over sources has no flow. Please report this snapshot: it is a bug")
        change = np.zeros(len(self.cells), np.int64)
        for ids, (*_, cell), sign in zip(cell_arcs, arcs, (-1, 1), strict=True):
            change += sign * np.bincount(cell, flow.flows(ids), minlength=len(self.cells)).astype(np.int64)
        if not self._check_windows(self.count + change):
            return False
        shape = self.choices.have.shape
        self.released, self.taken = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        if self.simple:
            at = (self.node, self.cells % shape[1])
            self.released[at], self.taken[at] = np.maximum(-change, 0), np.maximum(change, 0)
        else:
            for (ids, group, worker), into in zip(links, (self.released, self.taken), strict=True):
                into[group, worker] = flow.flows(ids)
        return True

    def _list_segments(self) -> list[tuple[Ints, Ints, Ints, Ints, Ints]]:
        """Return the arcs (tail, head, capacity, cost, cell) of units that leave a worker, then of units that come to it.

        All units beyond the window share one arc, at the cost of the unit next to the window. A flow that ends inside
        such an arc may not be optimal; `_check_windows` detects this.
        """
        found = []
        for sign, near, far, last in (
            (-1, np.minimum(self.ceiling, self.count), np.minimum(self.bottom, self.count), self.lowest),
            (1, np.maximum(self.bottom, self.count), np.maximum(self.ceiling, self.count), self.highest),
        ):
            first, rest = np.abs(near - self.count), np.maximum(sign * (last - far), 0)
            before, beyond = np.flatnonzero(first), np.flatnonzero(rest)
            reach = np.abs(far - near)
            unit = np.repeat(np.arange(len(self.cells)), reach)
            step = np.arange(len(unit)) - np.repeat(np.cumsum(reach) - reach, reach)
            cell = np.concatenate((before, unit, beyond))
            capacity = np.concatenate((first[before], np.ones(len(unit), np.int64), rest[beyond]))
            after = np.concatenate((near[before], near[unit] + sign * (step + 1), far[beyond] + sign))
            cost = 2 * after - 1 if sign > 0 else -(2 * after + 1)
            cost = cost * self.scale
            if self.simple:
                cost += sign * self.salt[self.node[cell], self.worker[cell] - len(self.choices.free)]
            ends = (self.worker[cell], self.node[cell])
            tail, head = ends if sign < 0 else ends[::-1]
            found.append((tail, head, capacity, cost, cell))
        return found

    def _check_windows(self, count: Ints) -> bool:
        """Return whether every cell ended inside its window. Widen the windows of the others."""
        below, above = count < self.bottom, count > self.ceiling
        width = np.maximum(self.ceiling - self.bottom, 2)
        self.bottom = np.where(below, np.maximum(count - width, self.lowest), self.bottom)
        self.ceiling = np.where(above, np.minimum(count + width, self.highest), self.ceiling)
        return not (below.any() or above.any())

    def _add_links(self, flow: object) -> list[tuple[Ints, Ints, Ints]]:
        """Add the arcs of optional workers and waiting units. Unless `simple`, add and return the arcs between cells and
        groups, with their groups and workers."""
        f = self.choices
        groups, workers = f.have.shape
        add = flow.add_arcs_with_capacity_and_unit_cost  # type: ignore[attr-defined]
        hub, wait = groups + workers, groups + workers + 1
        optional = np.flatnonzero(f.optional)
        one = np.ones(len(optional), np.int64)
        add(groups + optional, np.full(len(optional), hub), one, 0 * one)
        if f.waiting:
            waiters = np.flatnonzero(f.may_wait)
            add(
                waiters, np.full(len(waiters), wait), np.full(len(waiters), f.waiting), np.zeros(len(waiters), np.int64)
            )
        if self.simple:
            return []
        place = np.full((int(f.source.max()) + 1) * workers, -1, np.int64)
        place[self.cells] = self.node
        found = []
        most = int(f.free.sum() + f.have.sum())
        for allowed, leaving in ((f.release & (f.have > 0), True), (f.take, False)):
            group, worker = np.nonzero(allowed)
            node = place[f.source[group] * workers + worker]
            group, worker, node = group[node >= 0], worker[node >= 0], node[node >= 0]
            capacity = f.have[group, worker] if leaving else np.full(len(group), most)
            tail, head = (node, group) if leaving else (group, node)
            salt = (-1 if leaving else 1) * self.salt[group, worker]
            found.append((add(tail, head, capacity, salt), group, worker))
        return found

    def _list_supplies(self) -> Ints:
        f = self.choices
        surplus = f.have.sum(axis=0) - f.low
        inner = 0 if self.simple else len(self.cells)
        return np.concatenate((f.free, surplus, [-f.extra, -f.waiting], np.zeros(inner, np.int64)))
