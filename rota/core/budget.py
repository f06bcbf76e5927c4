"""Which moves of a proposal happen under a budget.

Laws: every unavoidable move happens, and so do the fewest moves that make room for it (they had to happen, then, and are
not counted); a placement for which no move makes room, because the proposal gives up another partition instead, is held
back. At most `budget` further moves happen, the most burdened giver first, each with those that make room for it, which
are counted. So nobody ends over its cap, whatever the budget, and as many partitions are placed as proposed. What is held
back stays where it is.
"""

from collections import deque

import numpy as np

from rota.core.columns import counted
from rota.core.order import by_burden
from rota.core.values import UNLIMITED, Bools, Codes, Ints, Snapshot


def chosen(
    snapshot: Snapshot, target: Codes, changed: Ints, forced: Bools, budget: int | None
) -> tuple[Codes, list[int]]:
    """The target that comes true now (`target` itself if all of it), and what of `changed`, the partitions that it
    moves or gives up, makes room for unavoidable moves."""
    had = forced[changed]
    must, voluntary, makers = changed[had], changed[~had], list[int]()
    capped = bool((snapshot.team.cap < UNLIMITED).any())
    if not capped and (budget is None or len(voluntary) <= budget):
        return target, makers
    wish = by_burden(snapshot, voluntary[target[voluntary] >= 0])
    column, rooms = target.copy(), None
    column[voluntary] = snapshot.owner[voluntary]
    if capped and _over(snapshot, column):
        column[must] = -1
        rooms = _Rooms(snapshot, target, column, wish)
        for move in must[target[must] >= 0].tolist():
            makers += rooms.take(move)[1:]
    if budget is None or len(voluntary) - len(makers) <= budget:
        return target, makers
    if not capped or (rooms is None and not _over(snapshot, np.append(column, target[wish[:budget]]))):
        column[wish[:budget]] = target[wish[:budget]]
        return column, makers
    rooms = rooms or _Rooms(snapshot, target, column, wish)
    for move in wish.tolist():
        if not budget:
            break
        if column[move] != target[move]:
            budget -= len(rooms.take(move, budget))
    return column, makers


def _over(snapshot: Snapshot, column: Codes) -> bool:
    return bool((counted(column, len(snapshot.workers)) > snapshot.team.cap).any())


class _Rooms:
    """The rooms that the chosen moves leave: `column` is the target so far, changed in place, `wish` are the voluntary
    moves in order."""

    def __init__(self, snapshot: Snapshot, target: Codes, column: Codes, wish: Ints) -> None:
        self.column, self.target, self.owner = column, target, snapshot.owner
        self.room = (snapshot.team.cap - counted(column, len(snapshot.workers))).tolist()
        self.leaving: dict[int, dict[int, list[int]]] = {}  # giver -> taker -> moves, the first in order last
        for move in wish[::-1].tolist():
            giver, taker = int(self.owner[move]), int(target[move])
            self.leaving.setdefault(giver, {}).setdefault(taker, []).append(move)
        self.refused: dict[tuple[int, int], float] = {}
        # (taker, home) -> for how many moves there was no chain; rooms that close and moves that are done open none

    def take(self, move: int, most: float = np.inf) -> list[int]:
        """Takes `move` and the fewest moves that make room for it, itself first; nothing if that takes more than `most`."""
        home = -1 if self.column[move] < 0 else int(self.owner[move])
        if self.refused.get((int(self.target[move]), home), 0) >= most:
            return []
        chain = self._chain(move, home, most)
        if not chain:
            return []
        for taken in chain:
            if self.column[taken] >= 0:
                self._leaves(taken)
            self.column[taken] = self.target[taken]
        end = int(self.target[chain[-1]])
        if home >= 0 and end != home:
            self.room[home] += 1
            self.refused.clear()
        if end != home:
            self.room[end] -= 1
        return chain

    def _leaves(self, move: int) -> None:
        """A move that is done makes no more room."""
        takers, taker = self.leaving[int(self.owner[move])], int(self.target[move])
        waiting = takers[taker]
        waiting.pop(-1 if waiting[-1] == move else waiting.index(move))
        if not waiting:
            del takers[taker]

    def _chain(self, move: int, home: int, most: float) -> list[int]:
        """From `move` on, each move goes where the next one leaves, the last one where there is room: in the end also
        where `move` itself leaves."""
        first = int(self.target[move])
        into, line = {first: move}, deque([(first, 1)])
        if self.room[first] > 0:
            return [move]
        shut = self.refused if home < 0 else {}  # of a placement, which has no bound: nobody there leads to room
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
