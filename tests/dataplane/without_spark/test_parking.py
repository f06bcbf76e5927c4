"""Faults during a run that need no Spark: a stand-in session lets a test change the world while the run is "paused"."""

import shutil
from contextlib import nullcontext

import pytest
from deltalake import DeltaTable

from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.group_state import GroupState
from rota.coordination.membership import register_run
from rota.coordination.records import Checkpoint
from rota.coordination.repair import find_unreadable, repair
from rota.coordination.store import Check
from rota.errors import ConfigError, Conflict, EnvironmentFailed, Unavailable
from rota.people.adopt import adopt
from rota.run.consume import ConsumingRun, DroppedPartition, ParkedPartition, consume
from rota.run.eligibility import read_rights
from tests.ablations import NO_RUN, change_store
from tests.dataplane.stand_ins import consume_without_spark, no_spark, pause_run, take_over
from tests.dataplane.world import World


def without(monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    """Ablation: a run parks without one check: of the own record ("own") or of its own node ("runs")."""
    real = ConsumingRun.prove

    def checks(run: ConsumingRun, partition: str) -> tuple[Check, ...]:
        return tuple(one for one in real(run, partition) if f"/{guard}/" not in one.path)

    monkeypatch.setattr(ConsumingRun, "prove", checks)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_that_was_overtaken_parks_no_partition(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The new owner consumed the file, and its producer removed it: only the zombie misses it."""
    if not guarded:
        without(monkeypatch, "own")
    world.rows("a", "0", 1)
    zombie = world.give("a")

    def overtaken() -> None:
        take_over(world, "w2", "a")
        (world.folder / "land/a/0.json").unlink()

    events = world.run("a", incarnation=zombie, connect=pause_run(overtaken))
    assert [type(e) for e in events] == [DroppedPartition if guarded else ParkedPartition], events
    assert bool(world.tree.parked()) != guarded


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_whose_session_ended_parks_no_partition(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Another run of the same owner may work on its partition by now."""
    if not guarded:
        without(monkeypatch, "runs")
    world.rows("a", "0", 1)
    world.give("a")

    tree = GroupState(world.server.connect(), "g")

    def expired() -> None:
        world.server.expire(tree.store.session)
        with pytest.raises(Unavailable):
            tree.store.sync()
        (world.folder / "land/a/0.json").unlink()

    ports = world.open_ports(connect=pause_run(expired))
    events = list(consume(tree, world.pipeline, world.incarnation, ["p:a"], "run", ports))
    assert [type(e) for e in events] == [DroppedPartition if guarded else ParkedPartition], events
    assert bool(world.tree.parked()) != guarded


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_parks_no_partition_for_what_another_run_consumed(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The other run has lost its session but not its token: it commits as long as no worker claims again. A person would
    have to retry offsets that are in the table."""
    if not guarded:
        monkeypatch.setattr(ConsumingRun, "was_overtaken", lambda run, partition, offset: False)
    world.rows("a", "0", 1)
    world.give("a")

    def outrun() -> None:
        consume_without_spark(world, "p:a", 1)
        (world.folder / "land/a/0.json").unlink()

    (event,) = world.run("a", connect=pause_run(outrun))
    assert isinstance(event, DroppedPartition if guarded else ParkedPartition)
    assert bool(world.tree.parked()) != guarded


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_whose_session_ended_writes_no_checkpoint_over_an_adoption(world: World, guarded: bool) -> None:
    """An adoption reads no run nodes. A checkpoint of the table's former state would stop the partition again."""
    for name in "01":
        world.rows("a", name, 1)
    world.give("a")
    zombie = world.open()
    node = register_run(zombie, "zombie", world.incarnation, ["p:a"])
    held = read_rights(zombie, world.incarnation, node, ["p:a"]).held["p:a"]
    consume_without_spark(world, "p:a", 1)
    shutil.copytree(world.table, world.folder / "copy")
    consume_without_spark(world, "p:a", 2)
    world.server.expire(zombie.store.session)
    with pytest.raises(Unavailable):
        zombie.store.sync()
    shutil.rmtree(world.table)
    (world.folder / "copy").rename(world.table)
    adopt(world.tree, [world.pipeline])
    entry = Entry(held, Checkpoint(offset=2, token=held.token, run_id="zombie"), zombie.checkpoints()["p:a"])
    with pytest.raises(Conflict) if guarded else nullcontext():
        if not guarded:
            change_store(zombie.store, NO_RUN)
        write_checkpoints(zombie, node, [entry])
    with pytest.raises(EnvironmentFailed, match="no Spark") if guarded else nullcontext():
        world.run("a", connect=no_spark)
    assert bool(world.tree.parked()) != guarded


@pytest.mark.parametrize(
    ("key", "typed"), [("a", "p:a"), ("Café Zürich", "'p:Café Zürich'"), (r"a\g<1>$(x)", r"'p:a\g<1>$(x)'")]
)
def test_the_rightful_run_parks_what_vanished(world: World, key: str, typed: str) -> None:
    """The next step can be typed literally, whatever the partition's name."""
    world.rows(key, "0", 1)
    world.give(key)
    (event,) = world.run(key, connect=pause_run(lambda: (world.folder / "land" / key / "0.json").unlink()))
    assert isinstance(event, ParkedPartition)
    parked = world.tree.parked()[f"p:{key}"].record
    assert parked.reason == f"p:{key}: {key}/0.json (offset 0) vanished before it was consumed"
    assert parked.step == f"Bring it back, then: rota retry {typed}. Or, if it is gone for good: rota skip {typed}"
    assert event.reason == f"{parked.reason}. {parked.step}"


def test_adopting_waits_until_what_cannot_be_read_was_removed(world: World) -> None:
    """p:a continues at the offset of its table."""
    world.rows("a", "0", 1)
    world.give("a", "b")
    consume_without_spark(world, "p:a", 1)
    paths, store = world.tree.paths, world.tree.store
    for path in (paths.checkpoint("p:a"), paths.checkpoint("p:b"), paths.parking("p:a")):
        store.create(path, b"\xff")
    before = DeltaTable(world.table / "main").version()
    with pytest.raises(ConfigError, match=r"3 records of group .* before you adopt: rota repair"):
        adopt(world.tree, [world.pipeline])
    assert DeltaTable(world.table / "main").version() == before
    assert len(repair(world.tree, [paths.root])) == 3
    done = adopt(world.tree, [world.pipeline])
    assert (done.offsets, done.anew) == ({"p:a": 1}, ())
    assert {p: one.record.offset for p, one in world.tree.checkpoints().items()} == {"p:a": 1}
    assert store.children(paths.parked) == ()
    assert not find_unreadable(world.tree)
