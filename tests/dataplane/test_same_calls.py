"""The run of the hand-over simulation asks and writes what a real run does, in the same order; else it proves nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from rota import consume as verb
from rota.coordination import membership
from rota.coordination.membership import register_run
from rota.coordination.memory import MemoryStore
from rota.coordination.parking import park
from rota.coordination.records import Checkpoint
from rota.coordination.store import Create, Delete, Node, Op, Set
from rota.coordination.tree import Tree
from rota.dataplane.job import Bisection
from rota.dataplane.ports import FailedPartition, Ranges, WrittenFiles
from rota.errors import BadTransform
from tests.dataplane.world import World
from tests.sim.handover.run import consume
from tests.sim.handover.world import World as Simulated

FOLDERS = {"own", "assign", "live", "runs", "parked", "checkpoints"}  # settings and lists of keys bind no order


def folder(path: str) -> str:
    return path.split("/")[3] if path.count("/") > 2 else path


class Listening(MemoryStore):
    """Writes down what is asked of it."""

    heard: list[str]

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        self.heard += [f"read {one}" for one in map(folder, paths) if one in FOLDERS]
        return super().get_many(paths)

    def children(self, path: str) -> tuple[str, ...]:
        self.heard += [f"read {one}" for one in [folder(path)] if one in FOLDERS]
        return super().children(path)

    def multi(self, ops: Sequence[Op]) -> tuple[Node | None, ...]:
        words = {Create: "create", Set: "set", Delete: "delete"}
        said = [f"{words.get(type(op), 'check')} {folder(op.path)}" for op in ops if "clock" not in op.path]
        self.heard += [" + ".join(said)] if said else []
        return super().multi(ops)

    def sync(self) -> None:
        self.heard += ["sync"]
        super().sync()


def listening(server: Any) -> Listening:
    store = Listening(server)
    store.heard = []
    return store


class Spark(Bisection):
    """Writes nothing; the partitions in `poison` fail."""

    poison: tuple[str, ...] = ()

    def run(self, *jobs: Ranges, still: Callable[[Ranges], Ranges] = dict) -> Iterator[WrittenFiles | FailedPartition]:
        (ranges,) = map(still, jobs)
        for p in (p for p in ranges if p in self.poison):
            yield FailedPartition(p, BadTransform("poison", partition=p))
        if good := {p: r for p, r in ranges.items() if p not in self.poison}:
            yield WrittenFiles("attempt", good, (), 0.0)


CASES = {
    "everything is new": {},
    "one checkpoint is behind": {"behind": True},
    "one was parked until now": {"parked": True},
    "one fails": {"poison": True},
    "another run is there": {"elder": True},
    "nothing is new": {"idle": True},
    "two portions": {"portion": 1},
}


def prepare(tree: Tree, incarnation: str, first: str, case: dict[str, Any], table: str) -> None:
    token = tree.owned((first,))[first].token
    if case.get("behind"):
        path = tree.paths.checkpoint(first)
        tree.put(path, Checkpoint(offset=0, token=token, run_id="r", table=table))
    if case.get("parked"):
        park(tree, first, "bad", retry_after=0.0, offset=0)
    if case.get("elder"):
        register_run(tree, "elder", incarnation, [first])


def real(folder: Path, case: dict[str, Any], patch: pytest.MonkeyPatch) -> list[str]:
    """What `rota/consume.py` asks and writes for a and b."""
    world = World(folder)
    world.give("a", "b")
    poisoned = type("Poisoned", (Spark,), {"poison": ("p:a",) if case.get("poison") else ()})
    patch.setattr("rota.dataplane.spark_job.Bisection", poisoned)
    patch.setattr("rota.dataplane.spark_job.joined", lambda *_: SimpleNamespace())
    patch.setattr(membership, "MAX_RUN", case.get("portion", 1_000))

    def run(tree: Tree, heard: list[str]) -> list[str]:
        for event in verb.consume(
            tree,
            world.pipeline,
            world.incarnation,
            ["p:a", "p:b"],
            f"run{len(heard)}",
            world.ports,
        ):
            if isinstance(event, verb.CommittedBatch):
                heard.append("told")
        return heard

    table = ""
    for key in "ab":
        world.rows(key, "0", 1)
    if case.get("behind") or case.get("idle"):
        run(world.open(), [])
        table = world.tree.checkpoints()["p:a"].record.table
    prepare(world.tree, world.incarnation, "p:a", case, table)
    store = listening(world.server)
    return run(Tree(store, "g"), store.heard)


def simulated(case: dict[str, Any]) -> list[str]:
    """What the run of the simulation asks and writes for two partitions."""
    world = Simulated(0, faults=False)
    config = world.owner(2)
    two = config.partitions
    world.latest = lambda p: 1 if p in two else 0  # type: ignore[method-assign]
    world.poison = lambda work: two[0] if case.get("poison") and two[0] in work else None  # type: ignore[method-assign]
    world.max_run = case.get("portion", 1_000)
    tree = Tree(world.server.connect(), "g")

    def run(on: Tree, name: str) -> None:
        for _ in consume(world, replace(config, run_id=name), on, Random(0)):
            world.observe()

    if case.get("behind") or case.get("idle"):
        run(Tree(world.server.connect(), "g"), "before")
    prepare(tree, config.incarnation, two[0], case, "")
    store = listening(world.server)
    told: Callable[..., None] = world.checker.told
    world.checker.told = lambda *what: (told(*what), store.heard.append("told"))[0]  # type: ignore[assignment, func-returns-value]
    run(Tree(store, "g"), "now")
    return store.heard


@pytest.mark.parametrize("name", CASES)
def test_the_simulated_run_asks_and_writes_in_the_order_of_the_real_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = real(tmp_path, CASES[name], monkeypatch), simulated(CASES[name])
    one, other = ("\n".join(what for what, _ in groupby(calls)) for calls in heard)
    assert one == other
