"""The memoryless baselines: exact to what was published, valid under labels, pins, caps, cordon and drain."""

import pytest

from rota.core import Partition, Snapshot, Worker, plan

NAMES = ["hash", "range", "round-robin", "ordinal"]


def counts(workers: int, partitions: int, assignor: str, **options: bool) -> list[int]:
    team = [Worker(f"w-{i}") for i in range(workers)]
    made = plan(Snapshot.of(team, [Partition(f"k{i:05}") for i in range(partitions)], {}), assignor, options)
    return [len(made.assignment.as_dict().get(w.id, ())) for w in team]


def test_ten_keys_over_four_consumers() -> None:
    assert counts(4, 10, "ordinal") == [2, 2, 2, 4]
    assert counts(4, 10, "ordinal", spread=True) == [3, 3, 2, 2]
    assert counts(4, 10, "range") == [3, 3, 2, 2]
    assert counts(4, 10, "round-robin") == [3, 3, 2, 2]
    assert sorted(counts(4, 10, "sticky")) == [2, 2, 3, 3]


def test_ordinals_are_numbers_and_slices_contiguous() -> None:
    assert counts(12, 25, "ordinal") == [2] * 11 + [3]
    made = plan(
        Snapshot.of([Worker(f"w-{i}") for i in (2, 10, 1)], [Partition(f"k{i}") for i in range(6)], {}), "ordinal"
    )
    assert made.assignment.as_dict() == {"w-1": ("k0", "k1"), "w-2": ("k2", "k3"), "w-10": ("k4", "k5")}


def test_slices_follow_the_numbers_of_partitions_too() -> None:
    """`OrderEvents-0` .. `OrderEvents-11` over four consumers: the first one's are 0, 1, 2 (as bytes: 0, 1, 10)."""
    team = [Worker(f"c-{i}") for i in range(4)]
    parts = [Partition(f"OrderEvents-{i}") for i in range(12)]
    held = plan(Snapshot.of(team, parts, {}), "ordinal").assignment.as_dict()
    slices = {w: sorted(int(p.rpartition("-")[2]) for p in ids) for w, ids in held.items()}
    assert slices == {"c-0": [0, 1, 2], "c-1": [3, 4, 5], "c-2": [6, 7, 8], "c-3": [9, 10, 11]}
    mixed = [*parts, Partition("late"), *(Partition(f"Audit-{i}") for i in (2, 10, 1))]
    held = plan(Snapshot.of(team, mixed, {}), "ordinal").assignment.as_dict()
    assert set(held["c-0"]) == {"Audit-1", "Audit-2", "Audit-10", "OrderEvents-0"}
    assert set(held["c-3"]) == {"OrderEvents-9", "OrderEvents-10", "OrderEvents-11", "late"}


def test_slices_are_not_sticky() -> None:
    """1,000 partitions, 10 -> 11 consumers move 550; 90 are enough. 1,000 over 101 leave one with 100."""
    parts = [Partition(f"k{i:04}") for i in range(1000)]
    first = plan(Snapshot.of([Worker(f"w-{i}") for i in range(10)], parts, {}), "ordinal").assignment.as_dict()
    owners = {p: w for w, held in first.items() for p in held}
    more = Snapshot.of([Worker(f"w-{i}") for i in range(11)], parts, owners)
    assert plan(more, "ordinal").measures.moves == 550
    assert plan(more, "sticky").measures.moves == 90
    assert sorted(counts(101, 1000, "ordinal")) == [9] * 100 + [100]


def test_rendezvous_moves_only_what_a_leaver_had() -> None:
    parts = [Partition(f"k{i:04}") for i in range(500)]
    team = [Worker(f"w{i}") for i in range(10)]
    before = plan(Snapshot.of(team, parts, {}), "hash").assignment.as_dict()
    after = plan(Snapshot.of(team[1:], parts, {}), "hash").assignment.as_dict()
    assert all(set(before[w]) <= set(after[w]) for w in after)
    assert max(map(len, before.values())) < 85


def test_rendezvous_follows_capacity() -> None:
    parts = [Partition(f"k{i:04}") for i in range(900)]
    held = plan(Snapshot.of([Worker("a", capacity=2.0), Worker("b")], parts, {}), "hash").assignment.as_dict()
    assert 540 < len(held["a"]) < 660


@pytest.mark.parametrize("assignor", NAMES)
def test_what_a_cordoned_worker_is_over_its_cap_is_dealt_with_the_rest(assignor: str) -> None:
    """It leaves before the slices are cut; dealt after them, it would move again at the next look."""
    team = [Worker("w0"), Worker("w1"), Worker("w2", state="cordoned", max_partitions=0)]
    parts = [Partition(f"p{i}") for i in range(6)]
    held = plan(Snapshot.of(team, parts, {"p1": "w2", "p4": "w2"}), assignor).assignment.as_dict()
    assert held == plan(Snapshot.of(team, parts, {}), assignor).assignment.as_dict()
    owners = {p: w for w, some in held.items() for p in some}
    assert not plan(Snapshot.of(team, parts, owners), assignor).moves
