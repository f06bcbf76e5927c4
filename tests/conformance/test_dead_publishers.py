"""A publisher that is killed at any of its writes leaves one consistent assignment, and the next one goes on."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest

from rota.coordination.group_state import GroupState
from rota.coordination.publication import (
    Publication,
    Published,
    Term,
    publish,
    take_control,
)
from rota.coordination.records import Own, Slots
from rota.coordination.store import Node, Op
from rota.errors import AssignmentError
from simulator.memory_store import MemoryServer
from tests.ablations import change_store, new_slot_only, publish_carelessly
from tests.conformance.publishers import Killed, Mortal, Targets, count_damage, draw_targets, found_group, parts
from tests.conformance.worlds import World

Multi = Callable[[Sequence[Op]], tuple[Node | None, ...]]


@pytest.mark.parametrize("seed", range(12))
def test_killed_at_every_write_it_leaves_one_consistent_assignment(seed: int) -> None:
    """From every prefix: what readers find is the old epoch or the new one, and the next controller cleans up."""
    before, after, later = (draw_targets(seed * 3 + i, 5, 30) for i in range(3))
    deaths = 0
    while True:
        server = MemoryServer(clock=lambda: 0.0)
        tree = found_group(server)
        publish(tree, take_control(tree), Publication(before))
        doomed = GroupState(Mortal(server, left=deaths), "default")
        try:
            publish(doomed, take_control(doomed), Publication(after))
        except Killed:
            assert count_damage(tree, before) == 0, f"seed {seed}, killed before write {deaths}"
        else:
            assert count_damage(tree, after) == 0
            break
        done = publish(tree, take_control(tree), Publication(later))
        assert count_damage(tree, later) == 0, f"seed {seed}, killed before write {deaths}, then published"
        assert find_unpublished(tree) == ()
        assert done.epoch == max(e.epoch for e in tree.epochs())
        deaths += 1
    assert deaths >= 3


def test_killed_at_every_write_also_on_the_real_server(world: World, tree: GroupState) -> None:
    """Each attempt dies one write later than the one before it, over the same tree."""
    before = draw_targets(100, 4, 12)
    publish(tree, take_control(tree), Publication(before))
    for deaths in range(1, 20):
        doomed = GroupState(world.connect(), tree.group)
        inner, left = doomed.store.multi, [deaths]

        def multi(ops: Sequence[Op], inner: Multi = inner, left: list[int] = left) -> tuple[Node | None, ...]:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return inner(ops)

        doomed.store.multi = multi  # type: ignore[method-assign]
        try:
            publish(doomed, take_control(doomed), Publication(draw_targets(101, 4, 12)))
        except Killed:
            assert count_damage(tree, before) == 0, f"killed before write {deaths}"
        else:
            break
    assert count_damage(tree, draw_targets(101, 4, 12)) == 0
    assert 3 <= deaths < 19


def find_unpublished(tree: GroupState) -> tuple[str, ...]:
    """Workers with a slot above the head: a publisher died there."""
    head = tree.head().record.epoch
    return tuple(w for w, r in tree.assigns().items() if r.record.newest > head)


def die_then_go_on(publish_next: Callable[[GroupState, Term, Publication], Published]) -> int:
    """A publisher dies after its slots; the next one has another plan, which leaves one of those workers alone."""
    server = MemoryServer(clock=lambda: 0.0)
    tree = found_group(server)
    publish(tree, take_control(tree), Publication({"w1": parts("ab"), "w2": parts("cd"), "w3": parts("e")}))
    doomed = GroupState(Mortal(server, left=2), "default")
    with pytest.raises(Killed):
        publish(doomed, take_control(doomed), Publication({"w1": parts("a"), "w2": parts("bcde")}))
    assert find_unpublished(tree) == ("w1", "w2", "w3")
    final = {"w1": parts("ab"), "w2": parts("c"), "w3": parts("de")}
    publish_next(tree, take_control(tree), Publication(final))
    return count_damage(tree, final)


def test_without_the_clean_up_a_dead_publishers_slots_come_alive() -> None:
    assert die_then_go_on(publish) == 0
    assert die_then_go_on(publish_carelessly) > 0
    with pytest.raises(AssignmentError, match="is not the plan, at w1"):
        die_then_go_on(partial(publish_carelessly, verify=True))


def test_without_the_old_slot_a_dead_publisher_leaves_workers_without_a_target() -> None:
    lost = []
    for keep in (True, False):
        server = MemoryServer(clock=lambda: 0.0)
        tree = found_group(server)
        publish(tree, take_control(tree), Publication({"w1": parts("ab"), "w2": parts("cd")}))
        store = Mortal(server, left=2)
        doomed = GroupState(store if keep else change_store(store, new_slot_only), "default")
        with pytest.raises(Killed):
            publish(doomed, take_control(doomed), Publication({"w1": parts("abcd")}))
        lost.append(count_damage(tree, {"w1": parts("ab"), "w2": parts("cd")}))
    assert lost == [0, 4]


def test_a_worker_named_for_the_first_time_has_no_target_until_the_flip(memory: MemoryServer) -> None:
    tree = found_group(memory)
    doomed = GroupState(Mortal(memory, left=3), "default")
    with pytest.raises(Killed):
        publish(doomed, take_control(doomed), Publication({"w1": parts("a")}))
    assert tree.read(tree.paths.assign("w1"), Slots) is not None
    assert tree.target("w1") is None, "unknown, not empty"
    assert tree.read(tree.paths.own("s:a"), Own) is not None


@pytest.mark.parametrize("seed", range(40))
def test_killed_at_random_it_leaves_one_consistent_assignment_and_uses_no_epoch_twice(seed: int) -> None:
    """Also where it removes targets. An epoch that appears in a slot appears with one content only."""
    server, chance = MemoryServer(), random.Random(seed)
    tree = found_group(server)
    published: Targets = {}
    seen: dict[tuple[str, int], frozenset[str]] = {}
    epochs = [0]
    for turn in range(8):
        wanted = draw_targets(chance.randrange(10_000), 5, 12)
        members = tuple(sorted({f"{w}@{turn:016x}" for w in {*wanted, chance.choice(["w0", "w1"])}}))
        mortal = Mortal(server)
        publisher = GroupState(mortal, "default")
        term = take_control(publisher)
        mortal.left = chance.choice([None, None, 0, 1, 2, 3])
        with suppress(Killed):
            done = publish(publisher, term, Publication(wanted, members=members))
            published = wanted
            assert done.epoch > epochs[-1] or not done.published
            epochs.append(done.epoch)
        assert count_damage(tree, published) == 0
        head = tree.head().record.epoch
        for worker, read in tree.assigns().items():
            assert read.record.effective(head) is not None or read.record.newest > head, worker
            for slot in read.record.slots:
                assert seen.setdefault((worker, slot.epoch), slot.partitions) == slot.partitions
