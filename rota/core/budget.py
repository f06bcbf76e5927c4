"""Which moves of a proposal happen under a budget.

Laws: every unavoidable move happens, and so do the fewest moves that make room for it (they had to happen, then, and are
not counted); a placement for which no move makes room, because the proposal gives up another partition instead, is held
back. At most `budget` further moves happen, the most burdened giver first, each with those that make room for it, which
are counted. So nobody ends over its cap, whatever the budget, and as many partitions are placed as proposed. What is held
back stays where it is.
"""

from collections import deque

import numpy as np

from rota.core.eligibility import counted
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
        self.refused: dict[tuple[int, int], float] = {}  # for how many moves there was no chain, since the last one

    def take(self, move: int, most: float = np.inf) -> list[int]:
        """Takes `move` and the fewest moves that make room for it, itself first; nothing if that takes more than `most`."""
        home = -1 if self.column[move] < 0 else int(self.owner[move])
        key = int(self.target[move]), home
        if self.refused.get(key, 0) >= most:
            return []
        chain = self._chain(move, home, most)
        if not chain:
            self.refused[key] = most
            return []
        self.refused.clear()
        for taken in chain:
            if self.column[taken] >= 0:
                waiting = self.leaving[int(self.owner[taken])][int(self.target[taken])]
                waiting.pop(-1 if waiting[-1] == taken else waiting.index(taken))
            self.column[taken] = self.target[taken]
        self.room[int(self.target[chain[-1]])] -= 1
        if home >= 0:
            self.room[home] += 1
        return chain

    def _chain(self, move: int, home: int, most: float) -> list[int]:
        """From `move` on, each move goes where the next one leaves, the last one where there is room: in the end also
        where `move` itself leaves."""
        into = {int(self.target[move]): move}
        line = deque((worker, 1) for worker in into)
        while line:
            worker, length = line.popleft()
            if self.room[worker] > 0 or worker == home:
                chain = [into[worker]]
                while chain[-1] != move:
                    chain.append(into[int(self.owner[chain[-1]])])
                return chain[::-1]
            for taker, moves in self.leaving.get(worker, {}).items() if length < most else ():
                if moves and taker not in into:
                    into[taker] = moves[-1]
                    line.append((taker, length + 1))
        return []
