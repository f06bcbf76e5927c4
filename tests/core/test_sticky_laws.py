"""`sticky` against a solver that looks at every assignment there is; blind to order, idempotent, interruptible."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core import Snapshot, Worker, plan
from tests.core.exact_solver import best, score_one
from tests.core.groups import draw_sticky_group


@given(draw_sticky_group())
@settings(max_examples=60)
def test_optimal_in_every_rank(case) -> None:
    workers, partitions, owners = case
    made = plan(Snapshot.of(workers, partitions, owners))
    assert score_one(workers, partitions, owners, made.assignment.as_dict()) == best(workers, partitions, owners)


@given(draw_sticky_group(alike=True))
@settings(max_examples=60)
def test_optimal_with_alike_partitions(case) -> None:
    workers, partitions, owners = case
    made = plan(Snapshot.of(workers, partitions, owners))
    assert score_one(workers, partitions, owners, made.assignment.as_dict()) == best(workers, partitions, owners)


@given(draw_sticky_group(most=14), st.integers(0, 1000))
@settings(max_examples=60)
def test_blind_to_order_and_idempotent(case, seed: int) -> None:
    workers, partitions, owners = case
    made = plan(Snapshot.of(workers, partitions, owners))
    shuffle = random.Random(seed).sample
    entries = dict(shuffle(sorted(owners.items()), len(owners)))
    again = plan(Snapshot.of(shuffle(workers, len(workers)), shuffle(partitions, len(partitions)), entries))
    assert list(again.moves) == list(made.moves)
    assert again.assignment.as_dict() == made.assignment.as_dict()
    assert again.measures == made.measures
    after = {p: w for w, held in made.assignment.as_dict().items() for p in held}
    settled = plan(Snapshot.of(workers, partitions, after))
    assert not settled.moves
    assert settled.assignment.as_dict() == made.assignment.as_dict()


@given(draw_sticky_group(most=12))
@settings(max_examples=60)
def test_every_interrupted_prefix_goes_on_to_the_same_end(case) -> None:
    workers, partitions, owners = case
    made = plan(Snapshot.of(workers, partitions, owners))
    done = dict(owners)
    for move in made.moves:
        done[move.partition] = move.to_worker
        again = plan(Snapshot.of(workers, partitions, done))
        assert again.assignment.as_dict() == made.assignment.as_dict()


@given(draw_sticky_group(alike=True, most=16), st.integers(2, 6))
@settings(max_examples=60)
def test_no_move_when_the_state_came_from_another_tie(case, count: int) -> None:
    _, partitions, _ = case
    ids = [p.id for p in partitions]
    for turn in range(count):
        owners = {p: f"w{(i + turn) % count}" for i, p in enumerate(ids)}
        assert not plan(Snapshot.of([Worker(f"w{i}") for i in range(count)], partitions, owners)).moves
