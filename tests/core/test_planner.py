"""The planner: budget, cooldown, grace, what is exempt, the order under caps, a reason and a time to look again."""

from collections import Counter
from typing import Any

import pytest

from rota.core import Partition, Policy, Snapshot, Worker, plan
from tests.core.groups import LOPSIDED, build_partitions, build_plain_snapshot, build_snapshot, read_owners


def test_a_budget_bounds_voluntary_moves_and_the_rest_follows() -> None:
    snapshot, rounds = build_plain_snapshot(["w1", "w2", "w3"], LOPSIDED), 0
    while (made := plan(snapshot, policy=Policy(budget=3))).moves:
        assert made.measures.moves <= 3
        rounds += 1
        if rounds < 3:
            assert made.due is not None
            assert "the budget is 3" in made.measures.reason
        snapshot = build_plain_snapshot(["w1", "w2", "w3"], read_owners(made))
    assert rounds == 3
    assert sorted(len(h) for h in made.assignment.as_dict().values()) == [4, 4, 4]
    assert read_owners(made) == read_owners(plan(build_plain_snapshot(["w1", "w2", "w3"], LOPSIDED)))


def test_no_budget_at_all_pauses_what_is_voluntary() -> None:
    made = plan(build_plain_snapshot(["w1", "w2"], LOPSIDED), policy=Policy(budget=0))
    assert not made.moves
    assert made.due is None
    assert made.measures.reason == "6 voluntary moves wait: the budget is 0"
    assert made.measures.lower_bound == 1.0
    assert made.measures.imbalance_after == 2.0


def test_unavoidable_moves_are_exempt_from_budget_and_cooldown() -> None:
    owners = LOPSIDED | {"x1": "gone", "x2": "w9"}
    team = [Worker("w1"), Worker("w2"), Worker("w9", state="draining")]
    made = plan(
        build_snapshot(team, owners, now=50.0), memory={"planner": {"voluntary_at": 45.0}}, policy=Policy(0, 60.0)
    )
    assert {(m.partition, m.reason) for m in made.moves} == {("x1", "gone left"), ("x2", "w9 is draining")}
    assert made.measures.moves == made.measures.unavoidable_moves == 2


def test_the_most_burdened_gives_first() -> None:
    owners = {f"a{i}": "w1" for i in range(6)} | {f"b{i}": "w2" for i in range(9)} | {"c": "w3"}
    made = plan(build_plain_snapshot(["w1", "w2", "w3"], owners), policy=Policy(budget=2))
    assert [m.from_worker for m in made.moves] == ["w2", "w2"]


def test_cooldown_waits_and_reports_until_when() -> None:
    policy = Policy(budget=3, cooldown=60.0)
    first = plan(build_plain_snapshot(["w1", "w2"], LOPSIDED, now=100.0), policy=policy)
    assert first.memory == {"planner": {"voluntary_at": 100.0}}
    assert (len(first.moves), first.due) == (3, 160.0)
    early = plan(build_plain_snapshot(["w1", "w2"], read_owners(first), now=130.0), memory=first.memory, policy=policy)
    assert not early.moves
    assert early.due == 160.0
    assert early.measures.reason == "3 voluntary moves wait: the last were 30 s ago, the cooldown is 60 s"
    assert early.memory == first.memory
    later = plan(build_plain_snapshot(["w1", "w2"], read_owners(early), now=160.0), memory=early.memory, policy=policy)
    assert (len(later.moves), later.due) == (3, None)


def test_grace_waits_for_a_worker_that_may_return() -> None:
    owners = {f"p{i:02}": f"w{i % 3}" for i in range(12)}
    policy = Policy(grace=30.0)
    waiting = plan(build_plain_snapshot(["w0", "w1"], owners, 110.0, w2=100.0), policy=policy)
    assert not waiting.moves
    assert waiting.due == 130.0
    assert {(u.from_worker, u.reason) for u in waiting.unassigned} == {("w2", "w2 may return until 130")}
    back = plan(build_plain_snapshot(["w0", "w1", "w2"], owners, 120.0), policy=policy)
    assert not back.moves
    assert not back.unassigned
    over = plan(build_plain_snapshot(["w0", "w1"], owners, 130.0, w2=100.0), policy=policy)
    assert len(over.moves) == 4
    assert over.measures.unavoidable_moves == 4
    assert not plan(build_plain_snapshot(["w0", "w1"], owners, 110.0, w2=100.0)).unassigned


@pytest.mark.parametrize("assignor", ["sticky", "sticky-load", "range", "avg-shed"])
def test_only_what_is_over_the_cap_had_to_go_for_it(assignor: str) -> None:
    """Ten of which eight may stay: two had to go, and three more go for balance. Both say so."""
    team, names = [Worker("w1", max_partitions=8), Worker("w2")], [f"p{i}" for i in range(10)]
    made = plan(Snapshot.of(team, [Partition(p) for p in names], dict.fromkeys(names, "w1")), assignor)
    said = Counter(m.reason for m in made.moves)
    assert made.measures.unavoidable_moves == said.pop("w1 was 2 over its cap of 8") == 2
    voluntary = {
        "sticky": {"w1 was 5 over its quota of 5": 3},
        "sticky-load": {"w1 would carry 1.60 times the mean after what had to move": 3},
        "range": {"its slice belongs to w2": 3},
        "avg-shed": {},
    }
    assert said == voluntary[assignor]


def test_reasons_for_what_no_worker_gets() -> None:
    team = [
        Worker("w1", max_partitions=1),
        Worker("w2", state="draining", labels={"disk": "ssd"}),
        Worker("w3", state="cordoned", zone="b"),
    ]
    partitions = [
        Partition("a"),
        Partition("b"),
        Partition("c", requires={"disk": "ssd"}),
        Partition("d", requires={"disk": "tape"}),
        Partition("e", pin="w9"),
        Partition("f", pin="w2"),
        Partition("g", pin="w1", requires={"zone": "b"}),
        Partition("h", requires={"zone": "b"}),
    ]
    made = plan(Snapshot.of(team, partitions, {"a": "w1", "b": "w2"}))
    assert {u.partition: u.reason for u in made.unassigned} == {
        "b": "every worker that may hold it is at its cap",
        "c": "every worker that could take it is draining",
        "d": "no worker has disk=tape",
        "e": "pinned to w9, which is not among the workers",
        "f": "pinned to w2, which is draining",
        "g": "pinned to w1, which lacks zone=b",
        "h": "every worker that could take it is cordoned",
    }
    assert plan(Snapshot.of([], build_partitions(1), {})).unassigned[0].reason == "there is no worker"


@pytest.mark.parametrize(
    ("team", "owners", "reason"),
    [
        ([], {}, "nothing moves: there is no worker"),
        (["w1"], {}, "nothing moves: there is no partition"),
        (["w1"], {"p": "w1"}, "nothing moves: counts are as even as they can be"),
    ],
)
def test_not_to_move_has_a_reason(team: list[str], owners: dict[str, str], reason: str) -> None:
    assert plan(build_plain_snapshot(team, owners)).measures.reason == reason


def test_an_interrupted_budget_goes_on_to_the_same_end() -> None:
    team = [Worker(f"w{i}", max_partitions=6) for i in range(4)] + [Worker("w8", state="draining")]
    owners = {f"p{i:02}": ["w0", "w0", "w0", "w1", "w8", "gone"][i % 6] for i in range(20)}
    end = read_owners(plan(build_snapshot(team, owners)))
    made = plan(build_snapshot(team, owners), policy=Policy(budget=2))
    for done in range(len(made.moves) + 1):
        after = owners | {m.partition: m.to_worker for m in made.moves[:done]}
        while (more := plan(build_snapshot(team, after), policy=Policy(budget=2))).moves:
            after |= {m.partition: m.to_worker for m in more.moves}
        assert after == end


def test_held_back_sheds_are_not_remembered_as_done() -> None:
    workers = [Worker("w0", usage={"cpu": 0.1, "rate": 1e3}), Worker("w1", usage={"cpu": 0.9, "rate": 9e3})]
    snapshot = Snapshot.of(workers, [Partition(f"p{i}", rate=1e3) for i in range(9)], {f"p{i}": "w1" for i in range(9)})
    options = {"hits_high": 1, "min_rate": 0, "share": 0.5}
    held = plan(snapshot, "avg-shed", options, policy=Policy(budget=0))
    assert not held.moves
    assert not {"moved", "planned", "predicted"} & set(held.memory["avg-shed"])
    assert plan(snapshot, "avg-shed", options, held.memory).moves


def test_a_pair_that_was_held_back_counts_on_and_one_that_moved_begins_again() -> None:
    made, options = (
        plan(make_snapshot({}), "avg-shed", {"hits_high": 1, "share": 0.5}, policy=Policy(budget=0)),
        {"share": 0.5},
    )
    assert made.memory["avg-shed"]["hit_high"] == {"w0": 1, "w1": 1}
    made = plan(make_snapshot({}), "avg-shed", options, made.memory, Policy(budget=3))
    assert len(made.moves) == 3
    assert set(made.memory["avg-shed"]["moved"]) == {m.partition for m in made.moves}
    assert "hit_high" not in made.memory["avg-shed"]


def make_snapshot(owners: dict[str, str]) -> Snapshot:
    """w1 at 90 % with 18 of 20 partitions that are alike, w0 at 10 %: reports stay as they are while partitions move."""
    usage = {w: {"cpu": cpu, "rate": cpu * 2e4, "throughput": cpu * 2e7} for w, cpu in (("w0", 0.1), ("w1", 0.9))}
    owners = {f"p{i:02}": "w0" if i > 17 else "w1" for i in range(20)} | owners
    partitions = [Partition(p, rate=1e3, throughput=1e6) for p in owners]
    return Snapshot.of([Worker(w, usage=u) for w, u in usage.items()], partitions, owners)


def test_a_budget_sheds_no_more_in_the_end_than_one_round_without_it() -> None:
    """What moved counts at the next round, also where a budget cut that round: w1 never becomes the colder one."""
    options, owners, memory = {"hits_high": 1, "share": 0.5}, dict[str, str](), dict[str, Any]()
    whole = plan(make_snapshot({}), "avg-shed", options)
    assert not plan(make_snapshot(read_owners(whole)), "avg-shed", options, whole.memory).moves
    for _ in range(8):
        made = plan(make_snapshot(owners), "avg-shed", options, memory, Policy(budget=3))
        owners, memory = read_owners(made), dict(made.memory)
    assert 0 < sum(w == "w0" for w in owners.values()) - 2 <= len(whole.moves)
