"""`sticky` against a solver that looks at every assignment there is; blind to order, idempotent, interruptible."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core import Partition, Snapshot, Worker, plan
from tests.core.exact_solver import best, reached

LABELS = [{}, {}, {"disk": "ssd"}, {"disk": "hdd"}]
WISHES = [{}, {}, {}, {"disk": "ssd"}, {"zone": "a"}]


@st.composite
def cases(draw, alike: bool = False, most: int = 6):
    workers = [
        Worker(
            f"w{i}",
            capacity=1.0 if alike else draw(st.sampled_from([1.0, 1.0, 2.0, 0.5, 3.0])),
            zone=None if alike else draw(st.sampled_from([None, "a", "b"])),
            labels={} if alike else draw(st.sampled_from(LABELS)),
            state=draw(st.sampled_from(["active"] * 5 + ["cordoned", "draining"])),
            max_partitions=draw(st.sampled_from([None, None, None, 0, 1, 2, 3])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    partitions = [
        Partition(
            f"p{i}",
            source=draw(st.sampled_from(["a", "b", "c"])),
            requires={} if alike else draw(st.sampled_from(WISHES)),
            pin=None if alike else draw(st.sampled_from([None] * 6 + ["w0", "w1", "w9"])),
        )
        for i in range(draw(st.integers(1, most)))
    ]
    names = [None, "gone", *(w.id for w in workers)]
    owners = {p.id: w for p in partitions if (w := draw(st.sampled_from(names))) is not None}
    return workers, partitions, owners


@given(cases())
@settings(max_examples=60, deadline=None)
def test_optimal_in_every_rank(case) -> None:
    workers, partitions, owners = case
    made = plan(Snapshot.of(workers, partitions, owners))
    assert reached(workers, partitions, owners, made.assignment.as_dict()) == best(workers, partitions, owners)


@given(cases(alike=True))
@settings(max_examples=60, deadline=None)
def test_optimal_with_alike_partitions(case) -> None:
    workers, partitions, owners = case
    made = plan(Snapshot.of(workers, partitions, owners))
    assert reached(workers, partitions, owners, made.assignment.as_dict()) == best(workers, partitions, owners)


@given(cases(most=14), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
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


@given(cases(most=12))
@settings(max_examples=60, deadline=None)
def test_every_interrupted_prefix_goes_on_to_the_same_end(case) -> None:
    workers, partitions, owners = case
    made = plan(Snapshot.of(workers, partitions, owners))
    done = dict(owners)
    for move in made.moves:
        done[move.partition] = move.taker
        again = plan(Snapshot.of(workers, partitions, done))
        assert again.assignment.as_dict() == made.assignment.as_dict()


@given(cases(alike=True, most=16), st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_no_move_when_the_state_came_from_another_tie(case, count: int) -> None:
    _, partitions, _ = case
    ids = [p.id for p in partitions]
    for turn in range(count):
        owners = {p: f"w{(i + turn) % count}" for i, p in enumerate(ids)}
        assert not plan(Snapshot.of([Worker(f"w{i}") for i in range(count)], partitions, owners)).moves
