"""An epoch reports what operators and pipeline files changed: every kind of change alone, and generated combinations."""

import random
from collections.abc import Callable
from itertools import count

import pytest

from rota.coordination import overrides
from rota.coordination.forget import forget_pipeline
from rota.coordination.group_state import GroupState
from rota.coordination.inputs import MAX_NAMED, MAX_PINS
from rota.coordination.records import GroupOverrides
from rota.coordination.snapshot import read_basis
from rota.group.rebalance import observe, rebalance
from simulator.memory_store import MemoryServer
from tests.conformance.balanced_group import Group

FRESH = map(str, count())  # keys
Action = Callable[[GroupState], object]
CHANGES: dict[str, tuple[Action, Action, str]] = {  # sentence -> what makes it, what undoes it, the sentence of that
    "w1 is cordoned": (
        lambda tree: overrides.cordon(tree, "w1"),
        lambda tree: overrides.uncordon(tree, "w1"),
        "w1 is uncordoned",
    ),
    "w2 is draining": (
        lambda tree: overrides.drain(tree, "w2"),
        lambda tree: overrides.uncordon(tree, "w2"),
        "w2 is uncordoned",
    ),
    "flights:UA is pinned to w1": (
        lambda tree: overrides.pin(tree, "flights:UA", "w1"),
        lambda tree: overrides.pin(tree, "flights:UA", None),
        "flights:UA is no longer pinned",
    ),
    "flights:AA is pinned to w2": (
        lambda tree: overrides.pin(tree, "flights:AA", "w2"),
        lambda tree: overrides.unpin(tree, ["flights:AA"]),
        "flights:AA is no longer pinned",
    ),
    "voluntary moves are paused": (overrides.pause, overrides.resume, "voluntary moves are resumed"),
    "w1: the capacity changed from none to 2.5": (
        lambda tree: overrides.override(tree, "w1", capacity=2.5),
        lambda tree: overrides.override(tree, "w1", capacity=None),
        "w1: the capacity changed from 2.5 to none",
    ),
    "w2: the max_partitions changed from none to 3": (
        lambda tree: overrides.override(tree, "w2", max_partitions=3),
        lambda tree: overrides.override(tree, "w2", max_partitions=None),
        "w2: the max_partitions changed from 3 to none",
    ),
    'w1: the labels changed from none to {"disk": "big"}': (
        lambda tree: overrides.override(tree, "w1", labels={"disk": "big"}),
        lambda tree: overrides.override(tree, "w1", labels={}),
        'w1: the labels changed from {"disk": "big"} to none',
    ),
    "the assignor changed from sticky to hash": (
        lambda tree: set_meta(tree, assignor="hash"),
        lambda tree: set_meta(tree, assignor="sticky"),
        "the assignor changed from hash to sticky",
    ),
    "the budget changed from none to 5": (
        lambda tree: set_meta(tree, budget=5),
        lambda tree: set_meta(tree, budget=None),
        "the budget changed from 5 to none",
    ),
    "the grace changed from 0.0 to 7.5": (
        lambda tree: set_meta(tree, grace=7.5),
        lambda tree: set_meta(tree, grace=0.0),
        "the grace changed from 7.5 to 0.0",
    ),
    "2 partitions came to pipeline flights": (
        lambda tree: tree.grow("flights", (next(FRESH), next(FRESH))),
        lambda tree: tree.grow("flights", (next(FRESH),)),
        "1 partition came to pipeline flights",
    ),
    "pipeline trips came with 1 partition": (
        lambda tree: tree.grow("trips", ("a",)),
        lambda tree: forget_pipeline(tree, "trips"),
        "pipeline trips left the group",
    ),
    'pipeline boats: required labels changed from none to {"zone": "a"}': (
        lambda tree: tree.grow("boats", (), {"zone": "a"}),
        lambda tree: tree.grow("boats", (), {}),
        'pipeline boats: required labels changed from {"zone": "a"} to none',
    ),
}


def set_meta(tree: GroupState, **wanted: object) -> None:
    now = tree.meta().model_dump(include={"protocol", "assignor", "options", "budget", "cooldown", "grace"})
    tree.found(**{**now, **wanted})


def decide(tree: GroupState) -> str:
    """The sentence of the decision, as the epoch's record has it if there is one; no further decision is due."""
    done = rebalance(tree, "r")
    said = done.sentence.removeprefix(f"Epoch {done.epoch}").removeprefix(" is unchanged").removeprefix(": ")
    if done.published:
        assert tree.epochs()[-1].sentence == f"Epoch {done.epoch}: {said}"
    assert not observe(tree).needed
    assert read_basis(tree).changes == ()
    return said


@pytest.fixture
def tree(memory: MemoryServer) -> GroupState:
    group = Group(memory)
    group.tree.grow("boats", ("b",))
    decide(group.tree)
    return group.tree


@pytest.mark.parametrize("sentence", CHANGES)
def test_each_change_is_a_sentence_and_so_is_its_undoing(tree: GroupState, sentence: str) -> None:
    do, undo, undone = CHANGES[sentence]
    for action, said in ((do, sentence), (undo, undone)):
        action(tree)
        assert observe(tree).reason == said
        assert decide(tree).startswith(f"{said}. ")


@pytest.mark.parametrize("seed", range(60))
def test_any_combination_is_all_of_its_sentences_and_none_once_it_is_undone(tree: GroupState, seed: int) -> None:
    chance = random.Random(seed)
    done: dict[str, str] = {}
    for _ in range(4):
        begun = chance.sample([s for s in CHANGES if s not in done], chance.randint(0, 4))
        ended = chance.sample(sorted(done), chance.randint(0, len(done)))
        actions = [CHANGES[s][0] for s in begun] + [CHANGES[s][1] for s in ended]
        for action in chance.sample(actions, len(actions)):
            action(tree)
        wanted = {*begun, *(done.pop(s) for s in ended)}
        done |= {s: CHANGES[s][2] for s in begun}
        assert set(read_basis(tree).changes) == wanted
        assert observe(tree).needed == bool(wanted)
        said = decide(tree)
        assert all(sentence in said for sentence in wanted)


def test_what_is_undone_before_the_decision_is_not_reported(tree: GroupState) -> None:
    overrides.drain(tree, "w2")
    overrides.uncordon(tree, "w2")
    assert (observe(tree).needed, read_basis(tree).changes) == (False, ())


def test_a_worker_that_left_and_an_operator_are_both_reported(memory: MemoryServer) -> None:
    group = Group(memory)
    decide(group.tree)
    overrides.cordon(group.tree, "w2")
    decide(group.tree)
    memory.expire(group.agents["w2"].store.session)
    overrides.pin(group.tree, "flights:AA", "w1")
    assert decide(group.tree).startswith("w2 left, flights:AA is pinned to w1. ")
    group.join("w2")
    assert decide(group.tree).startswith("w2 joined, w2 is cordoned. ")


def test_many_changes_are_a_few_names_and_a_count_and_of_many_pins_a_digest_is_kept(tree: GroupState) -> None:
    pins = {f"flights:{n:04}": "w1" for n in range(MAX_PINS + 1)}
    tree.update(
        tree.paths.overrides, GroupOverrides, lambda _: GroupOverrides(pins=dict(list(pins.items())[:MAX_PINS]))
    )
    assert f"flights:0004 is pinned to w1, and {MAX_PINS - MAX_NAMED} more changes of pins. " in decide(tree)
    kept = len(tree.store.get(tree.paths.controller).data)  # type: ignore[union-attr]
    tree.update(tree.paths.overrides, GroupOverrides, lambda _: GroupOverrides(pins=pins))
    assert decide(tree).startswith("the pins changed. ")
    assert len(tree.store.get(tree.paths.controller).data) < kept  # type: ignore[union-attr]


def test_a_controller_without_inputs_is_followed_by_a_decision_that_reports_no_change(tree: GroupState) -> None:
    """An older rota, or `rota repair --remove`, wrote its record."""
    overrides.pause(tree)
    tree.update(
        tree.paths.controller, type(tree.controller().record), lambda now: now.model_copy(update={"memory": {}})
    )
    assert decide(tree).startswith("a record of the group changed. ")
