"""Publishers that are killed, and what a reader finds of what they published."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from rota.coordination.group_state import GroupState
from rota.coordination.store import Node, Op, Set
from simulator.memory_store import MemoryServer, MemoryStore

Targets = Mapping[str, frozenset[str]]


class Killed(Exception):
    """The publisher's process ends here."""


class Mortal(MemoryStore):
    """A store whose process is killed before its `left`-th multi from now, and that counts what it wrote."""

    def __init__(self, server: MemoryServer, left: int | None = None) -> None:
        super().__init__(server)
        self.left, self.multis, self.writes = left, 0, 0

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1
        self.multis += 1
        self.writes += sum(isinstance(op, Set) and not op.path.endswith("/clock") for op in ops)
        return super().multi(ops)


def parts(letters: str) -> frozenset[str]:
    """A partition a letter."""
    return frozenset(f"s:{letter}" for letter in letters)


def read_targets(tree: GroupState) -> Targets:
    """What every reader would find now, straight from the records: worker -> its partitions, if any."""
    _, targets = tree.targets()
    return {w: t.partitions for w, t in targets.items() if t.partitions}


def count_damage(tree: GroupState, published: Targets) -> int:
    """How many partitions a reader finds elsewhere than published: nowhere, at another worker, or in two places."""
    found: Counter[tuple[str, str]] = Counter((p, w) for w, ids in read_targets(tree).items() for p in ids)
    wanted = Counter((p, w) for w, ids in published.items() for p in ids)
    return sum((found - wanted).values()) + sum((wanted - found).values())


def draw_targets(seed: int, workers: int, partitions: int) -> Targets:
    """Some assignment of all partitions to some of the workers."""
    chance = random.Random(seed)
    names = chance.sample([f"w{i}" for i in range(workers)], chance.randint(1, workers))
    owner = {f"s:{i}": chance.choice(names) for i in range(partitions)}
    return {w: frozenset(p for p, o in owner.items() if o == w) for w in names}


def found_group(server: MemoryServer) -> GroupState:
    tree = GroupState(server.connect(), "default")
    tree.found()
    return tree
