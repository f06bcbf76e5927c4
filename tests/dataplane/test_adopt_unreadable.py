"""`rota adopt` after the group's settings could not be read: its id is new, and nothing is read twice."""

from pathlib import Path

import pytest

from rota.coordination.repair import EFFECT, find_unreadable, repair
from rota.dataplane.delta.tables import PipelineTables
from rota.errors import ConfigError, EnvironmentFailed, ForeignTable, Undecodable
from rota.people.adopt import adopt, gone
from tests.dataplane.stand_ins import consume_without_spark, no_spark
from tests.dataplane.world import World


def test_a_group_that_was_founded_again_touches_no_table_before_it_is_adopted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.rows("a", "0", 1)
    world.give("a")
    main = consume_without_spark(world, "p:a", 1)
    world.tree.store.delete(world.tree.paths.meta)
    world.tree.found()
    world.rows("a", "1", 1)
    with pytest.raises(ForeignTable, match="rota adopt"):
        world.run("a", connect=no_spark)
    assert main.read_positions(("p:a",))["p:a"].offset == 1
    assert dict(adopt(world.tree, [world.pipeline]).offsets) == {"p:a": 1}
    with pytest.raises(EnvironmentFailed, match="no Spark"):
        world.run("a", connect=no_spark)


def test_a_group_whose_settings_are_torn_goes_on_once_its_tables_are_adopted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.rows("a", "0", 1)
    world.give("a")
    main = consume_without_spark(world, "p:a", 1)
    tree, token = world.tree, world.tree.owned()["p:a"].token
    tree.store.set(tree.paths.meta, b"\xff", -1)
    with pytest.raises(Undecodable, match="rota repair"):
        world.run("a", connect=no_spark)
    assert find_unreadable(tree)
    assert "rota adopt" in EFFECT
    assert gone(tree, world.pipeline) == ()
    with pytest.raises(ConfigError, match="rota repair"):
        adopt(tree, [world.pipeline])
    repair(tree, [tree.paths.meta])
    with pytest.raises(ForeignTable, match="rota adopt"):
        world.run("a", connect=no_spark)
    done = adopt(tree, [world.pipeline])
    assert dict(done.offsets) == {"p:a": 1}
    assert tree.owned()["p:a"].token > token
    with pytest.raises(ForeignTable, match="another group"):
        main.claim({"p:a": token + 10_000}, {"p:a": 0})  # a run that works under the former id
    world.rows("a", "1", 1)
    with pytest.raises(EnvironmentFailed, match="no Spark"):
        world.run("a", connect=no_spark)
    ours = PipelineTables.of(world.pipeline, "g", tree.meta().id).main.read_positions(("p:a",))["p:a"]
    assert (ours.offset, ours.token) == (1, tree.owned()["p:a"].token)
