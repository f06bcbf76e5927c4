"""The order of a plan's moves.

Laws, in rank order:
1. If any order keeps every cap after each single move, this order does. Full workers that pass partitions around in a
   circle have no such order: when only circles remain, one worker of each circle receives before it releases.
2. Unavoidable moves come first, then each time a move of the giver with the most partitions left for its capacity. A move
   to a full worker waits until a move leaves that worker.

Why law 1 holds: a move uses room at its taker and leaves room at its giver, so room travels against the moves. Room
enables all moves unless it ends too early, at a worker that has nothing left to give. A root is a worker that has room at
the end or that receives nothing. Each other worker receives its last partition from a giver nearer to a root, and the
rest in any order (the last exits of an Euler trail, as in the BEST theorem). A worker that no path from a root reaches is
in a circle of full workers.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import numpy as np

from rota.core.columns import count_per_worker
from rota.core.values import UNLIMITED, Bools, Codes, Ints, Snapshot


def order_moves(snapshot: Snapshot, target: Codes, moves: Ints, must: Bools) -> Ints:
    """Return `moves`, the indices of partitions that get a new owner, ordered by the laws. `must` marks unavoidable ones."""
    first = must[moves]
    if not first.all():
        moves = np.concatenate((moves[first], order_by_burden(snapshot, moves[~first])))
    if not (snapshot.team.cap < UNLIMITED).any():
        return moves
    # a partition that no worker gets is released before the first move
    staying = np.where(target >= 0, snapshot.owner, -1)
    room = snapshot.team.cap - count_per_worker(staying, len(snapshot.workers))
    if (count_per_worker(target[moves], len(room)) <= np.maximum(room, 0)).all():
        return moves
    return moves[MoveQueue(snapshot.owner[moves].tolist(), target[moves].tolist(), room.tolist()).order()]


def order_by_burden(snapshot: Snapshot, moves: Ints) -> Ints:
    """Return `moves` ordered: the next move is always of the giver with the most partitions left for its capacity."""
    giver = snapshot.owner[moves]
    burden = count_per_worker(snapshot.owner, len(snapshot.workers)) / snapshot.team.capacity
    order = np.argsort(giver, kind="stable")
    ranks = np.empty(len(moves), np.int64)
    starts = np.searchsorted(giver[order], giver[order])
    ranks[order] = np.arange(len(moves)) - starts
    left = burden[giver] - ranks / snapshot.team.capacity[giver]
    return np.asarray(moves[np.argsort(-left, kind="stable")])


class MoveQueue:
    """The remaining moves, each identified by its place in the preferred order, and the current room of each worker."""

    def __init__(self, giver: list[int], taker: list[int], room: list[int]) -> None:
        self.giver, self.taker, self.room = giver, taker, room
        self.done: list[int] = []
        self.pending = [True] * len(giver)
        self.into: dict[int, deque[int]] = {}
        self.out: dict[int, list[int]] = {}
        for place, (g, t) in enumerate(zip(giver, taker, strict=True)):
            self.into.setdefault(t, deque()).append(place)
            self.out.setdefault(max(g, -1), []).append(place)

    def order(self) -> list[int]:
        """Return all places in an order that keeps the caps, except in circles of full workers."""
        self.delay_moves_from(w for w in self.out if w < 0 or w not in self.into or self._count_final_room(w) > 0)
        self._append_ready([w for w in self.into if self.room[w] > 0])
        for place in range(len(self.pending)):  # only circles are left: one worker of each receives before it releases
            if self.pending[place]:
                worker = self.taker[place]
                self.delay_moves_from([worker])
                self.room[worker] += 1
                self._append_ready([worker])
                self.room[worker] -= 1
        return self.done

    def _count_final_room(self, worker: int) -> int:
        return self.room[worker] - len(self.into[worker]) + len(self.out.get(worker, ()))

    def delay_moves_from(self, roots: Iterable[int]) -> None:
        """Choose the last move to each worker outside `roots`: a move from a giver nearer to a root, and of several such
        moves the last in the preferred order."""
        reached = set(roots)
        line = [-place for worker in reached for place in self.out[worker] if self.pending[place]]
        heapify(line)
        while line:
            place = -heappop(line)
            worker = self.taker[place]
            if worker in reached:
                continue
            reached.add(worker)
            self.into[worker].remove(place)
            self.into[worker].append(place)
            for behind in self.out.get(worker, ()):
                if self.pending[behind]:
                    heappush(line, -behind)

    def _append_ready(self, ready: list[int]) -> None:
        """Append moves whose taker has room, in the preferred order, until no taker has room."""
        line = [(self.into[worker][0], worker) for worker in ready]
        heapify(line)
        while line:
            place, worker = heappop(line)
            self.into[worker].popleft()
            self.pending[place] = False
            self.done.append(place)
            self.room[worker] -= 1
            if self.room[worker] > 0 and self.into[worker]:
                heappush(line, (self.into[worker][0], worker))
            giver = self.giver[place]
            if giver >= 0:
                self.room[giver] += 1
                if self.room[giver] == 1 and self.into.get(giver):
                    heappush(line, (self.into[giver][0], giver))
