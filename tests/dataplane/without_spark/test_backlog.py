"""The backlog, and work on more partitions than a run can name."""

import pytest

from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.membership import register_run
from rota.coordination.records import RunNode
from rota.errors import EnvironmentFailed
from rota.run.consume import IdlePartition
from rota.run.work import find_work
from tests.dataplane.stand_ins import consume_without_spark, no_spark
from tests.dataplane.world import World


def test_what_a_run_works_on_is_no_backlog(world: World) -> None:
    """Otherwise the sensor launches a run at each poll, and each finds nothing to do."""
    for key in "ab":
        world.rows(key, "0", 1)
    incarnation = world.give("a", "b")
    clicked, former = world.open(), world.open()
    register_run(clicked, "clicked", incarnation, ["p:a"])
    register_run(former, "former", "w1@0000000000000abc", ["p:b"])
    assert [dict(work.lags) for work in find_work(world.tree, world.pipeline, world.ports.source)] == [{"p:b": (0, 1)}]
    clicked.store.close()
    assert [dict(work.lags) for work in find_work(world.tree, world.pipeline, world.ports.source)] == [
        {"p:a": (0, 1), "p:b": (0, 1)}
    ]


def test_more_partitions_than_a_run_can_name_are_consumed_in_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sensor's run consumes those that waited longest, with most lag; a click consumes all, some at a time."""
    monkeypatch.setattr(membership, "MAX_RUN", 2)
    for key, files in (("a", 2), ("b", 1), ("c", 3), ("d", 1), ("e", 1)):
        for name in range(files):
            world.rows(key, str(name), 1)
    world.give(*"abcde")

    def due() -> list[str]:
        (work,) = find_work(world.tree, world.pipeline, world.ports.source)
        return list(work.lags)

    assert due() == ["p:c", "p:a"]
    for partition in due():  # one file of each, and more wait
        consume_without_spark(world, partition, 1)
    with pytest.raises(EnvironmentFailed, match="no Spark here"):
        world.run("a", "c", connect=no_spark)  # it writes their checkpoints
    assert due() == ["p:b", "p:d"]
    registered: list[tuple[str, ...]] = []
    real = membership.create_ephemeral

    def register(tree: GroupState, path: str, node: RunNode) -> None:
        registered.append(node.partitions)
        real(tree, path, node)

    monkeypatch.setattr(membership, "create_ephemeral", register)
    with pytest.raises(EnvironmentFailed, match="no Spark here"):
        world.run(*"bde", connect=no_spark)
    for key in "bde":
        consume_without_spark(world, f"p:{key}", 1)
    events = world.run(*"bde", connect=no_spark)
    assert [e.partition for e in events if isinstance(e, IdlePartition)] == ["p:b", "p:d", "p:e"]
    assert registered == [("p:b", "p:d"), ("p:b", "p:d"), ("p:e",)]
