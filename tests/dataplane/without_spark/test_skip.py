"""Skipping a range."""

import pytest

from rota.coordination.group_state import GroupState
from rota.coordination.parking import park
from rota.dataplane.files.file_index import FileIndex
from rota.errors import ConfigError, Fenced, Unavailable
from rota.people.skip import skip
from tests.dataplane.stand_ins import consume_without_spark, take_over
from tests.dataplane.world import World


def test_a_skip_stays_within_what_has_an_offset(world: World) -> None:
    """Else the files that land next would be skipped unseen."""
    world.rows("a", "0", 1)
    world.give("a")
    main = consume_without_spark(world, "p:a", 1)
    with pytest.raises(ConfigError, match="nothing"):
        skip(world.tree, world.ports, "p:a")
    world.rows("a", "1", 1)
    with pytest.raises(ConfigError, match="2"):
        skip(world.tree, world.ports, "p:a", to=5)
    assert main.read_positions(("p:a",))["p:a"].offset == 1


def test_a_skip_that_a_new_owner_overtook_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "01":
        world.rows("a", name, 1)
    world.give("a")
    main = consume_without_spark(world, "p:a", 1)

    def meanwhile(*_: object) -> dict[str, int]:
        take_over(world, "w2", "a")
        main.claim({"p:a": world.tree.owned(("p:a",))["p:a"].token}, {"p:a": 0})
        return {"p:a": 2}

    monkeypatch.setattr(FileIndex, "extend", meanwhile)
    with pytest.raises(Fenced, match=r"p:a was taken over just now: .* Nothing was skipped; see `rota why p:a`"):
        skip(world.tree, world.ports, "p:a", to=2)
    assert main.read_positions(("p:a",))["p:a"].offset == 1


def test_a_skip_whose_unparking_is_lost_is_not_asked_for_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(tree: GroupState, partition: str) -> bool:
        raise Unavailable("no ZooKeeper")

    world.rows("a", "0", 1)
    world.rows("a", "1", 1)
    world.give("a")
    world.rows("a", "2", 1)
    main = consume_without_spark(world, "p:a", 1)
    park(world.tree, "p:a", "poison", offset=1)
    monkeypatch.setattr("rota.people.skip.unpark", lost)
    assert skip(world.tree, world.ports, "p:a") == (1, 2)
    with pytest.raises(ConfigError, match=r"p:a is at 2 \(a/2.json\) and is parked for offset 1"):
        skip(world.tree, world.ports, "p:a")
    assert main.read_positions(("p:a",))["p:a"].offset == 2
