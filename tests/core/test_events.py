"""What happened between observations: each epoch, hand-over and refused write counts once; a record's age never exceeds its
own."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.coordination.records import Epoch, Moved, Refusal
from rota.coordination.views import OwnView
from rota.face.events import (
    HANDOVER_BOUNDS,
    MAX_ARRIVALS,
    Arrivals,
    Buckets,
    Events,
    count_moves,
    follow_ends,
    follow_events,
    measure_ages,
)
from rota.face.seen import Seen
from tests.core.seen_group import FACTS, FAILED, RUN, W1, W2, WELL, facts, pipeline


def epoch(number: int, at: float = 0.0, moves: Sequence[Moved] = (), **measures: int) -> Epoch:
    return Epoch(epoch=number, at=at, sentence="", moves=tuple(moves), moved=len(moves), measures=measures)


def move(partition: str = "p:a", former: str | None = "w2", taker: str = "w1", at: float | None = None) -> Moved:
    return Moved(partition=partition, from_worker=former, to_worker=taker, reason="", at=at)


def at_epoch(number: int, **changes: object) -> Seen:
    return facts(epoch=number, **changes)


def refuse(number: int) -> Refusal:
    return Refusal(partition=f"p:{number % 2}", token=number, newer=number + 1, run_id="r", at=float(number))


def test_what_was_before_the_first_observation_does_not_count() -> None:
    """Else each restart of the exporter would count 200 epochs again."""
    first = follow_events(at_epoch(9), [epoch(9, moves=[move()])], [refuse(1)], None)
    again = follow_events(at_epoch(9), [epoch(9, moves=[move()])], [refuse(1)], first)
    assert not sum(again.moves.values())
    assert not sum(again.refused.values())


def test_moves_are_counted_by_kind() -> None:
    moves = [move(former=None), move("p:b"), move("p:c"), move("p:d")]
    assert count_moves(epoch(1, moves=moves, placements=1, unavoidable_moves=1)) == {
        "voluntary": 2, "unavoidable": 1, "placement": 1,
    }  # fmt: skip
    cut = epoch(1, moves=moves).model_copy(update={"moved": 900, "measures": {"placements": None}})
    assert count_moves(cut)["voluntary"] == 900, "an epoch lists its first 500 moves"


@given(st.lists(st.integers(1, 3), max_size=6), st.integers(0, 5))
def test_each_epoch_counts_once_however_the_audits_overlap(steps: list[int], overlap: int) -> None:
    """Also one that is published between the reading of the facts and of the audit."""
    audit = [epoch(n, moves=[move(f"p:{n}", former=None)], placements=1) for n in range(1, 40)]
    events, now = follow_events(at_epoch(1), (), (), None), 1
    for step in steps:
        now += step
        events = follow_events(at_epoch(now), audit[max(0, now - step - overlap) : now + step % 2], (), events)
    assert events.moves.get("placement", 0) == max([now, events.epoch]) - 1


@given(st.lists(st.integers(0, 4), max_size=8))
def test_each_refused_write_counts_once(steps: list[int]) -> None:
    events, total = follow_events(WELL, (), (), None), 0
    ring: list[Refusal] = []
    for step in steps:
        ring = [*ring, *map(refuse, range(total, total + step))][-6:]
        total += step
        events = follow_events(WELL, (), ring, events)
    assert events.refused.get("p", 0) == total


def claimed(at: float, incarnation: str | None = W1, partition: str = "p:a") -> dict[str, OwnView]:
    return {**FACTS.owns, partition: OwnView(incarnation, 2, 9, at)}


def hand_over(*seen: Seen, moves: Sequence[Moved] = (move(),)) -> Events:
    """The events of an epoch at 100 and of these observations."""
    events = follow_events(at_epoch(1), (), (), None)
    for one in seen:
        events = follow_events(one, [epoch(2, 100.0, moves)], (), events)
    return events


def test_a_hand_over_is_measured_from_its_epoch_to_its_claim() -> None:
    free, taken = at_epoch(2, owns=claimed(101.0, None)), at_epoch(2, owns=claimed(103.5))
    assert hand_over(free).handovers.total == 0.0
    for seen in ((free, taken), (taken,), (free, taken, taken)):
        assert hand_over(*seen).handovers.total == 3.5
        assert sum(hand_over(*seen).handovers.counts) == 1


@pytest.mark.parametrize(
    ("owns", "moves"),
    [
        (claimed(90.0), (move(),)),
        (claimed(103.0, W2), (move(),)),
        (claimed(103.0), (move(former=None),)),
        (claimed(103.0), (move(at=102.0),)),
    ],
    ids=["it had it before", "another worker has it", "it had no owner", "no epoch assigned it"],
)
def test_what_is_no_hand_over_is_not_measured(owns: dict[str, OwnView], moves: Sequence[Moved]) -> None:
    assert sum(hand_over(at_epoch(2, owns=owns), moves=moves).handovers.counts) == 0


def test_a_partition_that_left_the_group_is_awaited_no_longer() -> None:
    assert hand_over(at_epoch(2, owns={})).assigned == {}


@given(st.lists(st.floats(0, 1e6, allow_nan=False), max_size=50), st.lists(st.floats(0, 1e6), max_size=5))
def test_a_histogram_counts_each_value_in_its_bucket(values: list[float], more: list[float]) -> None:
    found = Buckets.of(HANDOVER_BOUNDS, values).add(more)
    both = [*values, *more]
    for number, bound in enumerate((*HANDOVER_BOUNDS, inf)):
        assert sum(found.counts[: number + 1]) == sum(1 for value in both if value <= bound)
    assert found.total == pytest.approx(sum(both))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=150))
def test_no_record_is_older_than_it_is_and_none_that_waits_is_forgotten(steps: list[tuple[int, int]]) -> None:
    """Each second some records arrive and some are committed. An observation follows each."""
    came: list[float] = []  # when each offset arrived
    offset, arrivals = 0, dict[str, Arrivals]()
    for second, (new, done) in enumerate(steps):
        came += [float(second)] * new
        offset = min(len(came), offset + done)
        seen = replace(pipeline(ends={"p:a": (offset, len(came))}), now=float(second))
        arrivals = follow_ends(seen, arrivals)
        age = measure_ages(seen, arrivals)["p:a"]
        assert len(arrivals.get("p:a", ())) <= MAX_ARRIVALS
        if offset == len(came):
            assert age == 0.0
        else:
            assert age <= second - came[offset]
            if len(set(came[offset:])) < MAX_ARRIVALS // 2:
                assert age == second - came[offset]


def test_a_batch_and_a_park_prove_that_a_record_waits() -> None:
    """What an exporter that was just started knows."""
    lags = {"p:a": (5, 9), "p:b": (6, 6)}
    seen = pipeline(ends=lags)
    assert measure_ages(seen, follow_ends(seen, {})) == {"p:a": 0.0, "p:b": 0.0}
    batch = replace(seen, facts=replace(FACTS, runs=(replace(RUN, since=940.0),)))
    assert measure_ages(batch, follow_ends(batch, {}))["p:a"] == 60.0
    parked = replace(seen, facts=replace(FACTS, parked={"p:a": FAILED}))
    assert measure_ages(parked, follow_ends(parked, {}))["p:a"] == 10.0


def test_a_source_that_is_restored_makes_no_record_older() -> None:
    before = {"p:a": ((10.0, 50),)}
    seen = replace(pipeline(ends={"p:a": (5, 9)}), now=100.0)
    assert follow_ends(seen, before) == {"p:a": ((100.0, 9),)}
