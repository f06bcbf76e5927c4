"""The shedders keep to their published semantics; each published example is a case here."""

import math
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest

from rota.core import Partition, Plan, Snapshot, Worker, plan
from tests.core.groups import read_owners

EACH = 100.0  # messages per second for one per cent of score, in these tests


def worlds(scores: Sequence[float], owners: dict[str, str] | None = None, step: float = 5.0) -> Snapshot:
    """Workers with these scores, each with partitions of `step` per cent that add up to it."""
    workers, parts, owns = [], [], {}
    for i, score in enumerate(scores):
        usage = {"cpu": score / 100, "rate": score * EACH, "throughput": score * EACH}
        workers.append(Worker(f"w{i}", usage=usage))
        for j in range(math.ceil(score / step)):
            size = min(step, score - j * step) * EACH
            parts.append(Partition(f"p{i}-{j:02}", load=size, rate=size, throughput=size))
            owns[parts[-1].id] = f"w{i}"
    return Snapshot.of(workers, parts, owners or owns)


def report_scores(made: Plan) -> list[float]:
    """The scores once reports caught up, in per cent."""
    held = made.assignment.as_dict()
    load = dict(zip(made.assignment.snapshot.partition_ids, made.assignment.snapshot.load, strict=True))
    return [round(sum(load[p] for p in held[w]) / EACH, 6) for w in sorted(held)]


def rounds(made: Plan, count: int, assignor: str, options: dict[str, Any]) -> list[Plan]:
    """Rounds in which reports follow at once."""
    found = [made]
    for _ in range(count):
        snapshot = found[-1].assignment.snapshot
        held = found[-1].assignment.as_dict()
        workers = [
            Worker(w.id, usage={"cpu": s / 100, "rate": s * EACH, "throughput": s * EACH})
            for w, s in zip(snapshot.workers, report_scores(found[-1]), strict=True)
        ]
        parts = [snapshot.partition(i) for i in range(len(snapshot.partition_ids))]
        owners = {p: w for w, some in held.items() for p in some}
        found.append(plan(Snapshot.of(workers, parts, owners), assignor, options, found[-1].memory))
    return found


def test_one_pairing_step_of_the_article() -> None:
    """20, 51, 52, 80, 80, 80 becomes 50, 51, 52, 50, 80, 80: never three 80s onto the 20."""
    options = {"share": 0.5, "min_rate": 0, "hits_high": 2}
    first, second = rounds(plan(worlds([20, 51, 52, 80, 80, 80]), "avg-shed", options), 1, "avg-shed", options)
    assert not first.moves
    assert sorted(report_scores(second)) == [50, 50, 51, 52, 80, 80]
    assert {(m.from_worker, m.to_worker) for m in second.moves} == {("w5", "w0")}
    assert "scored 60 above w0" in second.moves[0].reason


def test_threshold_shed_over_places() -> None:
    made = plan(worlds([20, 51, 52, 80, 80, 80]), "threshold-shed", {})
    assert {m.to_worker for m in made.moves} == {"w0"}
    assert {m.from_worker for m in made.moves} == {"w3", "w4", "w5"}


def test_ten_at_80_and_one_at_0_must_act() -> None:
    scores = [80.0] * 10 + [0.0]
    options = {"min_rate": 0}
    after = rounds(plan(worlds(scores), "avg-shed", options), 1, "avg-shed", options)
    assert after[-1].moves
    assert not any(p.moves for p in rounds(plan(worlds(scores), "threshold-shed"), 20, "threshold-shed", {}))


@pytest.mark.parametrize(("gap", "rounds_needed"), [(30, 8), (39, 8), (41, 2), (60, 2)])
def test_hits_before_it_fires(gap: float, rounds_needed: int) -> None:
    made = rounds(plan(worlds([20, 20 + gap]), "avg-shed", {"min_rate": 0}), 9, "avg-shed", {"min_rate": 0})
    assert next(i for i, p in enumerate(made, 1) if p.moves) == rounds_needed


def test_a_small_gap_clears_the_counters() -> None:
    made = plan(worlds([20, 50]), "avg-shed", {})
    assert made.memory["avg-shed"]["hit_low"] == {"w0": 1, "w1": 1}
    assert "hit_low" not in plan(worlds([20, 30]), "avg-shed", {}, made.memory).memory["avg-shed"]


def test_middle_of_an_odd_count_is_paired_with_itself() -> None:
    made = plan(worlds([20, 30, 90]), "avg-shed", {}, {"avg-shed": {"hit_low": {"w1": 5}}})
    assert made.memory["avg-shed"]["hit_low"] == {"w0": 1, "w2": 1}
    assert made.memory["avg-shed"]["hit_high"] == {"w0": 1, "w2": 1}


def test_counters_belong_to_workers_whatever_their_partner() -> None:
    memory = {"avg-shed": {"hit_low": {"w0": 7}}}
    assert plan(worlds([20, 50]), "avg-shed", {"min_rate": 0}, memory).moves


def test_share_and_choice_of_partitions() -> None:
    """The largest that fit, then smaller ones fill the rest: 60 x 0.2 = 12 per cent = 5 + 5, and no third."""
    options = {"hits_high": 1, "min_rate": 0}
    made = plan(worlds([20, 80]), "avg-shed", options)
    assert [m.load / EACH for m in made.moves] == [5, 5]
    assert made.memory["avg-shed"]["planned"] == {m.partition: "w0" for m in made.moves}


def test_minimum_rate_then_throughput_then_nothing() -> None:
    options: dict[str, Any] = {"hits_high": 1, "min_rate": 1200, "min_throughput": 1199}
    assert plan(worlds([20, 80]), "avg-shed", options).moves
    assert not plan(worlds([20, 80]), "avg-shed", options | {"min_throughput": 1200}).moves
    assert plan(worlds([20, 80]), "avg-shed", options | {"min_rate": 1199}).moves


def test_a_moved_partition_is_immune() -> None:
    options = {"hits_high": 1, "hits_low": 1, "min_rate": 0, "share": 0.5, "low": 1}
    made = plan(worlds([20, 80]), "avg-shed", options)
    moved = {m.partition for m in made.moves}
    back = [Worker("w0", usage={"cpu": 0.9, "rate": 9000}), Worker("w1", usage={"cpu": 0.1, "rate": 100})]
    snapshot = made.assignment.snapshot
    parts = [snapshot.partition(i) for i in range(len(snapshot.partition_ids))]
    owners = {p: w for w, some in made.assignment.as_dict().items() for p in some}
    again = plan(Snapshot.of(back, parts, owners), "avg-shed", options, made.memory)
    assert again.moves
    assert not moved & {m.partition for m in again.moves}
    free = plan(Snapshot.of(back, parts, owners), "avg-shed", options | {"immune_rounds": 1}, made.memory)
    assert moved & {m.partition for m in free.moves}


def test_one_partition_only_is_warned_about() -> None:
    workers = [Worker("w0", usage={"cpu": 0.0}), Worker("w1", usage={"cpu": 0.9})]
    snapshot = Snapshot.of(workers, [Partition("p", rate=9e3)], {"p": "w1"})
    made = plan(snapshot, "avg-shed", {"hits_high": 1, "min_rate": 0})
    assert not made.moves
    assert made.measures.reason == "w1 is hot with one partition only"


def test_predicted_load_counts_until_reports_catch_up() -> None:
    """The same stale report twice: what was moved is not moved again."""
    options = {"hits_high": 1, "hits_low": 1, "share": 0.5, "min_rate": 0, "immune_rounds": 0}
    snapshot = worlds([10, 90])
    made = plan(snapshot, "avg-shed", options)
    assert sum(m.load for m in made.moves) == 40 * EACH
    parts = [snapshot.partition(i) for i in range(len(snapshot.partition_ids))]
    owners = {p: w for w, some in made.assignment.as_dict().items() for p in some}
    stale = Snapshot.of(snapshot.workers, parts, owners)
    again = plan(stale, "avg-shed", options, made.memory)
    assert not again.moves
    assert not plan(stale, "avg-shed", options, again.memory).moves
    assert plan(stale, "avg-shed", options).moves  # without the memory it would have


def test_a_planned_receiver_gets_its_orphan() -> None:
    workers = [Worker("w0"), Worker("w1"), Worker("w2")]
    snapshot = Snapshot.of(workers, [Partition("p")], {"p": "gone"})
    for taker in ("w0", "w1", "w2"):
        made = plan(snapshot, "avg-shed", {}, {"avg-shed": {"planned": {"p": taker}}})
        assert read_owners(made).get("p") == taker


def test_rounds_are_a_minute_apart() -> None:
    options = {"hits_high": 2, "min_rate": 0}
    snapshot = worlds([20, 80])
    at = [Snapshot.of(snapshot.workers, [], {}, now=now) for now in (1000.0, 1010.0, 1060.0)]
    first = plan(at[0], "avg-shed", options)
    early = plan(at[1], "avg-shed", options, first.memory)
    later = plan(at[2], "avg-shed", options, early.memory)
    assert (first.due, early.due, later.due) == (1060.0, 1060.0, 1120.0)
    assert [p.memory["avg-shed"]["round"] for p in (first, early, later)] == [1, 1, 2]


NOW = {"hits_high": 1}


@pytest.mark.parametrize(
    ("scores", "rates", "options", "said"),
    [
        ([95, 5], [], {}, "w0 scores 90 above w1: round 1 of the 2 that it takes"),
        ([35, 5], [], {}, "w0 scores 30 above w1: round 1 of the 8 that it takes"),
        ([95, 60, 55, 5], [], {}, "w0 scores 90 above w3: round 1 of the 2 that it takes"),
        ([5.4, 20], [], {}, "no two workers are 15 apart: w1 scores 14.6 above w0"),
        ([95], [1.0], {}, "there are no two workers to compare"),
        (
            [95, 5],
            [3000.0, 1000.0],
            NOW,
            "w0 scored 90 above w1 for long enough, but neither 800/s by rate nor 800/s by throughput is above "
            "min_rate 1000 or min_throughput 1e+06",
        ),
        ([95, 5], [0.0, 0.0], NOW, "w0 scored 90 above w1 for long enough, but no more traffic is known of it"),
        ([95, 5], [9000.0], NOW, "w0 is hot with one partition only"),
        (
            [95, 5],
            [9000.0, 8000.0, 0.0],
            NOW,
            "w0 scored 90 above w1 for long enough, but none of its partitions can move: 2 above the 3400/s to move, "
            "1 without known traffic",
        ),
    ],
)
def test_not_to_shed_has_its_own_reason(
    scores: list[float], rates: list[float], options: dict[str, Any], said: str
) -> None:
    team = [Worker(f"w{i}", usage={"cpu": score / 100}) for i, score in enumerate(scores)]
    parts = [Partition(f"p{i}", rate=rate) for i, rate in enumerate(rates)]
    made = plan(Snapshot.of(team, parts, {p.id: "w0" for p in parts}), "avg-shed", options)
    assert not made.moves
    assert made.measures.reason == said


@pytest.mark.parametrize(
    ("cold", "memory", "said"),
    [
        (Worker("w1", usage={"cpu": 0.05}, max_partitions=0), {}, "2 without room on w1"),
        (
            Worker("w1", usage={"cpu": 0.05}),
            {"moved": {"p0": 1, "p1": 1}, "round": 5},
            "2 moved in the last 30 rounds",
        ),
        (Worker("w1", usage={"cpu": 0.05}, zone="b"), {}, "2 not allowed on w1"),
    ],
)
def test_what_keeps_a_partition_where_it_is(cold: Worker, memory: dict[str, Any], said: str) -> None:
    team = [Worker("w0", usage={"cpu": 0.95}, zone="a"), cold]
    requires = {"zone": "a"} if cold.zone else {}
    parts = [Partition(f"p{i}", rate=2e3, requires=requires) for i in range(2)]
    snapshot = Snapshot.of(team, parts, {"p0": "w0", "p1": "w0"})
    made = plan(snapshot, "avg-shed", {"hits_high": 1, "min_rate": 0, "share": 0.5}, {"avg-shed": memory})
    assert made.measures.reason.endswith(f"but none of its partitions can move: {said}")


def test_between_two_rounds_the_reason_is_the_clock() -> None:
    state = worlds([20, 80])
    made = plan(
        Snapshot.of(state.workers, [], {}, now=1030.0), "avg-shed", {}, {"avg-shed": {"at": 1000.0, "round": 1}}
    )
    assert made.measures.reason == "the last round was 30 s ago, rounds are 60 s apart"


def test_the_silent_are_named() -> None:
    team = [Worker("w0", usage={"cpu": 0.9}), Worker("w1", usage={"cpu": 0.1}), Worker("w2")]
    made = plan(Snapshot.of(team, [Partition("p")], {"p": "w2"}), "avg-shed")
    assert made.measures.reason == "no usage reported by w2; w0 scores 80 above w1: round 1 of the 2 that it takes"


def test_uniform_shed_serves_the_busiest_only() -> None:
    made = plan(worlds([10, 50, 80, 80]), "uniform-shed", {})
    assert {m.from_worker for m in made.moves} == {"w2"}
    assert sum(m.load for m in made.moves) <= 0.2 * 70 * EACH + 1000
    assert not plan(worlds([60, 62, 80, 80]), "uniform-shed", {}).moves


def test_every_option_changes_an_outcome() -> None:
    base: dict[str, Any] = {"hits_high": 1, "min_rate": 0, "min_throughput": 0}
    snapshot = worlds([20, 80])
    plain = [m.partition for m in plan(snapshot, "avg-shed", base).moves]
    assert plain
    for change in ({"low": 70, "high": 70}, {"high": 61}, {"hits_high": 3}, {"share": 0.4}, {"weights": {"cpu": 0.1}}):
        assert [m.partition for m in plan(snapshot, "avg-shed", base | change).moves] != plain, change
    assert plan(snapshot, "avg-shed", base | {"high": 61, "hits_low": 1}).moves


def test_a_lot_depends_on_ids_alone() -> None:
    """The lot of a worker is the crc32 of both ids, whatever other workers there are, in any order."""
    team = [Worker(f"w{i}") for i in (1, 2, 3, 10, 11, 200)]
    parts = [Partition(f"p{i}") for i in range(40)]
    owners = read_owners(plan(Snapshot.of(team, parts, {}), "avg-shed"))
    for p in parts:
        assert owners[p.id] == max((w.id for w in team), key=lambda w: crc32((p.id + w).encode()))
