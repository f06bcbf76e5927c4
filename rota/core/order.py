"""The order of a plan's moves.

Laws: done one after the other the moves keep every cap at every instant, if any order can; a circle of full workers, for
which none can, is broken at one worker, when nothing else is left to do. Among such orders: what had to move first, then
the most burdened giver first; a move into a full worker waits for a move out of it.

Why it holds: room walks from taker to giver, against the moves. It can walk over all of them unless it is led into a dead
end too early. So each full worker takes last from a giver that lies on a way to somebody who has room in the end, or who
takes nothing; the other moves into it may come in any order (the last exits of an Euler trail, as in the BEST theorem).
Workers without such a way are circles in which everybody is full before and after.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import numpy as np

from rota.core.columns import counted
from rota.core.values import UNLIMITED, Bools, Codes, Ints, Snapshot


def ordered(snapshot: Snapshot, target: Codes, moves: Ints, must: Bools) -> Ints:
    """`moves` (indices of partitions that are placed) in order."""
    first = must[moves]
    if not first.all():
        moves = np.concatenate((moves[first], by_burden(snapshot, moves[~first])))
    if not (snapshot.team.cap < UNLIMITED).any():
        return moves
    staying = np.where(target >= 0, snapshot.owner, -1)  # what nobody gets is let go before anything moves
    room = snapshot.team.cap - counted(staying, len(snapshot.workers))
    if (counted(target[moves], len(room)) <= np.maximum(room, 0)).all():
        return moves
    return moves[_Line(snapshot.owner[moves].tolist(), target[moves].tolist(), room.tolist()).order()]


def by_burden(snapshot: Snapshot, moves: Ints) -> Ints:
    """`moves`, the k-th of a giver that has more than others before theirs."""
    giver = snapshot.owner[moves]
    burden = counted(snapshot.owner, len(snapshot.workers)) / snapshot.team.capacity
    order = np.argsort(giver, kind="stable")
    ranks = np.empty(len(moves), np.int64)
    starts = np.searchsorted(giver[order], giver[order])
    ranks[order] = np.arange(len(moves)) - starts
    left = burden[giver] - ranks / snapshot.team.capacity[giver]
    return np.asarray(moves[np.argsort(-left, kind="stable")])


class _Line:
    """Moves by their place in the wished order, each behind the room that it needs."""

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
        """All places, in an order that keeps the caps but for circles."""
        self._last_from(w for w in self.out if w < 0 or w not in self.into or self._room_in_the_end(w) > 0)
        self._run([w for w in self.into if self.room[w] > 0])
        for place in range(len(self.pending)):  # what is left are circles: one worker of each takes before it gives
            if self.pending[place]:
                worker = self.taker[place]
                self._last_from([worker])
                self.room[worker] += 1
                self._run([worker])
                self.room[worker] -= 1
        return self.done

    def _room_in_the_end(self, worker: int) -> int:
        return self.room[worker] - len(self.into[worker]) + len(self.out.get(worker, ()))

    def _last_from(self, roots: Iterable[int]) -> None:
        """Whoever is not a root takes last from a giver that is nearer to one; if there is a choice, the last in line."""
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

    def _run(self, ready: list[int]) -> None:
        """Any move whose taker has room, the first in line first, until there is none."""
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
