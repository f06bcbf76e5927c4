"""Reasons are true: what a move's reason states of its two workers holds before or after it."""

import re
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core import Move, Partition, Plan, Snapshot, Worker, plan
from tests.core.exact_solver import may_hold
from tests.core.groups import Case, build_crowded, draw_sticky_group

BY_LAW = ["sticky", "hash", "range", "round-robin", "ordinal"]


def untrue(case: Case, made: Plan) -> list[Move]:
    """The moves whose reason is not so."""
    workers, partitions, owners = case
    team, parts = {w.id: w for w in workers}, {p.id: p for p in partitions}
    after = {w: len(held) for w, held in made.assignment.as_dict().items()}
    had = Counter(owners.values())
    kept = Counter(w for p, w in owners.items() if w in team and may_hold(team[w], parts[p], w))
    takers = {m.to_worker for m in made.moves}

    def true(move: Move) -> bool:
        giver, part, said = team.get(move.from_worker or ""), parts[move.partition], move.reason
        if giver is None:
            return said == (f"{move.from_worker} left" if move.from_worker else "it had no owner")
        if giver.state == "draining":
            return said == f"{giver.id} is draining"
        if not may_hold(giver, part, giver.id):
            return (
                said.startswith(f"{giver.id} lacks ")
                or said == f"pinned to {part.pin}" == f"pinned to {move.to_worker}"
            )
        if found := re.fullmatch(rf"{giver.id} was (\d+) over its cap of (\d+)", said):
            return int(found[2]) == giver.max_partitions == had[giver.id] - int(found[1])
        if found := re.fullmatch(rf"{giver.id} was (\d+) over its quota of (\d+)", said):
            return int(found[2]) == after.get(giver.id, 0) == kept[giver.id] - int(found[1]) < kept[giver.id]
        if said.startswith(f"{giver.id} made room"):
            return giver.id in takers
        found = re.fullmatch(r"its (?:slice|hash|turn) (?:belongs to|is) (\w+)(?:'s)?(?:, but \1 is full)?", said)
        if found is None or not said.endswith("is full"):
            return found is not None and found[1] == move.to_worker
        return found[1] != move.to_worker and after.get(found[1], 0) == team[found[1]].max_partitions

    return [m for m in made.moves if not true(m)]


@pytest.mark.parametrize("assignor", BY_LAW)
@given(case=draw_sticky_group(most=10), seed=st.integers(0, 1_000_000))
@settings(max_examples=40)
def test_every_reason_is_so(assignor: str, case: Any, seed: int) -> None:
    for one in (case, build_crowded(seed)):
        workers, partitions, owners = one
        assert not untrue(one, plan(Snapshot.of(workers, partitions, owners), assignor))


def test_a_worker_that_keeps_a_partition_in_a_tie_of_sources_is_not_over_its_quota() -> None:
    """w1 and w2 hold two each and one of them may: the sources decide that it is w2."""
    team = [Worker(f"w{i}") for i in range(1, 4)]
    source = {"p0": "a", "p1": "a", "p2": "b", "p3": "a"}
    owners = {"p0": "w1", "p1": "w1", "p2": "w2", "p3": "w2"}
    case: Case = (team, [Partition(p, source=s) for p, s in source.items()], owners)
    made = plan(Snapshot.of(*case))
    assert [m.reason for m in made.moves] == ["w1 was 1 over its quota of 1"]


@given(seed=st.integers(0, 1_000_000))
@settings(max_examples=40)
def test_a_worker_that_carried_more_than_the_mean_did_so_before_the_plan(seed: int) -> None:
    """Not with what the plan itself places on it first: that is what it would carry."""
    rng = Random(seed)
    team = [Worker(f"w{i}") for i in range(4)]
    parts = [Partition(f"p{i:02}", load=rng.lognormvariate(0, 1)) for i in range(12)]
    owners = {p.id: rng.choice([*(w.id for w in team), "gone"]) for p in parts}
    mean = sum(p.load for p in parts) / len(team)
    for move in plan(Snapshot.of(team, parts, owners), "sticky-load", {"tolerance": 0}).moves:
        if found := re.fullmatch(rf"{move.from_worker} carried (\d+\.\d\d) times the mean", move.reason):
            carried = sum(p.load for p in parts if owners[p.id] == move.from_worker) / mean
            assert found[1] == f"{carried:.2f}"
