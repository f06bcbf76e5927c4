"""`sticky` keeps its laws: valid, balanced, fewest moves, blind to the order of its input."""

from rota.core import Partition, Snapshot, Worker, plan


def team(count: int, **of_all: object) -> list[Worker]:
    return [Worker(f"w{i}", **of_all) for i in range(count)]  # type: ignore[arg-type]


def parts(count: int) -> list[Partition]:
    return [Partition(f"p:{i:04}", "p") for i in range(count)]


def test_ten_keys_over_four_workers_are_3_3_2_2() -> None:
    made = plan(Snapshot.of(team(4), parts(10), {}))
    assert sorted(len(held) for held in made.assignment.as_dict().values()) == [2, 2, 3, 3]
    assert (made.measures.moves, made.measures.placements) == (0, 10)


def test_a_worker_that_left_gives_only_its_own() -> None:
    fresh = plan(Snapshot.of(team(3), parts(16), {})).assignment
    owners = {p: w for w, held in fresh.as_dict().items() for p in held}
    made = plan(Snapshot.of(team(3)[:2], parts(16), owners))
    assert {m.partition for m in made.moves} == set(fresh.as_dict()["w2"])
    assert {m.reason for m in made.moves} == {"w2 left"}
    assert made.measures.unavoidable_moves == len(made.moves)


def test_cordoned_keeps_and_draining_gives() -> None:
    owners = {f"p:{i:04}": f"w{i % 3}" for i in range(12)}
    workers = [Worker("w0", state="cordoned"), Worker("w1", state="draining"), Worker("w2"), Worker("w3")]
    made = plan(Snapshot.of(workers, parts(12), owners))
    held = made.assignment.as_dict()
    assert set(held) == {"w0", "w2", "w3"}
    assert sorted(len(h) for h in held.values()) == [4, 4, 4]
    assert {m.from_worker for m in made.moves} == {"w1"}


def test_more_than_the_caps_allow_is_listed() -> None:
    made = plan(Snapshot.of(team(2, max_partitions=3), parts(8), {}))
    assert [len(h) for h in made.assignment.as_dict().values()] == [3, 3]
    assert [u.partition for u in made.unassigned] == ["p:0006", "p:0007"]


def test_nothing_moves_twice() -> None:
    fresh = plan(Snapshot.of(team(5), parts(33), {})).assignment
    owners = {p: w for w, held in fresh.as_dict().items() for p in held}
    again = plan(Snapshot.of(team(5)[::-1], parts(33)[::-1], owners))
    assert not again.moves
    assert again.measures.reason
    assert again.assignment.as_dict() == fresh.as_dict()
