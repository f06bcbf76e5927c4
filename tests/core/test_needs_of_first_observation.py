"""The first observation knows how old a need is, from stored times: one call of `rota status --check` needs no memory."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rota.cli.observer import HEALING
from rota.coordination.records import Live
from rota.coordination.store import Node
from rota.coordination.views import OwnView
from rota.dataplane.ports import Withheld
from rota.face.causes import BEHIND, FAILING, IDLE, SETTLE
from rota.face.dagster_state import SensorSeen
from rota.face.needs import find_needs
from rota.face.seen import HANDOVER, OPEN, Seen
from tests.core.seen_group import ALONE, FACTS, FREE, GONE, NEEDS, OLD, RUN, W1, W2, WELL, P, commit_to, dagster, facts

NOW = WELL.now
SECONDS = 2.0  # between "too young" and "old enough"
GONE_TO_W2: dict[str, Any] = {"owns": {**FACTS.owns, "p:b": OwnView(OLD, 1, 8)}, "lives": {W1: Live(), W2: Live()}}


def hold(age: float) -> Seen:
    committed = replace(commit_to(5), node=Node(b"", 0, 1, 1, int((NOW - age) * 1000)))
    read = {"p:a": committed, "p:b": committed}
    return facts(checkpoints=read, runs=(replace(RUN, since=NOW - age),))


AGED: dict[str, tuple[Callable[[float], Seen], float, str]] = {
    "an owner that does not let go": (
        lambda age: facts(targets={"w1": frozenset({"p:a", "p:b"}), "w2": frozenset()}, written={"w2": NOW - age}),
        HANDOVER + SETTLE,
        "handover",
    ),
    "a transaction that is open": (
        lambda age: replace(
            hold(age), pipelines=(replace(P, withheld={"p:a": Withheld(62, "open since 62", age >= OPEN)}),)
        ),
        OPEN,
        "withheld",
    ),
    "a batch that does not end": (
        lambda age: replace(hold(age), pipelines=(replace(P, ends={"p:a": (5, 9)}),)),
        BEHIND,
        "still",
    ),
    "ticks that fail": (
        lambda age: dagster(sensors=(SensorSeen("p__backlog", failing=age, why="x"),)),
        FAILING,
        "fails",
    ),
    "a daemon that does not run": (lambda age: dagster(sensors=(SensorSeen("p__backlog", quiet=age),)), IDLE, "daemon"),
    "a code server that does not answer": (lambda age: dagster(lost={"here": age}), SETTLE, "location"),
}


def find_persons(seen: Seen) -> list[str]:
    return [need.cause for need in find_needs(seen)[0] if need.person]


@pytest.mark.parametrize("case", AGED)
def test_the_first_observation_reports_what_is_older_than_its_patience_and_nothing_younger(case: str) -> None:
    make, patience, cause = AGED[case]
    assert find_persons(make(patience + SECONDS)) == [cause]
    assert find_persons(make(patience - SECONDS)) == []


def test_each_need_is_decided_by_one_call() -> None:
    """Its patience is short enough to wait for, or its age is stored: then it is in `AGED`."""
    stored = {(make(0.0).grace > 0, cause) for make, _, cause in AGED.values()}
    for case, (seen, _, _, _) in NEEDS.items():
        for need in find_needs(seen)[0]:
            waits = need.person or need.due - NOW <= HEALING or need.due == float("inf")
            assert waits or (False, need.cause) in stored, case


@pytest.mark.parametrize("case", [case for case, (_, patience, _) in AGED.items() if patience > HEALING])
def test_without_stored_times_one_call_reports_nothing(case: str) -> None:
    """The ablation: the stored times are taken away, so no call is old enough to report it."""
    make, patience, _ = AGED[case]
    seen = make(2 * patience)
    held = {p: replace(one, old=False) for p, one in seen.pipelines[0].withheld.items()}
    young = replace(seen.facts, runs=(), checkpoints=FACTS.checkpoints, written={})
    bare = replace(seen, absences={}, pipelines=(replace(seen.pipelines[0], withheld=held),), facts=young)
    left = [need for need in find_needs(bare)[0] if need.person or need.due - NOW <= HEALING]
    assert {need.cause for need in left} <= {"idle", "unowned"}, "idle needs no memory, unowned no grace"


def test_a_worker_that_no_rebalance_missed_is_waited_for_without_grace() -> None:
    """No rebalance ran for 200 s, and `rota status --check` waited for the grace of the group, which none began."""
    (need,) = find_needs(replace(facts(**GONE), grace=60.0, workers=ALONE))[0]
    assert (need.cause, need.due - NOW) == ("unowned", SETTLE)


COULD_NOT_TELL = {
    "an uncordon gave a place to it": lambda age: facts(**FREE, targets={"w1": frozenset({"p:a"})}),
    "the worker that has it in its target came back": lambda age: replace(
        facts(**GONE_TO_W2, written={"w2": NOW - age}), absences={"w9": NOW - age}
    ),
    "a worker beyond its grace": lambda age: replace(
        facts(**GONE), grace=60.0, workers=ALONE, absences={"w9": NOW - age}
    ),
}


@pytest.mark.parametrize("case", COULD_NOT_TELL)
def test_what_could_be_taken_only_now_has_time_to_be_taken(case: str) -> None:
    """An alert was sent at the moment of `rota uncordon`: the partition had been without an owner for minutes."""
    (need,) = find_needs(COULD_NOT_TELL[case](10_000.0))[0]
    assert (need.cause, need.person, need.due - NOW) == ("unowned", False, SETTLE)


@pytest.mark.parametrize("age", [0.0, 20.0, 60.0])
def test_the_grace_of_a_missed_worker_is_counted_from_its_absence(age: float) -> None:
    (need,) = find_needs(replace(facts(**GONE), grace=60.0, workers=ALONE, absences={"w9": NOW - age}))[0]
    assert (need.cause, need.due - NOW) == ("unowned", SETTLE + 60.0 - age)
