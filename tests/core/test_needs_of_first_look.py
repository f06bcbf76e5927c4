"""The first look knows how old a need is, from stored times: one call of `rota status --check` needs no memory."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rota.cli.look import HEALING
from rota.coordination.records import Live
from rota.coordination.store import Node
from rota.coordination.views import OwnView
from rota.dataplane.ports import Withheld
from rota.face.needs import BEHIND, FAILING, IDLE, OPEN, SETTLE, find_needs
from rota.face.seen import HANDOVER, Seen, SensorSeen
from tests.core.seen_group import ALONE, FACTS, FREE, GONE, NEEDS, OLD, RUN, W1, W2, WELL, P, commit_to, dagster, facts

NOW = WELL.now
SECONDS = 2.0  # between "too young" and "old enough"


def free(age: float, **changes: object) -> Seen:
    owns = {**FACTS.owns, "p:b": OwnView(None, 2, 8, NOW - age)}
    return facts(owns=owns, **changes)


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
    "a worker that is missed beyond its grace": (
        lambda age: replace(facts(**GONE), grace=60.0, workers=ALONE, absences={"w9": NOW - age}),
        SETTLE + 60.0,
        "unowned",
    ),
    "a partition that was released and not taken": (
        lambda age: free(age, written={"w2": NOW - 500.0}),
        SETTLE,
        "unowned",
    ),
    "a partition that was given and not taken": (
        lambda age: free(500.0, written={"w2": NOW - age}),
        SETTLE,
        "unowned",
    ),
    "a partition of a dead owner that was given and not taken": (
        lambda age: replace(
            facts(
                owns={**FACTS.owns, "p:b": OwnView(OLD, 1, 8)},
                lives={W1: Live(), W2: Live()},
                written={"w2": NOW - 500.0},
            ),
            absences={"w9": NOW - age},
        ),
        SETTLE,
        "unowned",
    ),
    "a partition that no rebalance gave away": (
        lambda age: free(age, targets={"w1": frozenset({"p:a"})}),
        SETTLE,
        "unowned",
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
def test_the_first_look_reports_what_is_older_than_its_patience_and_nothing_younger(case: str) -> None:
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


def test_a_partition_that_no_one_owns_is_free_since_its_record_was_written() -> None:
    assert FREE["owns"]["p:b"].since == float("inf"), "unknown: the look itself is the begin"
    (need,) = find_needs(facts(**FREE))[0]
    assert need.since == NOW
