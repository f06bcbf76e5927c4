"""The laws of the protocols in which workers decide alone, on decisions only."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.assignors.baselines.memoryless import deal_sticky
from rota.core.protocols import race
from rota.core.protocols.known_protocols import check_protocol, find_protocol
from rota.core.protocols.observation import Observation
from rota.errors import ConfigError
from tests.core.protocol_town import EVEN, EVERY, town


def fewest(counts: list[int], partitions: int) -> int:
    """The fewest partitions that change hands, orphans included, until these counts are even."""
    quota, rest = divmod(partitions, len(counts))
    over = sum(1 for c in counts if c >= quota + 1)
    return partitions - sum(min(c, quota) for c in counts) - min(rest, over)


# --- claim


@pytest.mark.parametrize(
    ("held", "ends", "moves"),
    [
        ([4, 2, 2, 2], [3, 3, 2, 2], 1),
        ([6, 6, 6, 0], [5, 5, 4, 4], 4),
        ([5, 5, 5, 5, 0], [4] * 5, 4),
        ([5, 0], [3, 2], 2),
    ],
)
@pytest.mark.parametrize("protocol", ["claim", "race"])
def test_the_fewest_move_until_it_is_even(held: list[int], ends: list[int], moves: int, protocol: str) -> None:
    group = town(protocol, sum(held))
    group.hold({f"w{i}": n for i, n in enumerate(held)})
    group.settle()
    assert (group.counts, group.changes) == (ends, moves)
    assert moves == fewest(held, sum(held))


@pytest.mark.parametrize(("held", "ends"), [([4, 2, 2, 2], [4, 2, 2, 2]), ([6, 6, 6, 0], [5, 5, 4, 4])])
def test_the_published_steal_stops_where_every_worker_has_the_least(held: list[int], ends: list[int]) -> None:
    """A worker that holds min = P // N steals nothing: 4, 2, 2, 2 stays."""
    group = town("claim", sum(held), steal="published")
    group.hold({f"w{i}": n for i, n in enumerate(held)})
    group.settle(60)
    assert group.counts == ends


@given(data=st.data())
@settings(max_examples=200)
def test_any_schedule_ends_even_and_then_nothing_moves(data: st.DataObject) -> None:
    """Joins, deaths and lost replies between any two writes, decisions by what was seen a while ago: nothing is starved, it
    ends balanced, and nothing moves when it is."""
    protocol, options = data.draw(st.sampled_from(EVEN))
    group = town(protocol, data.draw(st.integers(0, 12)), **options)
    names, seen = [f"w{i}" for i in range(5)], dict[str, Observation]()
    for _ in range(data.draw(st.integers(1, 30))):
        name = data.draw(st.sampled_from(names))
        does = data.draw(st.sampled_from(["step", "step", "look", "act", "die"]))
        if name not in group.workers:
            group.join(name)
        elif does == "look":
            seen[name] = group.see(name)
        else:
            writes = 5 if does == "step" else data.draw(st.integers(0, 5))
            before = seen.pop(name, None)  # what it saw before its own last write is no look any more
            group.step(name, before if does == "act" else None, writes)
        if does == "die" and name in group.workers:
            group.kill(name)
    if not group.workers:
        group.join("w0")
    group.settle()
    assert sum(group.counts) == len(group.partitions), "a partition is starved"
    assert max(group.counts) - min(group.counts) <= 1
    assert all(p in group.targets[w] for p, w in group.owners.items()), "nothing is held in silence"
    changes = group.changes
    group.settle()
    assert group.changes == changes


@pytest.mark.parametrize(("protocol", "options"), EVERY)
def test_a_decision_does_not_depend_on_the_order_of_what_is_seen(protocol: str, options: dict[str, str]) -> None:
    group = town(protocol, 11, **options)
    group.hold({"w0": 7, "w1": 2, "w2": 0})
    said = {w: group.decide(w) for w in group.workers}
    group.targets = dict(reversed(group.targets.items()))
    group.workers = dict(reversed(group.workers.items()))
    assert {w: group.decide(w) for w in group.workers} == said


def test_claim_fills_in_one_round_and_published_takes_one_a_round() -> None:
    fast, slow = town("claim", 1_000), town("claim", 40, steal="published")
    fast.join(*(f"w{i}" for i in range(10)))
    assert fast.settle() == 1
    assert fast.counts == [100] * 10
    slow.join("a", "b")
    assert slow.settle(60) >= 20


def test_published_does_not_count_workers_without_partitions_and_greedy_takes_what_it_lacks() -> None:
    """b is there, and a takes everything at once: it counts workers that own something, which is itself alone."""
    group = town("claim", 6, steal="published", strategy="greedy")
    group.join("a", "b")
    group.step("a")
    assert group.targets["a"] == {p.id for p in group.partitions}


def test_two_ask_for_one_partition_and_one_has_the_grab() -> None:
    group = town("claim", 4)
    group.hold({"a": 4})
    group.join("b", "c")
    both = {w: group.decide(w).grabs for w in "bc"}
    group.step("b")
    assert not group.decide("c").grabs & group.grabs.keys()
    assert both["b"]
    group.settle()
    assert group.counts == [2, 1, 1]


# --- ordinal


def slices(count: int, workers: int, style: str) -> dict[str, frozenset[str]]:
    group = town("ordinal", count, slices=style)
    group.join(*(f"w-{i}" for i in range(workers)))
    group.settle()
    return group.targets


def test_published_slices_are_the_articles() -> None:
    assert [len(t) for t in slices(10, 3, "published").values()] == [3, 3, 4]
    assert slices(10, 3, "published")["w-1"] == {"p:3", "p:4", "p:5"}
    assert sorted(len(t) for t in slices(1_000, 101, "published").values()) == [9] * 100 + [100]
    assert [len(t) for t in slices(2, 4, "published").values()] == [1, 1, 0, 0]
    assert [len(t) for t in slices(10, 3, "spread").values()] == [4, 3, 3]


@given(partitions=st.integers(0, 60), workers=st.integers(1, 12))
def test_sticky_slices_are_even_and_one_worker_more_moves_only_its_own(partitions: int, workers: int) -> None:
    one, more = deal_sticky(partitions, workers, 0).tolist(), deal_sticky(partitions, workers + 1, 0).tolist()
    counts = [one.count(w) for w in range(workers)]
    assert max(counts) - min(counts) <= 1
    assert all(a == b or b == workers for a, b in zip(one, more, strict=True))
    assert sum(a != b for a, b in zip(one, more, strict=True)) == partitions // (workers + 1)


def test_an_ordinal_is_the_workers_own_its_names_or_the_lowest_free_one() -> None:
    group = town("ordinal", 6)
    group.join("spark-4", "a", "x-4", "b")
    group.settle()
    assert group.grabs == {"ordinal-4": "spark-4", "ordinal-0": "a", "ordinal-1": "b", "ordinal-2": "x-4"}
    group.kill("a")
    group.join("c")
    group.settle()
    assert group.grabs["ordinal-0"] == "c", "what a dead worker had is free"
    assert [p for w in ("c", "b", "x-4", "spark-4") for p in sorted(group.targets[w])] == [f"p:{n}" for n in range(6)]


def test_a_worker_that_holds_two_ordinals_counts_once_and_lets_one_go() -> None:
    """Every other worker failed at that."""
    group = town("ordinal", 6)
    group.join("a", "b")
    group.settle()
    group.grabs["ordinal-7"] = "a"
    group.settle()
    assert (group.grabs, group.counts) == ({"ordinal-0": "a", "ordinal-1": "b"}, [3, 3])


def test_workers_that_count_differently_never_own_one_partition_together() -> None:
    """a believes in two replicas, b in three: their slices overlap. The first owner keeps them, and nothing hops."""
    group = town("ordinal", 6)
    group.replicas = {"w-0": 2, "w-1": 3}
    group.join("w-0", "w-1")
    group.settle()
    assert not group.targets["w-0"] & group.targets["w-1"]
    assert group.targets["w-0"] == {"p:0", "p:1", "p:2"}
    before = group.changes
    group.settle()
    assert group.changes == before


# --- race


def test_the_author_s_tests_a_newcomer_is_balanced_within_a_lease_time_one_partition_stays_a_dead_nodes_are_spread() -> (
    None
):
    group = town("race", 10, decide="fastest", delay=0.5)
    group.hold({"w0": 5, "w1": 5})
    group.join("w2")
    group.run(60)
    assert group.counts == [4, 3, 3]
    changes = group.changes
    group.kill("w0")
    group.run(70)  # challenged within a lease time, answered within five delays
    assert group.counts == [5, 5]
    assert changes == 3
    alone = town("race", 1, decide="fastest", delay=0.5)
    alone.hold({"w0": 1, "w1": 0, "w2": 0})
    alone.run(180)
    assert (alone.owners, alone.changes) == ({"p:0": "w0"}, 0)


def test_a_worker_that_answers_late_loses_although_it_holds_no_more() -> None:
    """The author's warning: the holder of one answers at once, unless it is late; so the partition hops to and fro."""
    group = town("race", 2, decide="fastest", delay=1.0)
    group.hold({"w0": 1, "w1": 1})
    late = dict.fromkeys(group.workers, 0)
    for second in range(600):
        group.now += 0.5
        for number, name in enumerate(sorted(group.workers)):
            if (second // 120) % 2 == number and second % 12:
                late[name] += 1
                continue  # it is slow for a minute: one look in 6 s
            group.step(name)
    assert group.changes > 2
    cured = town("race", 2)
    cured.hold({"w0": 1, "w1": 1})
    cured.run(300)
    assert cured.changes == 0


def test_a_worker_answers_by_what_it_held_when_it_heard_of_the_challenge() -> None:
    """As published: it counts once, and then waits. It lost two partitions while it waited, and answers no sooner."""
    group = town("race", 4, decide="fastest", delay=10.0)
    group.hold({"w0": 4, "w1": 0, "w2": 0})
    group.grabs = {"challenge-0": "w1"}
    group.step("w0")
    assert group.memories["w0"]["heard"] == {"p:0": (0.0, 30.0)}
    group.targets |= {"w0": frozenset({"p:0", "p:1"}), "w2": frozenset({"p:2", "p:3"})}
    group.now = 20.0
    group.step("w0")
    assert "p:0" not in group.grabs
    group.now = 30.0
    group.step("w0")
    assert group.grabs["p:0"] == "w0"


@pytest.mark.parametrize(("decide", "moves"), [("fastest", [20, 20, 20, 20]), ("announced", [4, 0, 0, 0])])
def test_challenges_at_one_moment_move_everything_for_ever(
    decide: str, moves: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All answer by the same counts: a worker without partitions wins all, and loses them all at the next challenge."""
    monkeypatch.setattr(race, "find_turn", lambda _, lease, after: (after // lease + 1) * lease)
    group = town("race", 20, decide=decide, delay=1.0)
    group.hold({"w0": 5, "w1": 5, "w2": 5, "w3": 5})
    group.run(90)
    assert group.changes == 0
    group.join("w4")
    counted = [0]
    for _ in moves:
        group.run(60)
        counted.append(group.changes)
    assert [after - before for before, after in pairwise(counted)] == moves


def test_replicas_leave_the_slice_of_a_missing_ordinal_to_it() -> None:
    group = town("ordinal", 6)
    group.replicas = dict.fromkeys(("w-0", "w-2", "w-5"), 3)
    group.join("w-0", "w-2", "w-5")
    group.settle()
    assert group.targets == {"w-0": {"p:0", "p:1"}, "w-2": {"p:4", "p:5"}, "w-5": frozenset()}
    assert "not below --replicas 3" in group.decide("w-5").note


# --- options


def test_an_unknown_protocol_or_option_is_named_beside_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"Unknown protocol 'clam'\. Known: assigned, claim, ordinal, race"):
        find_protocol("clam")
    with pytest.raises(ConfigError, match=r"options\.steal: 'none' is not valid\. Valid: even, published"):
        check_protocol("claim", {"steal": "none"})
    with pytest.raises(ConfigError, match=r"unknown option 'speed' of protocol ordinal\. Valid: slices"):
        check_protocol("ordinal", {"speed": 1})
