"""A group's level is raised only when every live process reads and writes it, in every order of steps; afterwards an older
build is refused before it writes anything."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import combinations_with_replacement
from random import Random

import pytest

from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.levels import Levels
from rota.coordination.publication import take_control
from rota.coordination.records import Live, Meta, decode
from rota.coordination.repair import repair
from rota.coordination.store import Node, Op, Set
from rota.coordination.upgrade import Process, finalize, list_processes
from rota.errors import ConfigError, Conflict
from rota.group.agent import Agent
from rota.group.rebalance import rebalance
from simulator.memory_store import MemoryServer, MemoryStore
from simulator.timeline import steps, wait
from tests.ablations import Change, change_store, drop_checks

OLD, NEW = Levels(1, 1, "0.1.0"), Levels(1, 2, "0.2.0")
GROUP = "g"


class Stepping(MemoryStore):
    """Hands control back before each request, and notes the level of the group at each write of the head."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.flips: list[int] = []

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        wait(0)
        return super().get_many(paths)

    def children(self, path: str) -> tuple[str, ...]:
        wait(0)
        return super().children(path)

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        wait(0)
        done = super().multi(ops)
        if any(isinstance(op, Set) and op.path == f"/rota/{GROUP}/head" for op in ops):
            self.flips.append(read_meta(self.server).level)
        return done


def read_meta(server: MemoryServer) -> Meta:
    node = server.node(f"/rota/{GROUP}/meta")
    assert node is not None
    return decode("meta", Meta, node.data)


def found(server: MemoryServer) -> GroupState:
    tree = open_as(NEW, server.connect())
    tree.found()
    tree.grow("p", ["a", "b"])
    return tree


def open_as(levels: Levels, store: MemoryStore) -> GroupState:
    tree = GroupState(store, GROUP)
    tree.levels = levels
    return tree


def list_live(server: MemoryServer) -> list[str]:
    return [name.partition("@")[0] for name in server.children(f"/rota/{GROUP}/live")]


def play(order: Iterable[int], *actors: Callable[[], None]) -> None:
    """Each number is the actor that makes the next request; at the end the first makes all that are left, then the next."""
    lives = [steps(act) for act in actors]
    for life in lives:
        next(life, None)  # up to its first request
    for number in order:
        next(lives[number], None)
    for life in lives:
        deque(life, maxlen=0)


# --- one process at a time


def test_the_level_waits_for_every_process_and_is_raised_then(memory: MemoryServer) -> None:
    tree, old = found(memory), open_as(OLD, memory.connect())
    w1 = membership.join(old, "w1", Live())
    membership.create_liveness_node(old, "run-1")
    take_control(old)
    assert list_processes(tree) == (
        Process("worker", w1, OLD),
        Process("run", "run-1", OLD),
        Process("controller", "", OLD),
    )
    assert finalize(tree).level == 1
    membership.leave(old, w1)
    assert (finalize(tree).level, tree.meta().floor) == (1, 1), "its run is of the old build"
    membership.remove_node(old, old.paths.liveness("run-1", old.store.session))
    assert finalize(tree).level == 1, "it rebalanced last"
    take_control(tree)
    assert finalize(tree).level == 2
    assert (tree.meta().raised_by, tree.meta().floor) == ("0.2.0", 2)


def test_until_then_each_may_go_back_and_afterwards_none(memory: MemoryServer) -> None:
    tree, old = found(memory), open_as(OLD, memory.connect())
    membership.join(tree, "w1", Live())
    assert membership.join(old, "w2", Live()), "the older build beside the newer one"
    old.store.close()
    finalize(tree)
    before = {path: entry.node for path, entry in memory.entries.items()}
    again = open_as(OLD, memory.connect())
    line = "Group 'g' is at level 2, and rota 0.1.0 reads and writes level 1. Nothing was written. "
    line += "Install rota 0.2.0 or newer"
    for write in (
        lambda: membership.join(again, "w2", Live()),
        lambda: membership.create_liveness_node(again, "r"),
        lambda: again.found(assignor="hash"),
        lambda: rebalance(again, "r"),
        again.exists,
        lambda: next(Agent(again, "w2", Live(), lambda *_, **__: None, max_shutdown=1, session_timeout=9).cycle()),
    ):
        with pytest.raises(ConfigError) as refused:
            write()
        assert str(refused.value) == line
    assert {path: entry.node for path, entry in memory.entries.items()} == before


def test_a_build_that_dropped_the_level_names_the_step_before_it(memory: MemoryServer) -> None:
    found(memory)
    with pytest.raises(ConfigError, match=r"rota 0.4.0 reads and writes levels 3 to 4.* rota upgrade --finalize"):
        open_as(Levels(3, 4, "0.4.0"), memory.connect()).meta()


def test_an_upgrade_that_died_halfway_is_ended_by_the_next_one(memory: MemoryServer) -> None:
    tree, old = found(memory), open_as(OLD, memory.connect())
    tree.update(tree.paths.meta, Meta, lambda now: (now or tree.meta()).model_copy(update={"floor": 2}))
    with pytest.raises(ConfigError, match=r"is being raised to level 2, .*: rota upgrade --finalize --group g$"):
        membership.join(old, "w1", Live())
    assert finalize(old).floor == 1
    assert membership.join(old, "w1", Live())


def test_settings_that_were_lost_begin_at_the_highest_level(memory: MemoryServer) -> None:
    tree = found(memory)
    assert tree.meta().level == 1, "older builds may join a new group"
    tree.store.set(tree.paths.meta, b"torn", -1)
    assert repair(tree, [tree.paths.meta]) == (tree.paths.meta,)
    assert (tree.meta().level, tree.meta().floor) == (2, 2)
    tree.store.delete(tree.paths.meta)
    assert (tree.found().level, tree.meta().floor) == (2, 2)


def test_a_reply_that_is_lost_raises_the_level_once(memory: MemoryServer) -> None:
    for lose in ("lose_reply", "lose_request"):
        server = MemoryServer()
        tree = found(server)
        assert isinstance(tree.store, MemoryStore)
        getattr(tree.store, lose)()
        getattr(tree.store, lose)()
        assert finalize(tree).level == read_meta(server).level == 2


# --- two at a time


def raise_level(tree: GroupState) -> None:
    finalize(tree)


def race_a_join(
    points: Sequence[int], change: Change | None = None, raising: Callable[[GroupState], None] = raise_level
) -> bool:
    """Whether an old worker is live in a group of the new level, where it made its requests after so many of the other's."""
    server = MemoryServer()
    found(server)
    old, new = open_as(OLD, Stepping(server)), open_as(NEW, Stepping(server))
    if change is not None:
        change_store(old.store, change)

    def join() -> None:
        with suppress(ConfigError):
            membership.join(old, "w1", Live())

    order: list[int] = []
    for point in points:
        order += [*[1] * (point - order.count(1)), 0]
    play(order, join, lambda: raising(new))
    return "w1" in list_live(server) and read_meta(server).level == 2


ORDERS = list(combinations_with_replacement(range(24), 3))


def test_no_worker_below_the_level_slips_in(memory: MemoryServer) -> None:
    assert not any(race_a_join(points) for points in ORDERS)


def test_without_the_check_of_the_settings_or_without_the_floor_it_does() -> None:
    def without_floor(tree: GroupState) -> None:
        if all(one.reaches(2) for one in list_processes(tree)):
            tree.update(tree.paths.meta, Meta, lambda now: (now or tree.meta()).model_copy(update={"level": 2}))

    assert any(race_a_join(points, drop_checks("meta")) for points in ORDERS)
    assert any(race_a_join(points, raising=without_floor) for points in ORDERS)


def race_a_rebalance(seed: int, change: Change | None = None) -> bool:
    """Whether an old controller published in a group of the new level."""
    server, draw = MemoryServer(), Random(seed)
    tree = found(server)
    membership.join(tree, "w1", Live())
    old, new = open_as(OLD, Stepping(server)), open_as(NEW, Stepping(server))
    if change is not None:
        change_store(new.store, change)

    def publish() -> None:
        with suppress(ConfigError, Conflict):
            rebalance(old, "r")

    before, raising, meanwhile = draw.randrange(12), draw.randrange(20), draw.randrange(50)
    play([*[0] * before, *[1] * raising, *[0] * meanwhile, *[1] * 30], publish, lambda: raise_level(new))
    assert isinstance(old.store, Stepping)
    return 2 in old.store.flips


def test_no_controller_below_the_level_publishes() -> None:
    assert not any(race_a_rebalance(seed) for seed in range(1000))


def test_without_the_check_of_the_controller_it_does() -> None:
    assert any(race_a_rebalance(seed, drop_checks("controller")) for seed in range(1000))
