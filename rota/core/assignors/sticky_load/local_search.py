"""Lowering the highest utilization with few moves: a beam over sets of moves, and a descent for many.

Law: every move found leaves the peak, or makes room for one that does; a result is never worse than its start.
"""

from dataclasses import dataclass

import numpy as np

from rota.core.assignors.hashing import mixed
from rota.core.columns import counted
from rota.core.values import UNLIMITED, Bools, Codes, Floats, Ints, Snapshot

BEAM = 768
LOWER = 0.02  # between moves that are as good for the giver, what a lower taker is worth
NEAR = 12  # workers at either end, and partitions of each, that a search looks at


@dataclass(frozen=True, slots=True, eq=False)
class Peaks:
    """A start to improve."""

    snapshot: Snapshot
    able: Bools  # kinds x workers: who may take
    start: Codes
    mean: float
    price: float  # the least gain in utilization for a move
    enough: float = 0.0  # a utilization that is within the tolerance

    @classmethod
    def of(
        cls, snapshot: Snapshot, match: Bools, start: Codes, mean: float, price: float, tolerance: float = 0.0
    ) -> "Peaks":
        """The search space around `start`; `price` and `tolerance` are in units of the mean."""
        able: Bools = match & snapshot.team.active
        return cls(snapshot, able, start, mean, price * mean, tolerance * mean)


def few(peaks: Peaks, budget: int) -> Codes:
    """The best of a beam over at most `budget` moves: each step takes one partition off the highest worker.

    A state is given up if more of its workers lie above the best peak known than moves are left; as long as the beam
    holds all others, the result is the optimum.
    """
    target = many(peaks, budget)
    workers, rows = _relevant(peaks)
    if budget <= 0 or len(workers) < 2 or not len(rows):
        return target
    beam = _Beam(peaks, workers, rows)
    beam.bound(target)
    for left in range(budget - 1, -1, -1):
        beam.step(left)
    return target if beam.best is None else beam.target()


class _Beam:
    """States: who owns each relevant partition, the utilization and the room of each relevant worker."""

    def __init__(self, peaks: Peaks, workers: Ints, rows: Ints) -> None:
        snapshot, size = peaks.snapshot, len(peaks.snapshot.workers)
        self.peaks, self.workers, self.rows = peaks, workers, rows
        place = np.full(size, -1, np.int64)
        place[workers] = np.arange(len(workers))
        self.speed, self.load = snapshot.team.capacity[workers], snapshot.load[rows]
        used = counted(peaks.start, size, snapshot.load) / snapshot.team.capacity
        self.others = float(np.delete(used, workers).max(initial=0.0))
        self.home = place[peaks.start[rows]]
        self.owner, self.used = self.home[None, :].astype(np.int16), used[workers][None, :]
        self.room = (snapshot.team.cap - counted(peaks.start, size))[workers][None, :]
        self.may: Bools = peaks.able[np.ix_(snapshot.kind[rows], workers)]
        self.alike = bool(self.may.all() and (self.speed == self.speed[0]).all() and (self.room > 2**20).all())
        self.best: Ints | None = None
        self.cost = max(float(used.max()), self.others)

    def bound(self, target: Codes) -> None:
        """Only better than `target` counts."""
        snapshot = self.peaks.snapshot
        used = counted(target, len(snapshot.workers), snapshot.load) / snapshot.team.capacity
        moves = int(np.count_nonzero(target != self.peaks.start))
        self.cost = min(self.cost, float(used.max()) + self.peaks.price * moves)

    def step(self, left: int) -> None:
        """Every move off the highest worker of every state, as far as `left` more moves may still win."""
        limit = self.cost * (1 - 1e-12)
        if not left:
            self._winnable(limit)
        high = self.used.argmax(axis=1)
        state, row = np.nonzero(self.owner == high[:, None])
        takers: Bools = np.take(self.may, row, axis=0)
        if not left:  # the last move goes to the lowest worker, or one of the lowest that may take it
            takers &= self._lowest()[state] & (self._gap(limit)[state] > self.load[row][:, None])
        takers[np.arange(len(state)), high[state]] = False
        pair, taker = np.nonzero(takers)
        state, row = state[pair], row[pair]
        giver, weight = high[state], self.load[row]
        gives, takes = self.used[state, giver], self.used[state, taker]
        given, taken = gives - weight / self.speed[giver], takes + weight / self.speed[taker]
        above = (self.used >= limit).sum(axis=1)[state] - (given < limit) + ((taken >= limit) & (takes < limit))
        alive = np.flatnonzero(above <= left)
        state, row, taker, giver = state[alive], row[alive], taker[alive], giver[alive]
        energy = (self.used**2).sum(axis=1)[state] + (given**2 - gives**2 + taken**2 - takes**2)[alive]
        reach = self._reach(left, state, giver, taker, given[alive], taken[alive])
        pick = _first(BEAM if left != 1 else 16 * BEAM, np.round(reach, 12), energy)
        state, row, taker, giver = state[pick], row[pick], taker[pick], giver[pick]
        index, weight = np.arange(len(pick)), self.load[row]
        self.owner, self.used, self.room = self.owner[state], self.used[state], self.room[state]
        self.owner[index, row] = taker
        for worker, sign in ((giver, -1), (taker, 1)):
            self.used[index, worker] += sign * weight / self.speed[worker]
            self.room[index, worker] -= sign
        name = self.owner @ _SALT[: self.owner.shape[1]]  # one state by two ways is one state
        _, first = np.unique(name, return_index=True)
        self.owner, self.used, self.room = self.owner[first], self.used[first], self.room[first]
        self._judge()

    def _gap(self, limit: float) -> Floats:
        """The load that each worker may take and stay below the limit; of one above it, less than nothing."""
        gap: Floats = (limit - self.used) * self.speed
        return gap

    def _winnable(self, limit: float) -> None:
        """Only states in which one move may still win: somebody has room for what the highest has too much."""
        gap = self._gap(limit)
        high = self.used.argmax(axis=1)
        keep = gap.max(axis=1) > -gap[np.arange(len(high)), high]
        self.owner, self.used, self.room = self.owner[keep], self.used[keep], self.room[keep]

    def _lowest(self) -> Bools:
        wide = min(2 if self.alike else 6, self.used.shape[1])
        low = np.zeros(self.used.shape, np.bool_)
        np.put_along_axis(low, np.argsort(self.used, axis=1)[:, :wide], True, axis=1)
        return low

    def _reach(self, left: int, state: Ints, giver: Ints, taker: Ints, given: Floats, taken: Floats) -> Floats:
        """The highest utilization that `left` more moves cannot mend, each mending one worker."""
        wide = min(left + 3, self.used.shape[1])
        top = np.argsort(-self.used, axis=1)[:, :wide]
        others = np.take_along_axis(self.used, top, axis=1)[state]
        top = top[state]
        others = np.where((top == giver[:, None]) | (top == taker[:, None]), -np.inf, others)
        after = np.column_stack((others, given, taken))
        after.sort(axis=1)
        reach: Floats = after[:, -1 - left]
        return reach

    def _judge(self) -> None:
        if not len(self.owner):
            return
        peak = np.maximum(self.used.max(axis=1), self.others)
        cost = peak + self.peaks.price * (self.owner != self.home).sum(axis=1)
        cost = np.where((self.room >= 0).all(axis=1), cost, np.inf)
        winner = int(cost.argmin())
        if cost[winner] < self.cost * (1 - 1e-12):
            self.best, self.cost = self.owner[winner], float(cost[winner])

    def target(self) -> Codes:
        """The best state as a column."""
        target = self.peaks.start.copy()
        target[self.rows] = self.workers[self.best]
        return target


_SALT = mixed(np.arange(4096), np.zeros(1, np.int64))[:, 0]


def _first(most: int, reach: Floats, energy: Floats) -> Ints:
    """Half of the best by reach, ties by energy; half by energy alone."""
    if len(reach) <= most:
        return np.arange(len(reach))
    half = most // 2
    last = np.partition(reach, half - 1)[half - 1]
    sure, tied = np.flatnonzero(reach < last), np.flatnonzero(reach == last)
    tied = tied[np.argsort(energy[tied], kind="stable")[: half - len(sure)]]
    return np.union1d(np.concatenate((sure, tied)), np.argpartition(energy, half - 1)[:half])


def _relevant(peaks: Peaks) -> tuple[Ints, Ints]:
    """The highest and the lowest workers, and of each the partitions whose size can matter."""
    snapshot, start = peaks.snapshot, peaks.start
    used = counted(start, len(snapshot.workers), snapshot.load) / snapshot.team.capacity
    order = np.argsort(-used, kind="stable")
    takes = np.asarray(peaks.able.any(axis=0))
    order = order[takes[order] | (used[order] > 0)]
    workers = order if len(order) <= 2 * NEAR else np.concatenate((order[:NEAR], order[-NEAR:]))
    workers = np.sort(workers)
    most = max(NEAR, 320 // len(workers))
    gap = float(used.max() - used[workers].min())
    rows = []
    for worker in workers.tolist():
        held = np.flatnonzero(start == worker)
        if len(held) > most:
            off = np.abs(snapshot.load[held] / snapshot.team.capacity[worker] - gap / 2)
            held = np.sort(held[np.argsort(off, kind="stable")[:most]])
        rows.append(held)
    return workers, np.concatenate(rows) if rows else np.zeros(0, np.int64)


def many(peaks: Peaks, budget: int | None) -> Codes:
    """One move or swap after the other off the highest worker, until none is worth its price or the budget is spent."""
    descent = _Descent(peaks, UNLIMITED if budget is None else budget)
    while descent.step():
        pass
    return descent.target


class _Descent:
    """Utilizations, rooms and who holds what, kept up to date move by move."""

    def __init__(self, peaks: Peaks, budget: int) -> None:
        self.peaks, self.left = peaks, budget
        snapshot, size = peaks.snapshot, len(peaks.snapshot.workers)
        self.load, self.speed, self.kind = snapshot.load, snapshot.team.capacity, snapshot.kind
        self.target = peaks.start.copy()
        self.used = counted(self.target, size, self.load) / self.speed
        self.room = snapshot.team.cap - counted(self.target, size)
        order = np.argsort(self.target, kind="stable")
        ends = np.searchsorted(self.target[order], np.arange(size + 1))
        self.held = [order[ends[w] : ends[w + 1]] for w in range(size)]
        self.takes = np.asarray(peaks.able.any(axis=0))

    def step(self) -> bool:
        """Whether a move or a swap off the highest worker was found."""
        giver = int(self.used.argmax())
        takers = np.flatnonzero(self.takes & (np.arange(len(self.used)) != giver))
        if self.left < 1 or not len(takers) or not len(self.held[giver]):
            return False
        nearest = np.argpartition(self.used[takers], min(NEAR, len(takers)) - 1)[:NEAR]
        takers = np.sort(takers[nearest])
        price = max(self.peaks.price, 1e-9 * self.peaks.mean)
        peak, row, taker, other = self._single(giver, takers)
        if peak + price > self.used[giver] > self.peaks.enough:  # a swap moves twice for one gain: only if it must be
            peak, row, taker, other = self._swap(giver, takers)
        moves = 1 if other < 0 else 2
        level = self.used[giver]
        if not (peak < level and peak + moves * price <= level):  # far above, a price adds nothing
            return False
        self._move(row, giver, taker)
        if other >= 0:
            self._move(other, taker, giver)
        self.left -= moves
        return True

    def _single(self, giver: int, takers: Ints) -> tuple[float, int, int, int]:
        """(peak of the two after, partition, taker, -1) of the best single move."""
        takers = takers[self.room[takers] > 0]
        held = self.held[giver]
        if not len(takers):
            return np.inf, -1, -1, -1
        load = self.load[held]
        peak = np.maximum(
            self.used[giver] - load[:, None] / self.speed[giver],
            self.used[takers] + load[:, None] / self.speed[takers],
        )
        able: Bools = self.peaks.able[np.ix_(self.kind[held], takers)]
        after = self.used[giver] - load[:, None] / self.speed[giver]
        cost = self._cost(peak, after) + LOWER * (self.used[takers] + load[:, None] / self.speed[takers])
        cost = np.where(able, cost, np.inf)
        at = int(cost.argmin())
        return (
            (float(peak.flat[at]) if able.flat[at] else np.inf),
            int(held[at // len(takers)]),
            int(takers[at % len(takers)]),
            -1,
        )

    def _swap(self, giver: int, takers: Ints) -> tuple[float, int, int, int]:
        """(peak of the two after, partition, taker, its partition in return) of the best swap with a low worker."""
        best = (np.inf, -1, -1, -1)
        if self.left < 2 or not self.takes[giver]:
            return best
        held = self.held[giver]
        order = takers[np.argsort(self.used[takers], kind="stable")][: max(2000 // max(len(held), 1), 2)]
        for taker in order.tolist():
            mine = held[np.take(self.peaks.able[:, taker], self.kind[held])]
            back = self.held[taker]
            back = back[np.take(self.peaks.able[:, giver], self.kind[back])]
            if not len(mine) or not len(back):
                continue
            more = self.load[mine][:, None] - self.load[back][None, :]
            peak = np.maximum(self.used[giver] - more / self.speed[giver], self.used[taker] + more / self.speed[taker])
            at = int(self._cost(peak, self.used[giver] - more / self.speed[giver]).argmin())
            if max(float(peak.flat[at]), self.peaks.mean) < best[0]:
                best = (
                    max(float(peak.flat[at]), self.peaks.mean),
                    int(mine[at // len(back)]),
                    taker,
                    int(back[at % len(back)]),
                )
        return best

    def _cost(self, peak: Floats, after: Floats) -> Floats:
        """The higher of the two, where nothing below the mean counts but what the giver loses of its own share."""
        mean = self.peaks.mean
        cost: Floats = np.maximum(peak, mean + np.abs(after - mean))
        return cost

    def _move(self, row: int, giver: int, taker: int) -> None:
        self.target[row] = taker
        self.held[giver] = self.held[giver][self.held[giver] != row]
        self.held[taker] = np.append(self.held[taker], row)
        for worker, sign in ((giver, -1), (taker, 1)):
            self.used[worker] += sign * self.load[row] / self.speed[worker]
            self.room[worker] -= sign
