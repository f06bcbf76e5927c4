"""A publication whose reply or request got lost is resolved; readers that race one see what was published, nothing else."""

import random
from collections.abc import Callable, Sequence

import pytest

from rota.coordination.group_state import GroupState
from rota.coordination.publication import (
    Publication,
    Term,
    publish,
    take_control,
)
from rota.coordination.store import Node, Op
from rota.errors import Conflict, Unavailable
from simulator.memory_store import MemoryServer, MemoryStore
from tests.conformance.publishers import count_damage, draw_targets, found_group, parts, read_targets
from tests.conformance.worlds import World


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_lost_reply_at_any_write_is_resolved(world: World, tree: GroupState, what: str) -> None:
    term, send = take_control(tree), tree.store.multi
    for number in range(1, 9):
        left = [number]

        def multi(ops: Sequence[Op], left: list[int] = left) -> tuple[Node | None, ...]:
            left[0] -= 1
            if left[0] == 0:
                world.lose(tree.store, what)
            return send(ops)

        tree.store.multi = multi  # type: ignore[method-assign]
        wanted = draw_targets(number, 3, 10) | {"w9": frozenset({f"s:extra{number}"})}
        done = publish(tree, term, Publication(wanted))
        tree.store.multi, term = send, done.term  # type: ignore[method-assign]
        assert count_damage(tree, {w: ids for w, ids in wanted.items() if ids}) == 0
        assert tree.head().record.epoch == done.epoch
        assert len(tree.epochs()) == number
        assert left[0] <= 0 or number > 4


def test_a_publisher_deposed_while_its_reply_was_lost_raises_conflict(memory: MemoryServer) -> None:
    tree, rival = found_group(memory), GroupState(memory.connect(), "default")
    term = take_control(tree)

    class Deposed(MemoryStore):
        def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
            self.lose_request()
            take_control(rival)
            return super().multi(ops)

    with pytest.raises(Conflict, match="Another controller took over"):
        publish(GroupState(Deposed(memory), "default"), term, Publication({"w1": parts("a")}))
    assert read_targets(tree) == {}


class Interrupted(MemoryStore):
    """Between any two reads something else happens."""

    def __init__(self, server: MemoryServer, between: Callable[[], None]) -> None:
        super().__init__(server)
        self.between = between

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        nodes = []
        for path in paths:
            self.between()
            nodes += super().get_many([path])
        return tuple(nodes)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_reader_that_races_publications_sees_only_what_was_published(memory: MemoryServer, most: int) -> None:
    """w1 always has something: an empty set, or one that was never current, would be wrong."""
    chance = random.Random(most)
    tree = found_group(memory)
    term = [take_control(tree)]
    current: dict[int, frozenset[str]] = {}

    def publish_some() -> None:
        for _ in range(chance.randint(0, most) if chance.random() < 0.5 else 0):
            extra = parts("".join(chance.sample("bcdefgh", chance.randint(0, 6))))
            wanted = {"w1": parts("a") | extra, "w2": parts("bcdefgh") - extra}
            done = publish(tree, term[0], Publication(wanted))
            term[0] = done.term
            current.setdefault(done.epoch, wanted["w1"])

    while not current:
        publish_some()
    reader = GroupState(Interrupted(memory, publish_some), "default")
    seen = [reader.target("w1") for _ in range(150)]
    assert len({t.epoch for t in seen if t}) > 30
    for target in seen:
        if target is not None:  # the head moved at each of its looks: nothing is known, and nothing follows from it
            assert target.partitions == current[target.epoch]
    assert sum(target is None for target in seen) < 15


def test_it_waits_for_no_connection_that_never_comes(memory: MemoryServer) -> None:
    tree = found_group(memory)
    term = take_control(tree)
    assert isinstance(tree.store, MemoryStore)
    tree.store.disconnect()
    with pytest.raises(Unavailable):
        publish(tree, term, Publication({"w1": parts("a")}))
    tree.store.reconnect()
    assert publish(tree, Term(term.number, term.version), Publication({"w1": parts("a")})).epoch == 1
