"""`rota plan --from-zookeeper`: what is printed is what `rebalance` then publishes; nothing is written by looking.

Every assignor can be chosen for a group in ZooKeeper, keeps its memory there, and changes what the group gets.
"""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from rota.cli.plan import command
from rota.coordination import membership, wishes
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.records import Live
from rota.coordination.tree import Tree
from rota.core.assignors import ASSIGNORS
from rota.rebalance import rebalance
from tests.conformance.worlds import RealWorld, World

KEYS = tuple(f"k{i:02}" for i in range(10))


def founded(world: World, tree: Tree) -> Tree:
    """Two workers, ten partitions, nothing published yet."""
    tree.grow("flights", KEYS)
    for worker in ("w1", "w2"):
        membership.join(Tree(world.connect(), tree.group), worker, Live())
    return tree


@pytest.fixture
def group_of_two(world: World, tree: Tree) -> Tree:
    return founded(world, tree)


@pytest.fixture
def real_group(zookeeper: EmbeddedZooKeeper, group: str) -> Iterator[Tree]:
    """The same on a real server: the command connects by itself."""
    world = RealWorld(zookeeper)
    tree = Tree(world.connect(), group)
    tree.found()
    yield founded(world, tree)
    world.close()


def test_what_is_printed_is_what_is_published(
    zookeeper: EmbeddedZooKeeper, real_group: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = real_group
    monkeypatch.setenv("ROTA_ZOOKEEPER", zookeeper.hosts)
    arguments = ["--from-zookeeper", "--group", tree.group]
    said = json.loads(CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False).stdout)
    assert tree.targets()[0].record.epoch == 0
    rebalance(tree, "run-1")
    _, targets = tree.targets()
    assert {w: sorted(t.partitions) for w, t in targets.items()} == said["assignment"]
    assert len(said["moves"]) == len(KEYS)
    wishes.drain(tree, "w2")
    tables = CliRunner().invoke(command, arguments, catch_exceptions=False).stdout
    assert "w2 is draining" in tables
    assert "5 moves (5 unavoidable), 0 placements." in tables


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_every_assignor_serves_a_group(group_of_two: Tree, assignor: str) -> None:
    tree = group_of_two
    tree.found(assignor=assignor)
    rebalance(tree, "run-1")
    head, targets = tree.targets()
    assert head.record.epoch == 1
    assert sorted(p for t in targets.values() for p in t.partitions) == [f"flights-{k}" for k in KEYS]
    looks_again = assignor in {"avg-shed", "threshold-shed", "uniform-shed", "sticky-load"}
    assert (head.record.due is not None) == looks_again
