"""Law 4 by prices, where sources are few: a transport of units between sources and workers with convex costs.

Law: `traded` finds the flow that `spread` promises. At the end each worker holds the units that are cheapest for it at
the sources' prices, and each source is placed exactly: by duality no other flow costs less. Method: each worker chooses;
a source that is wanted too little (or too much) has its price moved just so far that enough workers exchange one unit;
the few units that are left over go along shortest paths from source to source, an exchange in a worker being an edge.
"""

import numpy as np

from rota.core.assignors.hashing import mixed
from rota.core.assignors.sticky.open_choices import Freedom
from rota.core.values import Ints
from rota.errors import AssignmentError

NEVER = 2**58  # the cost of a unit that there is not
COSTLIEST = 2**52  # no cost of a unit is larger
ROUNDS = 20
FEW, MANY = 32, 4_000  # sources, and cells (source, worker), from which on prices are faster than a network


def pays(freedom: Freedom) -> bool:
    """Whether sources are few, cells many, and nothing waits; a plan that is interrupted changes none of these."""
    return len(freedom.source) <= FEW and freedom.have.size >= MANY and not freedom.waiting


def traded(freedom: Freedom) -> tuple[Ints, Ints]:
    """Released and taken units, groups x workers, where each group is a source and all workers are alike."""
    market, moving = Market.of(freedom)
    market.trade()
    change = np.zeros_like(freedom.have)
    change[:, moving] = market.held[:-1] - freedom.have[:, moving]
    return np.maximum(-change, 0), np.maximum(change, 0)


class Market:
    """What each worker holds of each source, the cost of its next unit (`up`) and of its last one (`down`)."""

    @classmethod
    def of(cls, freedom: Freedom) -> tuple["Market", Ints]:
        """The market of the workers that may give or take, and which they are. A seat that stays empty is a unit of one
        more source, whose units cost nothing."""
        f = freedom
        moving = np.flatnonzero((f.have.sum(axis=0) != f.low) | f.optional)
        have, seat, (out, come) = f.have[:, moving], f.optional[moving].astype(np.int64), f.most()
        least = np.where(f.release[:, moving], np.maximum(have - out[moving], 0), have)
        most = np.where(f.take[:, moving], have + come[moving], have)
        size = np.append(have.sum(axis=1) + f.free, seat.sum() - f.extra)
        salt = np.vstack((mixed(f.salt[0], f.salt[1][moving]), 0 * seat))
        largest = int((f.have.sum(axis=1) + f.free).max())  # of all, not of what moves: an interruption changes no cost
        unit = COSTLIEST // (2 * largest + 2)
        seats = f.low[moving] + seat
        return cls(np.vstack((least, 0 * seat)), np.vstack((most, seat)), size, seats, salt, unit), moving

    def __init__(self, least: Ints, most: Ints, size: Ints, seats: Ints, salt: Ints, unit: int) -> None:
        self.least, self.most, self.size, self.seats = least, most, size, seats
        self.weight = np.full(len(size), unit)
        self.weight[-1] = 0
        self.salt = salt % (unit // (4 * len(size)))  # a cycle of exchanges meets each source once: together no unit
        self._start()

    def _start(self) -> None:
        """Each worker's cheapest units at prices by size."""
        price = self.size[:-1] // len(self.seats)
        least, most, level = self.least[:-1], self.most[:-1], np.zeros(len(self.seats))
        for _ in range(ROUNDS):  # Newton's method for the level up to which a worker is filled
            held = np.clip(price[:, None] + level, least, most)
            lacking = self.seats - held.sum(axis=0)
            if np.abs(lacking).max() < 1:
                break
            level += lacking / np.maximum(((held > least) & (held < most)).sum(axis=0), 1)
        self.price = np.append(2 * price, 0) * self.weight
        self.held = np.vstack((np.floor(held).astype(np.int64), 0 * self.most[-1:]))
        middle = 2 * self.weight[:, None] * self.held + self.salt
        self.up = np.where(self.held < self.most, middle + self.weight[:, None], NEVER)
        self.down = np.where(self.held > self.least, middle - self.weight[:, None], -NEVER)
        self._fill()
        self._choose(np.arange(len(self.seats)))

    def _shift(self, rows: Ints, workers: Ints, units: int) -> None:
        """`units` more of these sources on these workers, and the costs of what comes next there."""
        self.held[rows, workers] += units
        held, weight = self.held[rows, workers], self.weight[rows]
        middle = 2 * weight * held + self.salt[rows, workers]
        self.up[rows, workers] = np.where(held < self.most[rows, workers], middle + weight, NEVER)
        self.down[rows, workers] = np.where(held > self.least[rows, workers], middle - weight, -NEVER)

    def _fill(self) -> None:
        """Cheapest units in, dearest units out, until everybody's seats are taken."""
        while (lacking := self.seats - self.held.sum(axis=0)).any():
            short, over = np.flatnonzero(lacking > 0), np.flatnonzero(lacking < 0)
            self._shift(self._net(self.up, short).argmin(axis=0), short, 1)
            self._shift(self._net(self.down, over).argmax(axis=0), over, -1)

    def _net(self, cost: Ints, workers: Ints) -> Ints:
        return np.asarray(cost[:, workers] - self.price[:, None])

    def _choose(self, workers: Ints) -> None:
        """Each of these workers exchanges units until it holds its cheapest ones."""
        while len(workers):
            up, down = self._net(self.up, workers), self._net(self.down, workers)
            gains = up.min(axis=0) < down.max(axis=0)
            workers, cheap, dear = workers[gains], up[:, gains].argmin(axis=0), down[:, gains].argmax(axis=0)
            self._shift(cheap, workers, 1)
            self._shift(dear, workers, -1)

    def trade(self) -> None:
        """The price of the source that is furthest off moves, as long as that helps; what is left goes path by path."""
        best, patience = NEVER, 0
        while patience < len(self.size):
            excess = self._excess()
            left = int(np.abs(excess).sum())
            best, patience = (left, 0) if left < best else (best, patience + 1)
            if not left:
                return
            row = int(np.abs(excess).argmax())
            self._adjust(row, int(excess[row]))
        while self._path():
            pass

    def _excess(self) -> Ints:
        return np.asarray(self.held.sum(axis=1) - self.size)

    def _adjust(self, row: int, excess: int) -> None:
        """Moves the price of one source as far as it takes for its excess to go."""
        sign = 1 if excess < 0 else -1
        mine, others = (self.up, self.down) if sign > 0 else (self.down, self.up)
        net = sign * (others - self.price[:, None])
        net[row] = -NEVER
        gap = sign * (mine[row] - self.price[row]) - net.max(axis=0)
        able = np.flatnonzero(gap < NEVER // 2)
        if not len(able):
            return
        rise = self._rise(gap[able], abs(excess))
        workers = able[gap[able] <= rise][: abs(excess)]
        other = net[:, workers].argmax(axis=0)
        self.price[row] += sign * rise
        self._shift(np.full(len(workers), row), workers, sign)
        self._shift(other, workers, -sign)
        self._choose(workers)

    def _rise(self, gap: Ints, wanted: int) -> int:
        """How far a price must move for `wanted` units to be exchanged, if each worker's next unit costs `more`."""
        more = 4 * int(self.weight[0])
        if wanted <= len(gap):
            last = int(np.partition(gap, wanted - 1)[wanted - 1])
            if last - int(gap.min()) < more:
                return last
        gap = np.sort(gap)
        rank = np.arange(1, len(gap) + 1)
        first = int(np.flatnonzero((gap - gap[0]) * rank - np.cumsum(gap - gap[0]) < more * wanted)[-1]) + 1
        return int(gap[0]) + (more * wanted + int((gap[:first] - gap[0]).sum())) // first - more

    def _path(self) -> bool:
        """Sends one unit from a source in excess to one that lacks, the cheapest way; whether there was one to send."""
        excess, rows = self._excess(), np.arange(len(self.size))
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
            self._shift(np.array([giver]), worker, -1)
            self._shift(np.array([taker]), worker, 1)
            taker = giver
        return True

    def proven(self) -> bool:
        """Whether prices prove the flow: everybody has its cheapest units, and every source is placed exactly."""
        up, down = self.up - self.price[:, None], self.down - self.price[:, None]
        return bool((up.min(axis=0) >= down.max(axis=0)).all()) and not self._excess().any()
