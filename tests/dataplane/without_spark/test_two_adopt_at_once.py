"""Two people adopt at once: during each third call of the first to ZooKeeper, the second adopts and lets its runs work.

Law: both succeed, no token base decreases, and the group continues at the offsets of its tables. This holds if they
adopt the same pipeline, and if they adopt two pipelines of one group.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from rota.coordination.group_state import GroupState
from rota.coordination.records import Checkpoint
from rota.coordination.store import Node, Op
from rota.people.adopt import adopt
from rota.pipeline import delta
from simulator.memory_store import MemoryServer, MemoryStore
from tests.dataplane.without_spark.trickle import Trickle

TOKEN = 90_000  # of the table, from a ZooKeeper that is gone


class Interrupted(MemoryStore):
    """A client whose process pauses before call number `at`, while something happens."""

    def __init__(self, server: MemoryServer, at: int, act: Callable[[], object]) -> None:
        super().__init__(server)
        self.left, self.act = at, act

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        self._count()
        return super().get_many(paths)

    def children(self, path: str) -> tuple[str, ...]:
        self._count()
        return super().children(path)

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        self._count()
        return super().multi(ops)

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


def outlive_zookeeper(folder: Path) -> Trickle:
    """Commit a batch to the table, under a token that the present ZooKeeper lacks. ZooKeeper has a checkpoint ahead of the
    table, and one of a partition that the table lacks."""
    one = Trickle(folder)
    one.land()
    one.consume()
    claimed = one.ports.main.claim({"p:a": TOKEN}, {"p:a": 0})
    assert claimed.offsets == {"p:a": 1}
    tree = one.world.tree
    tree.store.delete(tree.paths.meta)
    tree.found()
    for key, offset in (("a", 7), ("c", 9)):
        one.world.tree.grow("p", [key])
        tree.put(tree.paths.checkpoint(f"p:{key}"), Checkpoint(offset=offset, token=1, run_id="r"))
    return one


def adopt_another(one: Trickle) -> int:
    """Adopt another pipeline of the group, whose table does not exist yet."""
    another = replace(one.world.pipeline, name="q", table=delta(str(one.world.folder / "tables" / "q")))
    return adopt(one.world.open(), [another]).token_base


def adopt_too(one: Trickle) -> int:
    return adopt(one.world.open(), [one.world.pipeline]).token_base


def adopt_and_work(one: Trickle) -> int:
    base = adopt_too(one)
    one.land()
    one.consume()
    return base


@pytest.mark.parametrize("second", [adopt_too, adopt_and_work, adopt_another])
def test_both_end_well_and_the_group_goes_on(second: Callable[[Trickle], int], tmp_path: Path) -> None:
    for at in count(2, 3):
        one, bases = outlive_zookeeper(tmp_path / str(at)), list[int]()
        store = Interrupted(one.world.server, at, partial(lambda stage, said: said.append(second(stage)), one, bases))
        struck = adopt(GroupState(store, "g"), [one.world.pipeline]).token_base
        if not bases:
            assert at > 30, "so many calls has an adoption at least"
            return
        assert bases[0] <= struck == one.world.tree.meta().token_base > TOKEN
        one.land()
        one.land("b")
        one.consume()
        assert one.damage() == (Counter(), Counter()), at
        assert not one.world.tree.parked(), at
        offsets = {p: c.record.offset for p, c in one.world.tree.checkpoints().items()}
        assert offsets == {"p:a": 2 + (second is adopt_and_work), "p:b": 1}, at
        assert all(own.token > TOKEN for own in one.world.tree.owned(("p:a", "p:b")).values())
