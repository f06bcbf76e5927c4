"""Search for moves that lower the highest utilization, the peak: a beam for few moves, a descent for many.

Law: every move takes a partition off a worker at the peak, or makes room for such a move. A result is never worse than
its start.
"""

from dataclasses import dataclass

import numpy as np

from rota.core.assignors.hashing import hash_pairs
from rota.core.columns import count_per_worker
from rota.core.values import UNLIMITED, Bools, Codes, Floats, Ints, Snapshot

BEAM = 768
LOWER = 0.02  # weight of the taker's utilization among moves that are equally good for the giver
NEAR = 12  # a search considers this many of the highest and of the lowest workers, and of each one's partitions


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpace:
    """The assignment to improve, and what a move may do. Utilizations have the unit of load over capacity."""

    snapshot: Snapshot
    able: Bools  # kinds x workers: which workers may take the kind
    start: Codes
    mean: float
    price: float  # the least gain in utilization for a move
    enough: float = 0.0  # the utilization at the tolerance

    @classmethod
    def of(
        cls, snapshot: Snapshot, match: Bools, start: Codes, mean: float, price: float, tolerance: float = 0.0
    ) -> "SearchSpace":
        """Build the space around `start`. `price` and `tolerance` are in units of the mean utilization."""
        able: Bools = match & snapshot.team.active
        return cls(snapshot, able, start, mean, price * mean, tolerance * mean)


def search_beam(space: SearchSpace, budget: int) -> Codes:
    """Return the best assignment that a beam finds with at most `budget` moves. Each step relieves the highest worker.

    A state is dropped if more of its workers are above the best known peak than moves are left. If the beam has room for
    all other states, the result is optimal.
    """
    target = descend(space, budget)
    workers, rows = _find_relevant(space)
    if budget <= 0 or len(workers) < 2 or not len(rows):
        return target
    beam = _Beam(space, workers, rows)
    beam.bound(target)
    for left in range(budget - 1, -1, -1):
        beam.step(left)
    return target if beam.best is None else beam.target()


class _Beam:
    """The states of a search: the owner of each relevant partition, the utilization and room of each relevant worker."""

    def __init__(self, space: SearchSpace, workers: Ints, rows: Ints) -> None:
        snapshot, size = space.snapshot, len(space.snapshot.workers)
        self.space, self.workers, self.rows = space, workers, rows
        place = np.full(size, -1, np.int64)
        place[workers] = np.arange(len(workers))
        self.speed, self.load = snapshot.team.capacity[workers], snapshot.load[rows]
        used = count_per_worker(space.start, size, snapshot.load) / snapshot.team.capacity
        self.others = float(np.delete(used, workers).max(initial=0.0))
        self.home = place[space.start[rows]]
        self.owner, self.used = self.home[None, :].astype(np.int16), used[workers][None, :]
        self.room = (snapshot.team.cap - count_per_worker(space.start, size))[workers][None, :]
        self.may: Bools = space.able[np.ix_(snapshot.kind[rows], workers)]
        self.alike = bool(self.may.all() and (self.speed == self.speed[0]).all() and (self.room > 2**20).all())
        self.best: Ints | None = None
        self.cost = max(float(used.max()), self.others)

    def bound(self, target: Codes) -> None:
        """Record the cost of `target`: from now on only a lower cost counts."""
        snapshot = self.space.snapshot
        used = count_per_worker(target, len(snapshot.workers), snapshot.load) / snapshot.team.capacity
        moves = int(np.count_nonzero(target != self.space.start))
        self.cost = min(self.cost, float(used.max()) + self.space.price * moves)

    def step(self, left: int) -> None:
        """Make every move off the highest worker of every state. Keep the states that `left` more moves may improve."""
        limit = self.cost * (1 - 1e-12)
        if not left:
            self._drop_lost_states(limit)
        high = self.used.argmax(axis=1)
        state, row = np.nonzero(self.owner == high[:, None])
        takers: Bools = np.take(self.may, row, axis=0)
        if not left:  # the last move goes to the lowest worker, or one of the lowest that may take it
            takers &= self._find_lowest()[state] & (self._measure_gaps(limit)[state] > self.load[row][:, None])
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
        reach = self._bound_peaks(left, state, giver, taker, given[alive], taken[alive])
        pick = _select_states(BEAM if left != 1 else 16 * BEAM, np.round(reach, 12), energy)
        state, row, taker, giver = state[pick], row[pick], taker[pick], giver[pick]
        index, weight = np.arange(len(pick)), self.load[row]
        self.owner, self.used, self.room = self.owner[state], self.used[state], self.room[state]
        self.owner[index, row] = taker
        for worker, sign in ((giver, -1), (taker, 1)):
            self.used[index, worker] += sign * weight / self.speed[worker]
            self.room[index, worker] -= sign
        name = self.owner @ _SALT[: self.owner.shape[1]]  # the same state may be reached in two ways
        _, first = np.unique(name, return_index=True)
        self.owner, self.used, self.room = self.owner[first], self.used[first], self.room[first]
        self._record_best()

    def _measure_gaps(self, limit: float) -> Floats:
        """Return the load that each worker may take and stay below the limit, negative for a worker above the limit."""
        gap: Floats = (limit - self.used) * self.speed
        return gap

    def _drop_lost_states(self, limit: float) -> None:
        """Drop the states that one move cannot improve: no worker has room for the surplus of the highest worker."""
        gap = self._measure_gaps(limit)
        high = self.used.argmax(axis=1)
        keep = gap.max(axis=1) > -gap[np.arange(len(high)), high]
        self.owner, self.used, self.room = self.owner[keep], self.used[keep], self.room[keep]

    def _find_lowest(self) -> Bools:
        wide = min(2 if self.alike else 6, self.used.shape[1])
        low = np.zeros(self.used.shape, np.bool_)
        np.put_along_axis(low, np.argsort(self.used, axis=1)[:, :wide], True, axis=1)
        return low

    def _bound_peaks(self, left: int, state: Ints, giver: Ints, taker: Ints, given: Floats, taken: Floats) -> Floats:
        """Return a peak that `left` more moves cannot go below, if each move relieves one worker."""
        wide = min(left + 3, self.used.shape[1])
        top = np.argsort(-self.used, axis=1)[:, :wide]
        others = np.take_along_axis(self.used, top, axis=1)[state]
        top = top[state]
        others = np.where((top == giver[:, None]) | (top == taker[:, None]), -np.inf, others)
        after = np.column_stack((others, given, taken))
        after.sort(axis=1)
        reach: Floats = after[:, -1 - left]
        return reach

    def _record_best(self) -> None:
        if not len(self.owner):
            return
        peak = np.maximum(self.used.max(axis=1), self.others)
        cost = peak + self.space.price * (self.owner != self.home).sum(axis=1)
        cost = np.where((self.room >= 0).all(axis=1), cost, np.inf)
        winner = int(cost.argmin())
        if cost[winner] < self.cost * (1 - 1e-12):
            self.best, self.cost = self.owner[winner], float(cost[winner])

    def target(self) -> Codes:
        """Return the best state as an owner column."""
        target = self.space.start.copy()
        target[self.rows] = self.workers[self.best]
        return target


_SALT = hash_pairs(np.arange(4096), np.zeros(1, np.int64))[:, 0]


def _select_states(most: int, reach: Floats, energy: Floats) -> Ints:
    """Select `most` states: one half by `reach` with ties by `energy`, the other half by `energy` alone."""
    if len(reach) <= most:
        return np.arange(len(reach))
    half = most // 2
    last = np.partition(reach, half - 1)[half - 1]
    sure, tied = np.flatnonzero(reach < last), np.flatnonzero(reach == last)
    tied = tied[np.argsort(energy[tied], kind="stable")[: half - len(sure)]]
    return np.union1d(np.concatenate((sure, tied)), np.argpartition(energy, half - 1)[:half])


def _find_relevant(space: SearchSpace) -> tuple[Ints, Ints]:
    """Return the highest and the lowest workers, and their partitions whose loads come nearest to half of the gap."""
    snapshot, start = space.snapshot, space.start
    used = count_per_worker(start, len(snapshot.workers), snapshot.load) / snapshot.team.capacity
    order = np.argsort(-used, kind="stable")
    takes = np.asarray(space.able.any(axis=0))
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


def descend(space: SearchSpace, budget: int | None) -> Codes:
    """Move or swap partitions of the highest worker, one by one, until none is worth its price or the budget is spent."""
    descent = Descent(space, UNLIMITED if budget is None else budget)
    while descent.step():
        pass
    return descent.target


class Descent:
    """The assignment, utilizations and rooms after each move of a descent."""

    def __init__(self, space: SearchSpace, budget: int) -> None:
        self.space, self.left = space, budget
        snapshot, size = space.snapshot, len(space.snapshot.workers)
        self.load, self.speed, self.kind = snapshot.load, snapshot.team.capacity, snapshot.kind
        self.target = space.start.copy()
        self.used = count_per_worker(self.target, size, self.load) / self.speed
        self.room = snapshot.team.cap - count_per_worker(self.target, size)
        order = np.argsort(self.target, kind="stable")
        ends = np.searchsorted(self.target[order], np.arange(size + 1))
        self.held = [order[ends[w] : ends[w + 1]] for w in range(size)]
        self.takes = np.asarray(space.able.any(axis=0))

    def step(self) -> bool:
        """Make the best move or swap off the highest worker. Return False if there is none."""
        giver = int(self.used.argmax())
        takers = np.flatnonzero(self.takes & (np.arange(len(self.used)) != giver))
        if self.left < 1 or not len(takers) or not len(self.held[giver]):
            return False
        nearest = np.argpartition(self.used[takers], min(NEAR, len(takers)) - 1)[:NEAR]
        takers = np.sort(takers[nearest])
        price = max(self.space.price, 1e-9 * self.space.mean)
        peak, row, taker, other = self._find_move(giver, takers)
        if peak + price > self.used[giver] > self.space.enough:  # a swap is two moves for one gain: the last resort
            peak, row, taker, other = self._find_swap(giver, takers)
        moves = 1 if other < 0 else 2
        level = self.used[giver]
        if not (peak < level and peak + moves * price <= level):  # at a huge level, adding the price changes nothing
            return False
        self._apply_move(row, giver, taker)
        if other >= 0:
            self._apply_move(other, taker, giver)
        self.left -= moves
        return True

    def _find_move(self, giver: int, takers: Ints) -> tuple[float, int, int, int]:
        """Return the best single move: (peak of giver and taker after it, partition, taker, -1)."""
        takers = takers[self.room[takers] > 0]
        held = self.held[giver]
        if not len(takers):
            return np.inf, -1, -1, -1
        load = self.load[held]
        peak = np.maximum(
            self.used[giver] - load[:, None] / self.speed[giver],
            self.used[takers] + load[:, None] / self.speed[takers],
        )
        able: Bools = self.space.able[np.ix_(self.kind[held], takers)]
        after = self.used[giver] - load[:, None] / self.speed[giver]
        cost = self._price_exchanges(peak, after) + LOWER * (self.used[takers] + load[:, None] / self.speed[takers])
        cost = np.where(able, cost, np.inf)
        at = int(cost.argmin())
        return (
            (float(peak.flat[at]) if able.flat[at] else np.inf),
            int(held[at // len(takers)]),
            int(takers[at % len(takers)]),
            -1,
        )

    def _find_swap(self, giver: int, takers: Ints) -> tuple[float, int, int, int]:
        """Return the best swap with a low worker: (peak of both after it, partition, taker, the partition in return)."""
        best = (np.inf, -1, -1, -1)
        if self.left < 2 or not self.takes[giver]:
            return best
        held = self.held[giver]
        order = takers[np.argsort(self.used[takers], kind="stable")][: max(2000 // max(len(held), 1), 2)]
        for taker in order.tolist():
            mine = held[np.take(self.space.able[:, taker], self.kind[held])]
            back = self.held[taker]
            back = back[np.take(self.space.able[:, giver], self.kind[back])]
            if not len(mine) or not len(back):
                continue
            more = self.load[mine][:, None] - self.load[back][None, :]
            peak = np.maximum(self.used[giver] - more / self.speed[giver], self.used[taker] + more / self.speed[taker])
            at = int(self._price_exchanges(peak, self.used[giver] - more / self.speed[giver]).argmin())
            if max(float(peak.flat[at]), self.space.mean) < best[0]:
                best = (
                    max(float(peak.flat[at]), self.space.mean),
                    int(mine[at // len(back)]),
                    taker,
                    int(back[at % len(back)]),
                )
        return best

    def _price_exchanges(self, peak: Floats, after: Floats) -> Floats:
        """Return the cost of each exchange: its peak, or, below the mean, how far the giver ends from the mean."""
        mean = self.space.mean
        cost: Floats = np.maximum(peak, mean + np.abs(after - mean))
        return cost

    def _apply_move(self, row: int, giver: int, taker: int) -> None:
        self.target[row] = taker
        self.held[giver] = self.held[giver][self.held[giver] != row]
        self.held[taker] = np.append(self.held[taker], row)
        for worker, sign in ((giver, -1), (taker, 1)):
            self.used[worker] += sign * self.load[row] / self.speed[worker]
            self.room[worker] -= sign
