"""Select the moves of a proposal that happen under a budget.

Laws:
- Every unavoidable move happens, together with the fewest moves that make room for it. Neither counts against the budget.
  A placement waits if its room is that of a partition to which the proposal gives no worker: that partition stays.
- At most `budget` voluntary moves happen, including those that make room for another voluntary move. The giver with the
  most partitions for its capacity gives first.
- A partition whose move waits keeps its owner.
- Therefore no worker ends over its cap, whatever the budget, and as many partitions have an owner as proposed.
"""

from collections import deque

import numpy as np

from rota.core.columns import count_per_worker
from rota.core.order import order_by_burden
from rota.core.values import UNLIMITED, Bools, Codes, Ints, Snapshot


def apply_budget(
    snapshot: Snapshot, target: Codes, changed: Ints, forced: Bools, budget: int | None
) -> tuple[Codes, list[int]]:
    """Return the target that the budget allows now, and the partitions that move only to make room for unavoidable moves.

    `changed` are the partitions whose owner the proposal changes. `forced` marks the partitions of unavoidable moves. A
    `budget` of None is no bound. If every move is allowed, the returned target is the object `target` itself.
    """
    had = forced[changed]
    must, voluntary, makers = changed[had], changed[~had], list[int]()
    capped = bool((snapshot.team.cap < UNLIMITED).any())
    if not capped and (budget is None or len(voluntary) <= budget):
        return target, makers
    wish = order_by_burden(snapshot, voluntary[target[voluntary] >= 0])
    column, rooms = target.copy(), None
    column[voluntary] = snapshot.owner[voluntary]
    if capped and _exceeds_caps(snapshot, column):
        column[must] = -1
        rooms = FreeRoom(snapshot, target, column, wish)
        for move in must[target[must] >= 0].tolist():
            makers += rooms.take(move)[1:]
    if budget is None or len(voluntary) - len(makers) <= budget:
        return target, makers
    if not capped or (rooms is None and not _exceeds_caps(snapshot, np.append(column, target[wish[:budget]]))):
        column[wish[:budget]] = target[wish[:budget]]
        return column, makers
    rooms = rooms or FreeRoom(snapshot, target, column, wish)
    for move in wish.tolist():
        if not budget:
            break
        if column[move] != target[move]:
            budget -= len(rooms.take(move, budget))
    return column, makers


def _exceeds_caps(snapshot: Snapshot, column: Codes) -> bool:
    return bool((count_per_worker(column, len(snapshot.workers)) > snapshot.team.cap).any())


class FreeRoom:
    """The free room of each worker while moves are allowed one by one. `take` changes `column`, the target so far, in
    place. `wish` lists the voluntary moves in order."""

    def __init__(self, snapshot: Snapshot, target: Codes, column: Codes, wish: Ints) -> None:
        self.column, self.target, self.owner = column, target, snapshot.owner
        self.room = (snapshot.team.cap - count_per_worker(column, len(snapshot.workers))).tolist()
        self.leaving: dict[int, dict[int, list[int]]] = {}  # giver -> taker -> moves, in reverse order
        for move in wish[::-1].tolist():
            giver, taker = int(self.owner[move]), int(target[move])
            self.leaving.setdefault(giver, {}).setdefault(taker, []).append(move)
        self.refused: dict[tuple[int, int], float] = {}
        # (taker, home) -> the length up to which no chain exists; valid until a worker gains room

    def take(self, move: int, most: float = np.inf) -> list[int]:
        """Allow `move` and the fewest moves that make room for it. Return all these moves, `move` first, or [] if no
        chain of at most `most` moves exists."""
        home = -1 if self.column[move] < 0 else int(self.owner[move])
        if self.refused.get((int(self.target[move]), home), 0) >= most:
            return []
        chain = self.find_chain(move, home, most)
        if not chain:
            return []
        for taken in chain:
            if self.column[taken] >= 0:
                self._forget_move(taken)
            self.column[taken] = self.target[taken]
        end = int(self.target[chain[-1]])
        if home >= 0 and end != home:
            self.room[home] += 1
            self.refused.clear()
        if end != home:
            self.room[end] -= 1
        return chain

    def _forget_move(self, move: int) -> None:
        """Remove an allowed move from the moves that can still make room."""
        takers, taker = self.leaving[int(self.owner[move])], int(self.target[move])
        waiting = takers[taker]
        waiting.pop(-1 if waiting[-1] == move else waiting.index(move))
        if not waiting:
            del takers[taker]

    def find_chain(self, move: int, home: int, most: float) -> list[int]:
        """Return the shortest chain of moves that starts with `move`. Each move goes to the giver of the next move, the
        last to a worker with room or to `home`, the giver of `move`. Return [] if no chain has at most `most` moves."""
        first = int(self.target[move])
        into, line = {first: move}, deque([(first, 1)])
        if self.room[first] > 0:
            return [move]
        shut = self.refused if home < 0 else {}  # a placement has no limit, so these takers lead to no room
        while line:
            worker, length = line.popleft()
            if length >= most:
                break
            for taker, moves in self.leaving.get(worker, {}).items():
                if taker in into or (taker, home) in shut:
                    continue
                into[taker] = moves[-1]
                if self.room[taker] > 0 or taker == home:
                    chain = [into[taker]]
                    while chain[-1] != move:
                        chain.append(into[int(self.owner[chain[-1]])])
                    return chain[::-1]
                line.append((taker, length + 1))
        self.refused |= {(worker, home): most for worker in (into if home < 0 else [first])}
        return []
