"""Predicted load counts until reports catch up: a at 90 %, b at 10 %, and reports of every kind while partitions move."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from rota.core import Partition, Plan, Snapshot, Worker, plan
from rota.core.assignors.pulsar.predicted_load import CATCH_UP_ROUNDS
from tests.core.groups import read_owners

# A gap of 15 acts in its first round, half of it moves, and what moved may go back: only the prediction is in the way.
OPTIONS = {"hits_high": 1, "hits_low": 1, "share": 0.5, "min_rate": 0, "min_throughput": 0, "immune_rounds": 0}
START = {f"p{i:02}": "a" if i < 18 else "b" for i in range(20)}  # 5 % each
KINDS = [("cpu",), ("cpu", "rate"), ("cpu", "throughput"), ("cpu", "rate", "throughput")]
Report = Callable[[int, float, float], float]  # round, what is true, what was reported last -> what is reported now


def count_held(owners: Mapping[str, str], worker: str) -> int:
    return sum(w == worker for w in owners.values())


def state(owners: Mapping[str, str], used: Mapping[str, float], kinds: tuple[str, ...]) -> Snapshot:
    scale = {"cpu": 1.0, "rate": 2e4, "throughput": 2e7}
    team = [Worker(w, usage={name: scale[name] * u for name in kinds}) for w, u in used.items()]
    parts = [Partition(p, rate=1e3, throughput=1e6) for p in owners]
    return Snapshot.of(team, parts, dict(owners))


def rounds(
    report: Report, count: int, kinds: tuple[str, ...], jitter: float = 0.0, remember: bool = True
) -> tuple[list[int], dict[str, str]]:
    """The moves of each round, and the owners in the end."""
    owners, memory, moves, random = dict(START), dict[str, Any](), list[int](), Random(5)
    used = {"a": 0.9, "b": 0.1}
    for number in range(count):
        if number:
            used = {w: report(number, 0.05 * count_held(owners, w), used[w]) for w in used}
        seen = {w: u * random.uniform(1 - jitter, 1 + jitter) for w, u in used.items()}
        made = plan(state(owners, seen, kinds), "avg-shed", OPTIONS, memory)
        owners, memory = read_owners(made), dict(made.memory) if remember else {}
        moves.append(len(made.moves))
    return moves, owners


def frozen(_: int, true: float, last: float) -> float:
    return last


def at_once(_: int, true: float, last: float) -> float:
    return true


def slowly(_: int, true: float, last: float) -> float:
    return (last + true) / 2


def half_way(number: int, true: float, last: float) -> float:
    return (last + true) / 2 if number == 1 else last


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("report", [frozen, at_once, slowly, half_way])
@pytest.mark.parametrize("jitter", [0.0, 0.01])
def test_what_moved_is_not_moved_again(kinds: tuple[str, ...], report: Report, jitter: float) -> None:
    moves, owners = rounds(report, CATCH_UP_ROUNDS, kinds, jitter)
    assert moves == [8] + [0] * (CATCH_UP_ROUNDS - 1)
    assert (count_held(owners, "a"), count_held(owners, "b")) == (10, 10)


@pytest.mark.parametrize("kinds", KINDS[1:], ids="-".join)
@pytest.mark.parametrize("jitter", [0.0, 0.01])
def test_without_the_memory_it_is(kinds: tuple[str, ...], jitter: float) -> None:
    """The guard taken away: everything ends on b while the reports stand still (of
    sums over the partitions none can)."""
    _, owners = rounds(frozen, CATCH_UP_ROUNDS, kinds, jitter, remember=False)
    assert count_held(owners, "b") > 16


@pytest.mark.parametrize("kinds", KINDS[1:], ids="-".join)
def test_a_report_that_never_catches_up_is_the_truth_in_the_end(kinds: tuple[str, ...]) -> None:
    moves, _ = rounds(frozen, CATCH_UP_ROUNDS + 1, kinds)
    assert moves[0] == 8
    assert moves[1:-1] == [0] * (CATCH_UP_ROUNDS - 1)
    assert moves[-1] > 0


def memory_after(made: Plan, worker: str) -> tuple[list[float], int] | None:
    past = made.memory["avg-shed"]
    if worker not in past.get("predicted", {}):
        return None
    return [round(n, 6) for n in past["predicted"][worker]], past["predicted_at"][worker]


def test_what_is_shown_is_expected_no_more() -> None:
    """40 % of 90 % leave a: a report of 88 leaves 38, one of 95 after it leaves 38 still, one of 55 leaves 5, nine tenths
    of it none. What comes after is news: 89 is acted upon."""
    kinds = ("cpu", "rate", "throughput")
    made = plan(state(START, {"a": 0.9, "b": 0.1}, kinds), "avg-shed", OPTIONS)
    assert memory_after(made, "a") == ([90, 18e3, 18e6, -40, -8e3, -8e6], 1)
    assert memory_after(made, "b") == ([10, 2e3, 2e6, 40, 8e3, 8e6], 1)
    for a, still in (
        (0.88, [88, 17.6e3, 17.6e6, -38, -7.6e3, -7.6e6]),
        (0.95, [88, 17.6e3, 17.6e6, -38, -7.6e3, -7.6e6]),
        (0.55, [55, 11e3, 11e6, -5, -1e3, -1e6]),
    ):
        made = plan(state(read_owners(made), {"a": a, "b": 0.5}, kinds), "avg-shed", OPTIONS, made.memory)
        assert not made.moves
        assert memory_after(made, "a") == (still, 1)
        assert memory_after(made, "b") is None
    made = plan(state(read_owners(made), {"a": 0.504, "b": 0.5}, kinds), "avg-shed", OPTIONS, made.memory)
    assert "predicted" not in made.memory["avg-shed"]
    made = plan(state(read_owners(made), {"a": 0.89, "b": 0.5}, kinds), "avg-shed", OPTIONS, made.memory)
    assert made.moves


def test_a_report_is_one_thing() -> None:
    """The score of b is its memory, which the move does not touch: it is expected to rise until the rate has risen."""

    def seen(owners: Mapping[str, str], a: float, b: float) -> Snapshot:
        snapshot = state(owners, {"a": a, "b": b}, ("cpu", "rate"))
        team = [replace(w, usage={**(w.usage or {}), "memory": 0.3}) for w in snapshot.workers]
        return Snapshot.of(team, [snapshot.partition(i) for i in range(20)], dict(owners))

    made = plan(seen(START, 0.9, 0.1), "avg-shed", OPTIONS)
    assert memory_after(made, "b") == ([30, 2e3, 2e6, 40, 8e3, 0], 1)
    made = plan(seen(read_owners(made), 0.9, 0.2), "avg-shed", OPTIONS, made.memory)
    assert memory_after(made, "b") == ([30, 4e3, 2e6, 30, 6e3, 0], 1)
    made = plan(seen(read_owners(made), 0.5, 0.5), "avg-shed", OPTIONS, made.memory)
    assert memory_after(made, "b") is None


def test_another_move_adds_to_what_is_expected_and_begins_its_rounds_again() -> None:
    kinds = ("cpu", "rate", "throughput")
    past = {"predicted": {"a": [90, 18e3, 18e6, -20, -4e3, -4e6]}, "predicted_at": {"a": 3}, "round": 6}
    made = plan(state(START, {"a": 0.8, "b": 0.1}, kinds), "avg-shed", OPTIONS, {"avg-shed": past})
    assert len(made.moves) == 6  # a counts as 70, b as 10; 0.5 x 12,000 messages a second
    expected, since = memory_after(made, "a") or ([], 0)
    assert expected[:3] == [80, 16e3, 16e6]
    assert expected[4:] == [-2e3 - 6e3, -2e6 - 6e6]
    assert since == 7


def test_of_what_is_not_reported_nothing_is_expected() -> None:
    """The sums of the partitions follow a move at once."""
    made = plan(state(START, {"a": 0.9, "b": 0.1}, ("cpu",)), "avg-shed", OPTIONS)
    assert memory_after(made, "a") == ([90, 18e3, 18e6, -40, 0, 0], 1)


def test_a_report_that_is_missing_once_forgets_nothing() -> None:
    kinds = ("cpu", "rate", "throughput")
    made = plan(state(START, {"a": 0.9, "b": 0.1}, kinds), "avg-shed", OPTIONS)
    expected = memory_after(made, "a")
    made = plan(state(read_owners(made), {"a": 0.9, "b": 0.1}, ()), "avg-shed", OPTIONS, made.memory)
    assert not made.moves
    assert memory_after(made, "a") == expected


def test_a_memory_without_rounds_is_of_now() -> None:
    """As it was written before `predicted_at` was."""
    past = {"predicted": {"a": [90, 18e3, 18e6, -40, -8e3, -8e6], "b": [10, 2e3, 2e6, 40, 8e3, 8e6]}, "round": 20}
    kinds = ("cpu", "rate", "throughput")
    made = plan(state(START, {"a": 0.9, "b": 0.1}, kinds), "avg-shed", OPTIONS, {"avg-shed": past})
    assert not made.moves
    assert memory_after(made, "a") == ([90, 18e3, 18e6, -40, -8e3, -8e6], 21)
