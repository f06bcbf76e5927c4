"""Which run may work on a partition: one function of the records read, the same for a run, the backlog and a click."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rota.coordination.group_state import GroupState
from rota.coordination.membership import register_run
from rota.coordination.parking import park
from rota.coordination.records import Live, Parked
from rota.coordination.store import Node
from rota.coordination.views import OwnView, RunView
from rota.run.eligibility import Facts, judge, read_facts, read_rights
from rota.run.work import find_work, read_owners
from simulator.memory_store import MemoryStore
from tests.dataplane.world import World

ME, OTHER = "w1@7", "w2@9"
FREE = Facts(
    partitions=("p",),
    owns={"p": OwnView(ME, 3, 40)},
    epoch=5,
    targets={"w1": frozenset({"p"})},
    lives={ME: Live(), OTHER: Live()},
    runs=(),
    parked={},
    now=100.0,
    checkpoints={},
    unreadable={},
)
CLOSED = "its record /parked/p cannot be read"


def run(name: str, incarnation: str, czxid: int) -> RunView:
    return RunView(name, f"id of {name}", 1, incarnation, frozenset({"p"}), czxid)


def make_parked(retry_at: float | None, since: float = 50.0) -> Parked:
    return Parked(reason="bad", failures=1, since=since, retry_at=retry_at)


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing is in the way": ({}, ""),
    "it has no own record": ({"owns": {}}, "no worker owns it"),
    "it is free": ({"owns": {"p": OwnView(None, 3, 40)}}, "no worker owns it"),
    "its own record cannot be read": ({"owns": {}, "unreadable": {"p": CLOSED}}, CLOSED),
    "its owner is gone": ({"lives": {OTHER: Live()}}, f"its owner {ME} is gone"),
    "its owner is unreadable": ({"lives": {ME: None}}, f"what its owner {ME} announces cannot be read"),
    "the target drops it": ({"targets": {"w1": frozenset()}}, "the target of w1 does not name it"),
    "the worker has no target": ({"targets": {}}, "the target of w1 does not name it"),
    "a run works on it": ({"runs": (run("r1", ME, 1),)}, "run id of r1 works on it"),
    "a run of a former owner is there": ({"runs": (run("r1", OTHER, 1),)}, ""),
    "it is parked for a person": ({"parked": {"p": make_parked(None)}}, "it is parked: bad. Then: rota retry p"),
    "it is parked for a while": ({"parked": {"p": make_parked(101.0)}}, "it is parked: bad"),
    "its park is over": ({"parked": {"p": make_parked(100.0)}}, ""),
    "the clock went back behind its park": ({"parked": {"p": make_parked(300.0, since=200.0)}}, ""),
    "another record cannot be read": ({"unreadable": {"p": CLOSED}}, CLOSED),
}


@pytest.mark.parametrize(("change", "why"), CASES.values(), ids=CASES)
def test_one_obstacle_is_enough(change: dict[str, Any], why: str) -> None:
    for incarnation in (None, ME):
        judged = judge(replace(FREE, **change), incarnation)
        assert judged.obstacles == ({"p": why} if why else {})
        assert judged.owners == ({} if why else {"p": ME})


def test_a_run_works_only_on_what_its_own_incarnation_owns() -> None:
    assert judge(FREE, OTHER).obstacles == {"p": f"{ME} owns it"}


def test_of_two_runs_of_one_incarnation_the_first_works() -> None:
    facts = replace(FREE, runs=(run("first", ME, 1), run("second", ME, 2)))
    assert judge(facts, ME, "first").owners == {"p": ME}
    assert judge(facts, ME, "second").obstacles == {"p": "run id of first works on it"}
    assert judge(facts, ME, "gone").owners == {"p": ME}, (
        "a run without its node waits for no other; its writes are refused"
    )


class Recording(MemoryStore):
    """Records the folders that are read."""

    read: list[str]

    def get_many(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        self.read += [path.split("/")[3] for path in paths if path.count("/") > 2]
        return super().get_many(paths)

    def children(self, path: str) -> tuple[str, ...]:
        self.read += [path.split("/")[3]] if path.count("/") > 2 else []
        return super().children(path)


@pytest.mark.parametrize("whose", ["a run's", "all records"])
def test_own_records_are_read_before_live_nodes(tmp_path: Path, whose: str) -> None:
    world = World(tmp_path)
    world.give("a")
    store = Recording(world.server)
    store.read = []
    tree, mine = GroupState(store, "g"), whose == "a run's"
    read_facts(tree, None if mine else ("p:a",), world.incarnation if mine else None, "p")
    assert store.read.index("own") < store.read.index("live")


@pytest.mark.parametrize("obstacle", ["", "gone", "given away", "a run", "parked"])
def test_a_run_the_backlog_and_a_click_agree(tmp_path: Path, obstacle: str) -> None:
    world = World(tmp_path)
    world.rows("a", "0", 1)
    joined = world.open()
    me = world.give("a", incarnation=world.join("w1", joined))
    other = world.open()
    if obstacle == "gone":
        joined.store.close()
    if obstacle == "given away":
        world.give(incarnation=me)
    if obstacle == "a run":
        register_run(other, "elder", me, ["p:a"])
    if obstacle == "parked":
        park(world.tree, "p:a", "bad")
    node = register_run(world.tree, "mine", me, ["p:a"])
    rights = read_rights(world.tree, me, node, ["p:a"])
    world.tree.store.delete(node, -1)
    click = read_owners(world.tree, world.pipeline, ["p:a"])
    assert click.skipped == rights.dropped
    assert bool(obstacle) == bool(rights.dropped)
    assert [work.incarnation for work in find_work(world.tree, world.pipeline, world.ports.source)] == (
        [] if obstacle else [me]
    )
