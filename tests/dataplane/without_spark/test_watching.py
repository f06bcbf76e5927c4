"""A repeated observation finds what a first one would, and reads little of ZooKeeper while nothing changes."""

from collections import Counter
from collections.abc import Callable

import pytest

from rota.catalog import load
from rota.coordination import overrides
from rota.coordination.group_state import GroupState
from rota.coordination.membership import end_run, leave, register_run
from rota.coordination.records import Checkpoint, Parked, encode
from rota.group.found import GroupWatcher, follow
from rota.group.rebalance import rebalance
from rota.run.work import WorkWatcher, find_work
from simulator.memory_store import MemoryServer
from tests.dataplane.stand_ins import take_over
from tests.dataplane.world import World


def count_requests(tree: GroupState, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Record the reads of the tree's store from now on."""
    asked = Counter[str]()

    def count(name: str, inner: Callable[..., object]) -> Callable[..., object]:
        def ask(*args: object) -> object:
            asked[name] += 1
            return inner(*args)

        return ask

    for name in ("stamp", "get_many", "children", "multi"):
        monkeypatch.setattr(tree.store, name, count(name, getattr(tree.store, name)))
    return asked


def play_backlog(world: World, check: Callable[[str], None]) -> None:
    """Cause every event that makes or removes work; call `check` after each."""
    clock = [1_000.0]
    world.server.clock = lambda: clock[0]
    first = world.give("a", "b")
    check("nothing landed")
    world.rows("a", "0", 1)
    check("a file landed")
    world.rows("c", "0", 1)
    check("a file landed where no worker owns anything")
    world.give("a", "b", "c", incarnation=first)
    check("it was claimed")
    run = world.open()
    path = register_run(run, "r", first, ["p:a"])
    check("a run works on one")
    end_run(run, path)
    check("it ended")
    parked = Parked(reason="poison", failures=1, since=0.0, retry_at=clock[0] + 60.0, offset=0)
    world.tree.store.create(world.tree.paths.parking("p:a"), encode(parked))
    check("one is parked")
    clock[0] += 61.0
    check("its time has come, and nothing changed")
    world.tree.store.delete(world.tree.paths.parking("p:a"))
    check("it is parked no longer")
    done = Checkpoint(offset=1, token=1, run_id="r", rows=1, seconds=1.0, epoch=1, table="t")
    world.tree.store.create(world.tree.paths.checkpoint("p:a"), encode(done))
    check("a checkpoint was written")
    second = take_over(world, "w2", "c")
    check("another took one over")
    leave(world.tree, first)
    check("a worker left")
    world.tree.store.set(world.tree.paths.own("p:c"), b"?", -1)
    check("a record cannot be read")
    leave(world.tree, second)
    check("no worker is left")


def test_a_watcher_finds_the_work_that_a_first_observation_finds(world: World) -> None:
    watcher, said = WorkWatcher(world.open(), world.pipeline), set[str]()

    def check(what: str) -> None:
        for _ in range(2):
            watcher.poll()
            found = watcher.find_work()
            assert found == find_work(world.open(), world.pipeline, world.ports.source), what
            assert watcher.lives.keys() == {one.incarnation for one in world.tree.live()}, what
        said.add(str(found))

    play_backlog(world, check)
    assert len(said) >= 5, "they are not all alike"


def test_without_the_stamp_a_watcher_would_launch_for_the_dead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = world.open()
    watcher, wrong = WorkWatcher(tree, world.pipeline), list[str]()
    monkeypatch.setattr(tree.store, "stamp", lambda: (0, 0))

    def check(what: str) -> None:
        watcher.poll()
        if watcher.find_work() != find_work(world.open(), world.pipeline, world.ports.source):
            wrong.append(what)

    play_backlog(world, check)
    assert {"it was claimed", "a worker left"} <= set(wrong)


def test_a_watcher_asks_zookeeper_once_a_look_while_nothing_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read some twenty nodes a second all the time."""
    world.give("a", "b")
    tree = world.open()
    watcher, asked = WorkWatcher(tree, world.pipeline), count_requests(tree, monkeypatch)
    for _ in range(10):
        watcher.poll()
        assert not watcher.find_work()
    assert asked.pop("stamp") == 10
    assert asked.total() < 20, "of one look"
    world.rows("a", "0", 1)
    watcher.poll()
    assert watcher.find_work(), "the source is asked at each look"


def test_a_watcher_sees_the_group_that_a_first_observation_sees(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, server = load(world.folder / "pipelines"), MemoryServer()
    tree, other = GroupState(server.connect(), "default"), GroupState(server.connect(), "default")
    watcher, asked, said = GroupWatcher(tree.store, catalog, "default"), Counter[str](), set[str]()

    def check(what: str) -> None:
        for _ in range(2):
            found = watcher.poll()
            assert found == follow(other.store, catalog, "default"), what
        said.add(found.reason)

    world.rows("a", "0", 1)
    check("a group was founded")
    incarnation = world.join("w1", other)
    check("a worker joined")
    rebalance(other, "r")
    check("an epoch was published")
    world.rows("b", "0", 1)
    check("a folder landed")
    rebalance(other, "r")
    check("it has an owner")
    overrides.drain(other, "w1")
    check("a worker is drained")
    overrides.uncordon(other, "w1")
    check("it is not")
    (world.folder / "land").rename(world.folder / "away")
    check("the landing folder is gone")
    (world.folder / "away").rename(world.folder / "land")
    check("it is back")
    asked = count_requests(tree, monkeypatch)
    for _ in range(10):
        assert not watcher.poll().needed
    assert asked == {"stamp": 10}
    leave(other, incarnation)
    check("a worker left")
    assert len(said) >= 4, "they are not all alike"
