"""Laws that every assignor keeps: valid, as many placed as possible, caps, blind to order, nothing invented."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core import Partition, Plan, Snapshot, Worker, plan
from rota.core.assignors import ASSIGNORS
from rota.errors import ConfigError
from tests.core.exact_solver import may_hold
from tests.core.groups import draw_group

NAMES = sorted(ASSIGNORS)


def most_placed(workers: list[Worker], partitions: list[Partition], owners: dict[str, str]) -> int:
    """The largest matching of partitions to seats, by augmenting paths."""
    seats: dict[str, list[Partition]] = {w.id: [] for w in workers}

    def seat(p: Partition, seen: set[str]) -> bool:
        for w in workers:
            if w.id in seen or not may_hold(w, p, owners.get(p.id)):
                continue
            seen.add(w.id)
            cap = w.max_partitions if w.max_partitions is not None else len(partitions)
            if len(seats[w.id]) < cap:
                seats[w.id].append(p)
                return True
            for other in list(seats[w.id]):
                if seat(other, seen):
                    seats[w.id].remove(other)
                    seats[w.id].append(p)
                    return True
        return False

    return sum(seat(p, set()) for p in partitions)


def check(case: tuple[list[Worker], list[Partition], dict[str, str]], made: Plan) -> None:
    workers, partitions, owners = case
    held = made.assignment.as_dict()
    team, parts = {w.id: w for w in workers}, {p.id: p for p in partitions}
    placed = [p for some in held.values() for p in some]
    assert len(placed) == len(set(placed))
    assert {*placed} | {u.partition for u in made.unassigned} == {*parts}
    assert len(placed) + len(made.unassigned) == len(parts)
    assert {w.id for w in workers if w.state == "active"} <= set(held)
    for name, some in held.items():
        assert list(some) == sorted(some, key=str.encode)
        assert all(may_hold(team[name], parts[p], owners.get(p)) for p in some)
        cap = team[name].max_partitions
        assert cap is None or len(some) <= cap
    assert len(placed) == most_placed(workers, partitions, owners)
    after = {p: w for w, some in held.items() for p in some}
    assert {(m.partition, m.from_worker, m.to_worker) for m in made.moves} == {
        (p, owners.get(p), w) for p, w in after.items() if owners.get(p) != w
    }
    assert made.measures.moves == sum(m.from_worker is not None for m in made.moves)
    assert made.measures.placements == sum(m.from_worker is None for m in made.moves)
    assert made.measures.unavoidable_moves <= made.measures.moves
    assert all(m.reason for m in made.moves)
    assert all(u.reason for u in made.unassigned)
    assert made.moves or made.measures.reason
    json.dumps(dict(made.memory), allow_nan=False)


@pytest.mark.parametrize("assignor", NAMES)
@given(case=draw_group(), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_valid_and_blind_to_order(assignor: str, case: Any, seed: int) -> None:
    workers, partitions, owners = case
    made = plan(Snapshot.of(workers, partitions, owners), assignor)
    check(case, made)
    shuffle = random.Random(seed).sample
    entries = dict(shuffle(sorted(owners.items()), len(owners)))
    again = plan(Snapshot.of(shuffle(workers, len(workers)), shuffle(partitions, len(partitions)), entries), assignor)
    assert list(again.moves) == list(made.moves)
    assert again.assignment.as_dict() == made.assignment.as_dict()
    assert again.memory == made.memory


@pytest.mark.parametrize("assignor", NAMES)
@given(case=draw_group())
@settings(max_examples=20)
def test_a_plan_that_was_carried_out_is_followed_by_no_move(assignor: str, case: Any) -> None:
    """The shedders move by reports of load, one step a round: without reports they too are done. A rate is a report: that of
    a partition which is pinned to a worker is a reason to take another from it in the next round."""
    workers, partitions, owners = case
    team, quiet = (
        [replace(w, usage=None) for w in workers],
        [replace(p, rate=None, throughput=None) for p in partitions],
    )
    made = plan(Snapshot.of(team, quiet, owners), assignor)
    owners = {p: w for w, held in made.assignment.as_dict().items() for p in held}
    assert not plan(Snapshot.of(team, quiet, owners), assignor, memory=made.memory).moves


@pytest.mark.parametrize("assignor", ["sticky", "sticky-load", "avg-shed", "hash"])
def test_join_and_leave_move_only_what_they_must(assignor: str) -> None:
    parts = [Partition(f"p{i:03}", rate=1.0) for i in range(120)]
    team = [Worker(f"w{i}") for i in range(6)]
    first = plan(Snapshot.of(team, parts, {}), assignor)
    owners = {p: w for w, held in first.assignment.as_dict().items() for p in held}
    assert not plan(Snapshot.of(team, parts, owners), assignor, memory=first.memory).moves
    left = plan(Snapshot.of(team[1:], parts, owners), assignor, memory=first.memory)
    assert {m.partition for m in left.moves} == set(first.assignment.as_dict()["w0"])
    joined = plan(Snapshot.of([*team, Worker("w9")], parts, owners), assignor, memory=first.memory)
    assert {m.to_worker for m in joined.moves} <= {"w9"}
    assert all(m.from_worker is not None for m in joined.moves)


@pytest.mark.parametrize("assignor", NAMES)
def test_an_unknown_option_names_the_valid_ones(assignor: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'nope' of .* Valid: "):
        plan(Snapshot.of([], [], {}), assignor, {"nope": 1})


@pytest.mark.parametrize(
    ("assignor", "options"),
    [
        ("sticky-load", {"budget": -1}),
        ("sticky-load", {"budget": True}),
        ("sticky-load", {"budget": 1.5}),
        ("sticky-load", {"tolerance": float("nan")}),
        ("sticky-load", {"move_price": "1"}),
        ("avg-shed", {"share": 1.1}),
        ("avg-shed", {"hits_low": 0}),
        ("avg-shed", {"weights": {"disk": 1}}),
        ("avg-shed", {"weights": 1}),
        ("ordinal", {"spread": 1}),
    ],
)
def test_a_wrong_option_names_its_value_and_the_valid_ones(assignor: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"options\.?.* Valid: "):
        plan(Snapshot.of([Worker("w")], [], {}), assignor, options)


def test_a_wrong_weight_is_named_by_its_whole_path() -> None:
    for weights, said in (
        ({"cpu": -1}, "options.weights.cpu: -1 is not valid. Valid: a finite number >= 0"),
        (
            {"disk": 1},
            "options.weights: unknown option 'disk' of avg-shed. Valid: bandwidth_in, bandwidth_out, cpu, memory",
        ),
    ):
        with pytest.raises(ConfigError) as refused:
            plan(Snapshot.of([Worker("w")], [], {}), "avg-shed", {"weights": weights})
        assert str(refused.value) == said


@pytest.mark.parametrize(
    "memory", [{"hit_low": 1}, {"hit_low": {"w": "x"}}, {"planned": {"p": 1}}, {"predicted": {"w": [1]}}, {"at": "x"}]
)
def test_a_memory_of_another_shape_is_refused(memory: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"memory\.avg-shed\..* Valid: "):
        plan(Snapshot.of([Worker("w")], [], {}), "avg-shed", {}, {"avg-shed": memory})
