"""ThresholdShedder, UniformLoadShedder and LeastResourceUsageWithWeight, to the partition: what their Java picks."""

from collections.abc import Mapping
from typing import Any

import pytest

from rota.core import Partition, Plan, Policy, Snapshot, Worker, plan

Usage = Mapping[str, float]


def make_snapshot(team: Mapping[str, Usage], held: Mapping[str, Mapping[str, float]], by: str = "rate") -> Snapshot:
    """Workers with this usage, each with its partitions of this rate (or throughput)."""
    parts = [Partition(p, **{by: size}) for some in held.values() for p, size in some.items()]
    owners = {p: w for w, some in held.items() for p in some}
    return Snapshot.of([Worker(w, usage=dict(usage)) for w, usage in team.items()], parts, owners)


def list_moved(made: Plan) -> set[str]:
    return {m.partition for m in made.moves}


def alike(count: int, size: float) -> dict[str, float]:
    return {f"p{i:02}": size for i in range(count)}


@pytest.mark.parametrize(("hot", "moves"), [(0.9, 32), (0.82, 28), (0.72, 24), (0.62, 19)])
def test_threshold_shed_takes_what_is_over_and_five_points_more(hot: float, moves: int) -> None:
    """90 partitions of 1e6 on the hot one, 10 % on the other: (hot - mean - 10 + 5) % of its throughput."""
    made = plan(
        make_snapshot({"a": {"cpu": hot}, "b": {"cpu": 0.1}}, {"a": alike(90, 1e6)}, "throughput"), "threshold-shed"
    )
    assert len(made.moves) == moves
    over = 100 * hot - (100 * hot + 10) / 2 - 10 + 5
    assert (moves - 1) * 1e6 < 90e6 * over / 100 <= moves * 1e6


def test_threshold_shed_acts_at_the_threshold_itself() -> None:
    held = {"a": alike(20, 1e6)}
    assert (
        len(plan(make_snapshot({"a": {"cpu": 0.8}, "b": {"cpu": 0.6}}, held, "throughput"), "threshold-shed").moves)
        == 1
    )
    assert not plan(make_snapshot({"a": {"cpu": 0.79}, "b": {"cpu": 0.6}}, held, "throughput"), "threshold-shed").moves


@pytest.mark.parametrize("assignor", ["threshold-shed", "uniform-shed"])
def test_what_moved_lately_stays(assignor: str) -> None:
    """The receiver is reported hot at once: in the 30 rounds that follow nothing of what came goes back."""
    sizes = {"x": 1600.0, "y": 500.0, "z": 400.0, "q": 3500.0}
    hot, cold = {"cpu": 0.9, "rate": 6000.0}, {"cpu": 0.1, "rate": 1000.0}
    first = plan(make_snapshot({"a": hot, "b": cold}, {"a": sizes, "b": {"own": 700.0}}), assignor)
    came = list_moved(first)
    assert came
    assert first.memory[assignor]["moved"] == dict.fromkeys(came, 1)
    after = {w: {p: {**sizes, "own": 700.0}[p] for p in some} for w, some in first.assignment.as_dict().items()}
    turned = make_snapshot({"a": cold, "b": hot}, after)
    memory: dict[str, Any] = {assignor: {"moved": first.memory[assignor]["moved"], "round": 29}}
    assert list_moved(plan(turned, assignor, {}, memory)) == {"own"}
    memory[assignor]["round"] = 30
    assert list_moved(plan(turned, assignor, {}, memory)) & came
    assert list_moved(plan(turned, assignor)) & came  # without the memory


def test_what_a_budget_held_back_has_not_moved() -> None:
    state = make_snapshot({"a": {"cpu": 0.9}, "b": {"cpu": 0.1}}, {"a": alike(9, 1e6)}, "throughput")
    assert len(plan(state, "threshold-shed").moves) == 4
    made = plan(state, "threshold-shed", {}, {}, Policy(budget=1))
    assert len(list_moved(made)) == 1
    assert set(made.memory["threshold-shed"]["moved"]) == list_moved(made)


def test_uniform_shed_goes_on_below_what_remains() -> None:
    """6000 against 1000: 1000 are wanted, 1000 more are let pass. 3500 does not fit 2000, 1600 does and leaves -600,
    500 does not fit 400, 400 does."""
    held = {"a": {"p3500": 3500.0, "p1600": 1600.0, "p0500": 500.0, "p0400": 400.0}}
    made = plan(
        make_snapshot({"a": {"cpu": 0.9, "rate": 6000.0}, "b": {"cpu": 0.1, "rate": 1000.0}}, held), "uniform-shed"
    )
    assert list_moved(made) == {"p1600", "p0400"}


def test_uniform_shed_by_throughput_has_the_same_delta() -> None:
    """The rates are equal; 0.2 of 10e6 - 1e6 is wanted, and 1000 more are let pass."""
    team = {"a": {"cpu": 0.9, "rate": 10.0, "throughput": 10e6}, "b": {"cpu": 0.1, "rate": 10.0, "throughput": 1e6}}
    for size, fits in ((1.801e6, True), (1.8011e6, False)):
        made = plan(make_snapshot(team, {"a": {"p": size, "q": 8e6}}, "throughput"), "uniform-shed")
        assert list_moved(made) == ({"p"} if fits else set())


def test_uniform_shed_looks_at_throughput_only_if_the_rates_are_near() -> None:
    """Rates of 3000 and 1000 are too far apart, 400 is too little to move: that is the end of it."""
    held = {"a": {"x": 1e7, "y": 9e7}}
    far, near = (
        {"a": {"cpu": 0.9, "rate": rate, "throughput": 1e8}, "b": {"cpu": 0.1, "rate": 1000.0, "throughput": 1e6}}
        for rate in (3000.0, 1400.0)
    )
    assert not plan(make_snapshot(far, held, "throughput"), "uniform-shed").moves
    assert list_moved(plan(make_snapshot(near, held, "throughput"), "uniform-shed")) == {"x"}
    assert list_moved(plan(make_snapshot(far, held, "throughput"), "uniform-shed", {"rate_percent": 0})) == {
        "x"
    }  # 0: not looked at


def test_placement_counts_the_mean_of_those_that_may_take_it() -> None:
    """The mean of all four is 30, of the three that may take it 40: 30 is low there, and 40 is not."""
    usage = {"a": 0.0, "b": 0.3, "c": 0.4, "d": 0.5}
    team = [Worker(w, labels={"disk": "hdd" if w == "a" else "ssd"}, usage={"cpu": u}) for w, u in usage.items()]
    parts = [Partition(f"p{i}", requires={"disk": "ssd"}) for i in range(20)]
    made = plan(Snapshot.of(team, parts, {}), "threshold-shed")
    assert {m.to_worker for m in made.moves} == {"b"}  # exactly 10 below: low enough
    assert {m.to_worker for m in plan(Snapshot.of(team, parts, {}), "threshold-shed", {"threshold": 11}).moves} == {
        *"bcd"
    }


def test_placement_takes_an_idle_worker_as_it_is_now() -> None:
    """b was busy, and holds nothing any more: its history does not count."""
    team = [Worker("a", usage={"cpu": 0.5, "rate": 1.0}), Worker("b", usage={"cpu": 0.0})]
    parts = [Partition("held"), *(Partition(f"p{i}") for i in range(20))]
    memory = {"threshold-shed": {"usage": {"a": 50.0, "b": 90.0}}}
    assert {m.to_worker for m in plan(Snapshot.of(team, parts, {"held": "a"}), "threshold-shed", {}, memory).moves} == {
        "b"
    }


@pytest.mark.parametrize("assignor", ["threshold-shed", "uniform-shed"])
def test_a_round_a_minute(assignor: str) -> None:
    """Between two rounds nothing is shed and no history is made; an orphan is placed at once."""
    team = {"a": {"cpu": 0.9, "rate": 9000.0}, "b": {"cpu": 0.1, "rate": 1000.0}}
    state = make_snapshot(team, {"a": alike(9, 1000.0)})

    def at(now: float, owners: dict[str, str], memory: Mapping[str, Any]) -> Plan:
        parts = [state.partition(i) for i in range(len(state.partition_ids))]
        return plan(Snapshot.of(state.workers, parts, owners, now=now), assignor, {}, memory)

    owners = dict.fromkeys(alike(9, 0), "a")
    memory = {assignor: {"at": 1000.0, "round": 1, "usage": {"a": 80.0, "b": 20.0}}}
    early = at(1059.0, owners, memory)
    assert not early.moves
    assert early.measures.reason == "the last round was 59 s ago, rounds are 60 s apart"
    assert (early.due, early.memory) == (1060.0, memory)
    assert list_moved(at(1059.0, owners | {"p00": "gone"}, memory)) == {"p00"}
    late = at(1060.0, owners, memory)
    assert late.moves
    assert late.memory[assignor]["round"] == 2
