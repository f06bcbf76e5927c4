"""Founding a group, and adding partitions to it."""

from collections.abc import Callable
from random import Random
from string import ascii_letters, digits

import pytest

from rota.coordination import limits, membership
from rota.coordination.forget import forget_partitions
from rota.coordination.group_reader import groups
from rota.coordination.group_state import GroupState
from rota.coordination.id_set import pack
from rota.coordination.records import Live
from rota.coordination.store import MAX_DATA
from rota.errors import ConfigError
from rota.group.rebalance import rebalance
from simulator.memory_store import MemoryServer
from tests.conformance.balanced_group import KEYS, Group
from tests.conformance.worlds import World


def test_a_group_is_founded_once_by_the_first_process(world: World, group: str) -> None:
    trees = [GroupState(world.connect(), group) for _ in range(2)]
    assert not trees[0].exists()
    with pytest.raises(ConfigError, match="is not in this ZooKeeper"):
        trees[0].meta()
    ids = {tree.found().id for tree in trees}
    assert ids == {trees[1].meta().id}
    assert len(ids) == 1
    assert group in groups(trees[0].store)
    assert trees[0].found(assignor="hash").assignor == trees[1].meta().assignor == "hash"
    with pytest.raises(ConfigError, match=r"Bad settings of the group: .*cooldown"):
        trees[0].found(cooldown=-1.0)


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_lost_reply_of_founding_and_of_an_update_is_resolved(world: World, group: str, what: str) -> None:
    tree = GroupState(world.connect(), group)
    tree.store.ensure(tree.paths.root)
    world.lose(tree.store, what)
    meta = tree.found()
    world.lose(tree.store, what)
    assert tree.grow("flights", KEYS) == KEYS
    assert tree.partitions()["flights"].keys == KEYS
    assert tree.meta() == meta


def test_partitions_only_grow_and_within_bounds(balanced: Group) -> None:
    tree = balanced.tree
    assert tree.grow("flights", ["AA", "ZZ"]) == ("ZZ",)
    assert tree.grow("flights", []) == ()
    assert tree.partitions()["flights"].keys == (*KEYS, "ZZ")
    for bad in ("", " a", "a  b", "a/b", "a,b", "%41", "x" * 129, "x" * 113, "ü" * 57):
        with pytest.raises(ConfigError, match="id"):
            tree.grow("flights", [bad])
    many = [f"{i:05}" for i in range(99_997)]
    with pytest.raises(
        ConfigError, match=r" for 2 of the partitions of 'many', .* many:99995, many:99996\. .* 100000 are the most"
    ):
        tree.grow("many", many)
    assert tree.partitions()["many"].keys == tuple(many[:-2]), "those that fit are there, in their order"
    with pytest.raises(ConfigError, match="for 2 of the partitions of 'many'"):
        tree.grow("many", many)
    with pytest.raises(ConfigError, match="for 1 of the partitions of 'hotels'"):
        tree.grow("hotels", ["eu-2"], {"zone": "eu"})
    assert tree.partitions()["hotels"].requires == {"zone": "eu"}
    forget_partitions(tree, ["many:00000", "many:00001"])
    assert tree.grow("many", many[2:]) == ("99995", "99996")


def two_workers(keys: list[str]) -> tuple[GroupState, Callable[[], object]]:
    """A balanced group, and what ends its second worker."""
    server = MemoryServer()
    tree = GroupState(server.connect(), "g")
    tree.found()
    tree.grow("events", keys)
    one, two = server.connect(), server.connect()
    for worker, store in (("w1", one), ("w2", two)):
        membership.join(GroupState(store, "g"), worker, Live())
    rebalance(tree, "r1")
    return tree, two.close


def test_a_group_grows_only_as_far_as_one_worker_can_hold_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are long and random: of such ones fewest are too many for a worker's node."""
    chance = Random(1)
    keys = ["".join(chance.choices(ascii_letters + digits, k=110)) for _ in range(6_500)]
    first, more = keys[:4_000], keys[:5_000]
    tree, end = two_workers(first)
    sizes: list[int] = []
    monkeypatch.setattr(limits, "pack", lambda ids: sizes.append(1) or pack(ids))
    with pytest.raises(ConfigError, match=r"with one more its ids take \d+ bytes, above 349000\. Use shorter keys"):
        tree.grow("events", more)
    there = tree.partitions()["events"].keys
    assert 4_000 < len(there) < 5_000
    assert set(there) - set(first) == set(sorted(set(more) - set(first))[: len(there) - 4_000])
    sizes.clear()
    with pytest.raises(ConfigError, match=f"for {5_000 - len(there)} of the partitions of 'events'"):
        tree.grow("events", more)
    assert len(sizes) == 3, "a group that is full costs each look the same"
    rebalance(tree, "r2")
    end()
    assert f"w2 left. {len(there) // 2:,} of {len(there):,} partitions moved" in rebalance(tree, "r3").sentence

    monkeypatch.setattr("rota.coordination.limits.MAX_PACKED", MAX_DATA)
    tree, end = two_workers(keys[: len(there) * 3 // 2])
    end()
    for _ in range(2):  # without the guard it can never be published
        with pytest.raises(ConfigError, match=r"Slots takes \d+ bytes"):
            rebalance(tree, "r2")


def test_the_greatest_group_may_have_numbered_keys_or_some_random_digits() -> None:
    chance = Random(1)
    for name in ("{0}", "customer_{1:08x}"):
        tree = GroupState(MemoryServer().connect(), "g")
        tree.found()
        keys = {name.format(i, chance.getrandbits(32)) for i in range(99_000)}
        assert len(tree.grow("orders", keys)) == len(keys)
