"""Caps: no worker ends over its cap, whatever the budget. No worker is over its cap on the way if some order of the moves
avoids that (this module tries all orders without the planner's code)."""

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core import Partition, Plan, Policy, Snapshot, Worker, budget, order, plan
from rota.core.assignors import ASSIGNORS
from tests.core.groups import Case, build_crowded

BUDGETS = [None, 0, 1, 2]


def make_plan(case: Case, assignor: str, allowed: int | None) -> Plan:
    workers, partitions, owners = case
    options = {"hits_high": 1, "hits_low": 1, "low": 1, "share": 1.0} if assignor == "avg-shed" else {}
    return plan(Snapshot.of(workers, partitions, owners), assignor, options, policy=Policy(allowed))


def breaches(case: Case, done: Plan, allowed: int | None, whole: Plan) -> list[str]:
    """What of the laws does not hold."""
    workers, _, owners = case
    cap = {w.id: w.max_partitions for w in workers if w.max_partitions is not None}
    after = done.assignment.as_dict()
    found = [f"{w} ends with {len(after.get(w, ()))}" for w in cap if len(after.get(w, ())) > cap[w]]
    given_up = {u.partition for u in done.unassigned}
    held = Counter(o for p, o in owners.items() if p not in given_up)
    moves = [(m.from_worker or "", m.to_worker) for m in done.moves]
    if over_at(moves, held, cap) and clean(tuple(moves), tuple(held.items()), tuple(cap.items())):
        found.append(f"over a cap at moves {over_at(moves, held, cap)}, which another order avoids")
    if allowed is not None and done.measures.moves - done.measures.unavoidable_moves > allowed:
        found.append(f"{done.measures.moves - done.measures.unavoidable_moves} voluntary moves")
    if len(given_up) > len(whole.unassigned):
        found.append(f"{len(given_up) - len(whole.unassigned)} fewer are placed than without a budget")
    return found


def over_at(moves: list[tuple[str, str]], held: Counter[str], cap: dict[str, int]) -> list[int]:
    now, found = Counter(held), []
    for place, (giver, taker) in enumerate(moves):
        now[giver] -= 1
        now[taker] += 1
        if taker in cap and now[taker] > cap[taker]:
            found.append(place)
    return found


def clean(moves: Any, held: Any, cap: Any) -> bool:
    """Whether some order of all moves brings no worker over its cap. It tries every order."""
    start, most = Counter(dict(held)), dict(cap)

    @cache
    def goes(left: frozenset[int]) -> bool:
        now = Counter(start)
        for i in set(range(len(moves))) - left:
            now[moves[i][0]] -= 1
            now[moves[i][1]] += 1
        able = [i for i in left if now[moves[i][1]] < most.get(moves[i][1], len(start) + 99)]
        return not left or any(goes(left - {i}) for i in able)

    return goes(frozenset(range(len(moves))))


@pytest.mark.parametrize("allowed", BUDGETS)
@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@given(seed=st.integers(0, 1_000_000))
@settings(max_examples=20)
def test_caps_hold_in_the_end_and_on_the_way(assignor: str, allowed: int | None, seed: int) -> None:
    case = build_crowded(seed)
    assert not breaches(case, make_plan(case, assignor, allowed), allowed, make_plan(case, assignor, None))


A_CHAIN: Case = (
    [Worker("A", state="draining"), Worker("B", max_partitions=2), Worker("C", max_partitions=1), Worker("D")],
    [Partition("a", pin="B"), Partition("w", pin="B"), Partition("y", pin="C"), Partition("z")],
    {"a": "A", "w": "C", "y": "B", "z": "B"},
)
ONE_ROOM: Case = (
    [Worker("C", max_partitions=1), Worker("X", state="draining"), Worker("t", max_partitions=2)],
    [Partition("a", pin="t"), Partition("b", pin="t"), Partition("c", pin="C")],
    {"a": "X", "b": "C", "c": "t"},
)


def in_given_order(line: Any) -> list[int]:
    return list(range(len(line.pending)))


ABLATIONS = [
    (order.MoveQueue, "order", in_given_order, None, "another order avoids"),
    (order.MoveQueue, "delay_moves_from", lambda line, roots: None, None, "another order avoids"),
    (budget.FreeRoom, "find_chain", lambda rooms, move, home, most: [move], 0, "ends with"),
]


@pytest.mark.parametrize(("part", "guard", "without", "allowed", "damage"), ABLATIONS, ids=[a[1] for a in ABLATIONS])
def test_the_laws_see_a_plan_without_one_of_its_guards(
    part: type, guard: str, without: Any, allowed: int | None, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, guard, without)
    found = (
        breaches(case, make_plan(case, "sticky", allowed), allowed, make_plan(case, "sticky", None))
        for case in [A_CHAIN, ONE_ROOM, *map(build_crowded, range(200))]
    )
    assert any(damage in what for all_of_one in found for what in all_of_one)


def of(case: Case) -> list[tuple[str, str | None, str]]:
    return [(m.partition, m.from_worker, m.to_worker) for m in make_plan(case, "sticky", None).moves]


@pytest.mark.parametrize("allowed", BUDGETS)
def test_room_is_made_before_it_is_taken(allowed: int | None) -> None:
    """All four had to move: a, w and y may not stay, and z makes room for them, so no budget holds it back."""
    done = make_plan(A_CHAIN, "sticky", allowed)
    assert [m.partition for m in done.moves] == ["z", "w", "y", "a"]
    assert done.measures.unavoidable_moves == 4
    assert done.moves[0].reason == "B made room under its cap of 2"


def test_the_only_room_goes_first_to_the_worker_that_frees_it_again() -> None:
    """t has room for one. Taken by a from X it is lost; taken by b from C, it comes back from C."""
    assert of(ONE_ROOM) == [("b", "C", "t"), ("c", "t", "C"), ("a", "X", "t")]


def test_a_circle_of_full_workers_is_broken_at_one_of_them() -> None:
    team = [Worker(f"w{i}", max_partitions=1) for i in range(4)]
    names = [w.id for w in team]
    partitions = [Partition(f"p{i}", pin=names[(i + 1) % 4]) for i in range(4)]
    moves = of((team, partitions, {f"p{i}": names[i] for i in range(4)}))
    held, cap = Counter(names), dict.fromkeys(names, 1)
    assert len(over_at([(g or "", t) for _, g, t in moves], held, cap)) == 1


@pytest.mark.parametrize(("allowed", "moved"), [(0, 0), (1, 0), (2, 2)])
def test_two_that_change_places_do_so_within_the_budget_or_wait(allowed: int, moved: int) -> None:
    """Both are full: one alone would bring the other over its cap, also where an order could not avoid that."""
    team = [Worker("a", max_partitions=2), Worker("b", max_partitions=2)]
    partitions = [Partition(f"{s}{i}", source=s) for s in "xy" for i in range(2)]
    owners = {"x0": "b", "x1": "b", "y0": "a", "y1": "a"}
    done = plan(Snapshot.of(team, partitions, owners), "round-robin", policy=Policy(allowed))
    assert len(done.moves) == moved
    assert done.due is None  # where nothing can move, another look would find the same
