"""A lost index of files: an assigned offset is never assigned again."""

import shutil
from contextlib import suppress

import pytest

from rota.coordination.parking import unpark
from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.ports import Consumed
from rota.errors import ConfigError, EnvironmentFailed
from rota.people.adopt import adopt
from rota.people.skip import skip
from rota.run.consume import ParkedPartition
from tests.dataplane.landing_folders import open_files
from tests.dataplane.stand_ins import consume_without_spark, no_spark, pause_run
from tests.dataplane.world import World


def test_a_lost_index_stops_the_partition(world: World) -> None:
    """Otherwise new files would get the ordinals of consumed ones, and would be lost."""
    for name in ("0", "1"):
        world.rows("a", name, 1)
    world.give("a")
    consume_without_spark(world, "p:a", 2)
    shutil.rmtree(world.table / "index")
    for name in ("0", "1"):
        (world.folder / f"land/a/{name}.json").unlink()
    for name in ("2", "3"):
        world.rows("a", name, 1)
    (event,) = world.run("a", connect=pause_run(lambda: None))
    assert isinstance(event, ParkedPartition), event
    assert "index" in event.reason
    assert not (world.table / "index").exists()


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_refused_skip_renumbers_no_lost_index(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Each file is read once: a skip that assigned offsets would renumber the files and disable the guard of runs."""
    for name in ("2", "3"):
        world.rows("a", name, 1)
    world.give("a")
    consume_without_spark(world, "p:a", 2)
    shutil.rmtree(world.table / "index")
    for name in ("1", "4"):  # both new; the first has a late name
        world.rows("a", name, 1)
    (event,) = world.run("a", connect=pause_run(lambda: None))
    assert isinstance(event, ParkedPartition), event
    if not guarded:
        monkeypatch.setattr(Consumed, "find_beyond", lambda *_: set())
    for to in (99, 3):
        with suppress(ConfigError):
            skip(world.tree, world.ports, "p:a", to=to)
    unpark(world.tree, "p:a")  # rota retry
    read = ["a/2.json", "a/3.json"]
    try:
        (event,) = world.run("a", connect=no_spark)
        assert isinstance(event, ParkedPartition), event
    except EnvironmentFailed:  # it got as far as Spark
        source = open_files(world.pipeline)
        read += [source.locate("p:a", offset) for offset in range(2, source.observe(("p:a",)).assigned["p:a"])]
    doubled = len(read) - len(set(read))
    assert bool(doubled) != guarded, read
    assert (world.table / "index").exists() != guarded


def test_a_lost_index_without_a_copy_is_begun_anew_with_its_table(world: World) -> None:
    """The next step of the park: every present file is read, into a new table."""
    for name in ("2", "3"):
        world.rows("a", name, 1)
    world.give("a")
    consume_without_spark(world, "p:a", 2)
    world.run("a", connect=no_spark)
    shutil.rmtree(world.table / "index")
    world.rows("a", "1", 1)
    (event,) = world.run("a", connect=pause_run(lambda: None))
    assert isinstance(event, ParkedPartition), event
    assert f"move {world.table} away, then rota adopt" in event.reason
    world.table.rename(world.folder / "aside")
    adopt(world.tree, [world.pipeline])
    with pytest.raises(EnvironmentFailed, match="no Spark"):
        world.run("a", connect=no_spark)
    source = open_files(world.pipeline)
    main = PipelineTables.of(world.pipeline, "g", world.tree.meta().id).main
    assert [source.locate("p:a", offset) for offset in range(3)] == ["a/1.json", "a/2.json", "a/3.json"]
    assert main.read_positions(("p:a",))["p:a"].offset == 0
