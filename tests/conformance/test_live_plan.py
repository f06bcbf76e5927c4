"""`rota plan --from-zookeeper`: what is printed is what `rebalance` then publishes; nothing is written by looking.

Every assignor can be chosen for a group in ZooKeeper, keeps its memory there, and changes what the group gets.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from rota.cli.plan import command
from rota.coordination import membership, overrides
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.inputs import KEY
from rota.coordination.records import Controller, Live
from rota.core.assignors import ASSIGNORS
from rota.group.rebalance import rebalance
from tests.conformance.worlds import RealWorld, World
from tests.measured import make_measured

KEYS = tuple(f"k{i:02}" for i in range(10))


def join_two(world: World, tree: GroupState) -> GroupState:
    """Two workers, ten partitions, nothing published yet."""
    tree.grow("flights", KEYS)
    for worker in ("w1", "w2"):
        membership.join(GroupState(world.connect(), tree.group), worker, Live())
    return tree


@pytest.fixture
def group_of_two(world: World, tree: GroupState) -> GroupState:
    return join_two(world, tree)


@pytest.fixture
def real_group(zookeeper: EmbeddedZooKeeper, group: str) -> Iterator[GroupState]:
    """The same on a real server: the command connects by itself."""
    world = RealWorld(zookeeper)
    tree = GroupState(world.connect(), group)
    tree.found()
    yield join_two(world, tree)
    world.close()


def read_plan(tree: GroupState, zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `rota plan --from-zookeeper --json` prints."""
    monkeypatch.setenv("ROTA_ZOOKEEPER", zookeeper.hosts)
    arguments = ["--from-zookeeper", "--group", tree.group, "--json"]
    said: dict[str, Any] = json.loads(CliRunner().invoke(command, arguments, catch_exceptions=False).stdout)
    return said


def report(tree: GroupState, hot: float, cold: float) -> None:
    """What w1 and w2 report of their processors; each partition has rows of its own."""
    for view in tree.live():
        use = hot if view.worker == "w1" else cold
        live = Live(usage={"cpu": use, "rate": 1000 * use, "throughput": 1000 * use})
        tree.update(tree.paths.live(view.incarnation), Live, lambda _, live=live: live)
    for i, key in enumerate(KEYS):
        tree.put(tree.paths.checkpoint(f"flights:{key}"), make_measured(20.0 + i, tree.store.now()))


def an_interval_later(tree: GroupState) -> None:
    """What avg-shed remembers of its last round was a minute ago."""

    def older(now: Controller | None) -> Controller:
        assert now is not None
        past = dict(now.memory["avg-shed"])
        return now.model_copy(update={"memory": now.memory | {"avg-shed": past | {"at": past["at"] - 60}}})

    tree.update(tree.paths.controller, Controller, older)


def forgotten(tree: GroupState) -> None:
    """The ablation: the memory is lost between two epochs."""
    tree.update(tree.paths.controller, Controller, lambda now: (now or Controller()).model_copy(update={"memory": {}}))


@pytest.mark.parametrize("between", [an_interval_later, forgotten])
def test_what_an_assignor_remembers_is_kept_between_epochs(
    real_group: GroupState, between: Callable[[GroupState], None]
) -> None:
    """The second round fires because of the first one's count, and of nothing else."""
    tree = real_group
    rebalance(tree, "run-1")
    tree.found(assignor="avg-shed", options={"hits_high": 2, "min_rate": 0})
    report(tree, 0.9, 0.1)
    assert not rebalance(tree, "run-2").plan.moves
    assert tree.controller().record.memory["avg-shed"]["hit_high"] == {"w1": 1, "w2": 1}
    between(tree)
    moves = rebalance(tree, "run-3").plan.moves
    if between is forgotten:
        assert not moves
        return
    assert {(m.from_worker, m.to_worker, m.reason) for m in moves} == {
        ("w1", "w2", "w1 scored 80 above w2 for long enough")
    }
    assert "hit_high" not in tree.controller().record.memory["avg-shed"]


def same_but_for_the_time(memory: Mapping[str, Any]) -> dict[str, Any]:
    """Without moments; numbers nearly, for loads fade from one look to the next."""
    return {name: near(part) for name, part in without_time(memory).items()}


def without_time(memory: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {k: v for k, v in part.items() if k not in ("at", "voluntary_at")} for name, part in memory.items()}


def near(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: near(one) for key, one in value.items()}
    if isinstance(value, list):
        return [near(one) for one in value]
    return pytest.approx(value, rel=0.01) if isinstance(value, float) else value


@pytest.mark.parametrize("budget", [None, 1])
@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_moves_reasons_and_memory_are_published_as_printed(
    zookeeper: EmbeddedZooKeeper,
    real_group: GroupState,
    monkeypatch: pytest.MonkeyPatch,
    assignor: str,
    budget: int | None,
) -> None:
    """The first epoch, then one in which a worker joined, another drains, and the loads are uneven."""
    tree = real_group
    tree.found(assignor=assignor, budget=budget)
    for epoch in (1, 2):
        said = read_plan(tree, zookeeper, monkeypatch)
        rebalance(tree, f"run-{epoch}")
        published, (_, targets) = tree.epochs()[-1], tree.targets()
        assert published.epoch == epoch
        assert {w: sorted(t.partitions) for w, t in targets.items() if t.partitions} == {
            w: sorted(held) for w, held in said["assignment"].items() if held
        }
        assert [(m.partition, m.from_worker, m.to_worker, m.reason) for m in published.moves] == [
            (m["partition"], m["from"], m["to"], m["reason"]) for m in said["moves"]
        ]
        assert said["moves"]
        memory = {k: v for k, v in tree.controller().record.memory.items() if k != KEY}
        assert without_time(memory) == same_but_for_the_time(said["memory"])
        assert memory.keys() == said["memory"].keys()
        report(tree, 0.9, 0.1)
        membership.join(tree, "w3", Live())
        overrides.drain(tree, "w2")
