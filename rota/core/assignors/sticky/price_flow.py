"""Law 4 by prices, for few sources: a transport of units from sources to workers with convex costs.

Law: `spread_by_prices` minimises the same sum as `spread_by_flow`. At the end each worker holds the units that are cheapest
for it at the sources' prices, and each source is placed exactly. By duality no other flow costs less.

Method: each worker takes its cheapest units. If a source has too many or too few takers, its price changes just so far
that enough workers exchange one unit. The few units that are left over go along shortest paths from source to source, in
which an edge is an exchange on one worker.
"""

import numpy as np

from rota.core.assignors.hashing import hash_pairs
from rota.core.assignors.sticky.open_choices import OpenChoices
from rota.core.values import Ints
from rota.errors import AssignmentError

NEVER = 2**58  # the cost of a unit that does not exist
COSTLIEST = 2**52  # no cost of a unit is larger
ROUNDS = 20
FEW, MANY = 32, 4_000  # up to so many sources, and from so many cells (source, worker), prices are faster


def is_faster(choices: OpenChoices) -> bool:
    """Whether sources are few, cells are many, and no unit waits. None of these changes when a plan is interrupted."""
    return len(choices.source) <= FEW and choices.have.size >= MANY and not choices.waiting


def spread_by_prices(choices: OpenChoices) -> tuple[Ints, Ints]:
    """How many units each worker releases and takes, groups x workers. Each group must be a whole source."""
    problem, moving = PriceFlow.of(choices)
    problem.solve()
    change = np.zeros_like(choices.have)
    change[:, moving] = problem.held[:-1] - choices.have[:, moving]
    return np.maximum(-change, 0), np.maximum(change, 0)


class PriceFlow:
    """How many units of each source each worker holds, the cost of its next unit (`up`) and of its last one (`down`)."""

    @classmethod
    def of(cls, choices: OpenChoices) -> tuple["PriceFlow", Ints]:
        """The problem of the workers that may give or take, and their indices. An optional worker that takes no further
        unit takes one of an additional source, whose units cost nothing."""
        f = choices
        moving = np.flatnonzero((f.have.sum(axis=0) != f.low) | f.optional)
        have, spare, (out, come) = f.have[:, moving], f.optional[moving].astype(np.int64), f.limit_moves()
        least = np.where(f.release[:, moving], np.maximum(have - out[moving], 0), have)
        most = np.where(f.take[:, moving], have + come[moving], have)
        size = np.append(have.sum(axis=1) + f.free, spare.sum() - f.extra)
        salt = np.vstack((hash_pairs(f.salt[0], f.salt[1][moving]), 0 * spare))
        largest = int((f.have.sum(axis=1) + f.free).max())  # of all units, so that an interruption changes no cost
        unit = COSTLIEST // (2 * largest + 2)
        quota = f.low[moving] + spare
        return cls(np.vstack((least, 0 * spare)), np.vstack((most, spare)), size, quota, salt, unit), moving

    def __init__(self, least: Ints, most: Ints, size: Ints, quota: Ints, salt: Ints, unit: int) -> None:
        self.least, self.most, self.size, self.quota = least, most, size, quota
        self.weight = np.full(len(size), unit)
        self.weight[-1] = 0
        self.salt = salt % (unit // (4 * len(size)))  # a cycle meets each source once: in sum below one unit
        self._fill_at_first_prices()

    def _fill_at_first_prices(self) -> None:
        """Gives each worker its cheapest units, at prices in proportion to the sizes of the sources."""
        price = self.size[:-1] // len(self.quota)
        least, most, level = self.least[:-1], self.most[:-1], np.zeros(len(self.quota))
        for _ in range(ROUNDS):  # Newton's method for the level up to which a worker is filled
            held = np.clip(price[:, None] + level, least, most)
            lacking = self.quota - held.sum(axis=0)
            if np.abs(lacking).max() < 1:
                break
            level += lacking / np.maximum(((held > least) & (held < most)).sum(axis=0), 1)
        self.price = np.append(2 * price, 0) * self.weight
        self.held = np.vstack((np.floor(held).astype(np.int64), 0 * self.most[-1:]))
        middle = 2 * self.weight[:, None] * self.held + self.salt
        self.up = np.where(self.held < self.most, middle + self.weight[:, None], NEVER)
        self.down = np.where(self.held > self.least, middle - self.weight[:, None], -NEVER)
        self._fill_quotas()
        self._exchange_units(np.arange(len(self.quota)))

    def shift(self, rows: Ints, workers: Ints, units: int) -> None:
        """Adds `units` of these sources to these workers and updates the costs of their next units."""
        self.held[rows, workers] += units
        held, weight = self.held[rows, workers], self.weight[rows]
        middle = 2 * weight * held + self.salt[rows, workers]
        self.up[rows, workers] = np.where(held < self.most[rows, workers], middle + weight, NEVER)
        self.down[rows, workers] = np.where(held > self.least[rows, workers], middle - weight, -NEVER)

    def _fill_quotas(self) -> None:
        """Adds cheapest units and removes dearest ones until each worker holds its quota."""
        while (lacking := self.quota - self.held.sum(axis=0)).any():
            short, over = np.flatnonzero(lacking > 0), np.flatnonzero(lacking < 0)
            self.shift(self._subtract_prices(self.up, short).argmin(axis=0), short, 1)
            self.shift(self._subtract_prices(self.down, over).argmax(axis=0), over, -1)

    def _subtract_prices(self, cost: Ints, workers: Ints) -> Ints:
        return np.asarray(cost[:, workers] - self.price[:, None])

    def _exchange_units(self, workers: Ints) -> None:
        """Each of these workers exchanges units until it holds the cheapest ones."""
        while len(workers):
            up, down = self._subtract_prices(self.up, workers), self._subtract_prices(self.down, workers)
            gains = up.min(axis=0) < down.max(axis=0)
            workers, cheap, dear = workers[gains], up[:, gains].argmin(axis=0), down[:, gains].argmax(axis=0)
            self.shift(cheap, workers, 1)
            self.shift(dear, workers, -1)

    def solve(self) -> None:
        """Adjusts the price of the source with the largest excess or lack while that helps, then sends the rest along paths.
        Raises AssignmentError if there is no flow."""
        best, patience = NEVER, 0
        while patience < len(self.size):
            excess = self._count_excess()
            left = int(np.abs(excess).sum())
            best, patience = (left, 0) if left < best else (best, patience + 1)
            if not left:
                return
            row = int(np.abs(excess).argmax())
            self._adjust_price(row, int(excess[row]))
        while self._send_along_path():
            pass

    def _count_excess(self) -> Ints:
        return np.asarray(self.held.sum(axis=1) - self.size)

    def _adjust_price(self, row: int, excess: int) -> None:
        """Changes the price of one source just so far that its excess goes."""
        sign = 1 if excess < 0 else -1
        mine, others = (self.up, self.down) if sign > 0 else (self.down, self.up)
        net = sign * (others - self.price[:, None])
        net[row] = -NEVER
        gap = sign * (mine[row] - self.price[row]) - net.max(axis=0)
        able = np.flatnonzero(gap < NEVER // 2)
        if not len(able):
            return
        rise = self._find_price_change(gap[able], abs(excess))
        workers = able[gap[able] <= rise][: abs(excess)]
        other = net[:, workers].argmax(axis=0)
        self.price[row] += sign * rise
        self.shift(np.full(len(workers), row), workers, sign)
        self.shift(other, workers, -sign)
        self._exchange_units(workers)

    def _find_price_change(self, gap: Ints, wanted: int) -> int:
        """How far a price must change until `wanted` units are exchanged. The first unit of each worker needs its `gap`, and
        each further one `more`."""
        more = 4 * int(self.weight[0])
        if wanted <= len(gap):
            last = int(np.partition(gap, wanted - 1)[wanted - 1])
            if last - int(gap.min()) < more:
                return last
        gap = np.sort(gap)
        rank = np.arange(1, len(gap) + 1)
        first = int(np.flatnonzero((gap - gap[0]) * rank - np.cumsum(gap - gap[0]) < more * wanted)[-1]) + 1
        return int(gap[0]) + (more * wanted + int((gap[:first] - gap[0]).sum())) // first - more

    def _send_along_path(self) -> bool:
        """Sends one unit from a source in excess to a source that lacks one, on the cheapest path. False if none is left."""
        excess, rows = self._count_excess(), np.arange(len(self.size))
        if not excess.any():
            return False
        edge, via = np.empty((len(rows), len(rows)), np.int64), np.empty((len(rows), len(rows)), np.int64)
        for giver in range(len(rows)):
            cost = self.up - self.down[giver]
            via[giver] = cost.argmin(axis=1)
            edge[giver] = cost[rows, via[giver]] - self.price + self.price[giver]
        far, before = np.where(excess > 0, 0, NEVER), np.full(len(rows), -1)
        for _ in rows:
            through = np.where((far < NEVER)[:, None] & (edge < NEVER // 2), far[:, None] + edge, NEVER)
            best = through.argmin(axis=0)
            before, far = np.where(through[best, rows] < far, best, before), np.minimum(far, through[best, rows])
        taker = int(np.where(excess < 0, far, NEVER).argmin())
        if far[taker] == NEVER:
            raise AssignmentError("The spread over sources has no flow. Please report this snapshot: it is a bug")
        self.price += np.minimum(far, far[taker])
        while (giver := int(before[taker])) >= 0:
            worker = via[giver, taker : taker + 1]
            self.shift(np.array([giver]), worker, -1)
            self.shift(np.array([taker]), worker, 1)
            taker = giver
        return True
