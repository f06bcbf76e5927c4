"""The checks tell a stale commit, a gap, a partition that nobody owns and lag that grows from ordinary life."""

from dataclasses import dataclass, field

from rota.coordination.records import Checkpoint, Live, Parked
from rota.coordination.store import Node
from rota.coordination.views import OwnView, Read
from rota.dagster.assets.checks import find_gaps, find_parked, find_stale
from rota.dagster.assets.look import BEHIND, Lag, Memory, find_behind, load_memory, remember_behind, remember_unowned
from rota.eligibility import Facts
from rota.pipeline import Pipeline, delta, files


@dataclass(frozen=True)
class Commit:
    version: int
    ranges: dict[str, tuple[int, int]]
    tokens: dict[str, int] = field(default_factory=dict)
    op: str = "commit"


ORDINARY = [
    Commit(3, {"p": (4, 9)}, {"p": 12}),
    Commit(2, {"p": (0, 4), "q": (0, 1)}, {"p": 12, "q": 10}),
    Commit(4, {"p": (0, 2)}, {}, op="replay"),
    Commit(5, {"q": (1, 2)}, {"q": 15}),
    Commit(6, {"q": (2, 3)}, {"q": 15}, op="skip"),
    Commit(7, {"q": (3, 4)}, {"q": 15}),
]


def test_ordinary_life_is_neither_stale_nor_has_gaps() -> None:
    assert not find_stale(ORDINARY)
    assert not find_gaps(ORDINARY)


def test_a_commit_of_an_older_token_is_stale_wherever_it_stands_in_the_answer() -> None:
    zombie = Commit(8, {"q": (2, 3)}, {"q": 11})
    assert find_stale([zombie, *ORDINARY]) == {"q": "version 8 has token 11, version 7 had 15"}
    assert find_stale([*ORDINARY, zombie]) == find_stale([zombie, *ORDINARY])


def test_a_lost_and_a_doubled_range_are_gaps() -> None:
    lost, doubled = Commit(8, {"p": (10, 11)}), Commit(8, {"p": (4, 9)})
    assert find_gaps([*ORDINARY, lost]) == {"p": "version 8 starts at 10, the one before ended at 9"}
    assert find_gaps([*ORDINARY, doubled]) == {"p": "version 8 starts at 4, the one before ended at 9"}


def test_a_parked_partition_shows_on_its_own_pipeline_alone() -> None:
    """One of `flights-eu` showed on `flights` too, whose name begins its id."""
    source = files("${LANDING}", format="json", schema="n int")
    flights, europe = (Pipeline(source, delta(name), name=name) for name in ("flights", "flights-eu"))
    waits = {one.partition("AA"): Read(Parked(reason=one.name), Node(b"", 0, 1, 1, 0)) for one in (flights, europe)}
    assert find_parked(waits, flights) == ({"flights:AA": "flights (`rota why flights:AA`)"}, True)
    assert find_parked(waits, europe) == ({"flights-eu:AA": "flights-eu (`rota why flights-eu:AA`)"}, True)


def test_a_parked_partition_that_is_tried_again_by_itself_is_no_matter_for_a_person() -> None:
    source = files("${LANDING}", format="json", schema="n int")
    one = Pipeline(source, delta("t"), name="one")
    again, never = (Read(Parked(reason="r", retry_at=at), Node(b"", 0, 1, 1, 0)) for at in (9.0, None))
    assert find_parked({"one:a": again}, one)[1] is False
    assert find_parked({"one:a": again, "one:b": never}, one)[1] is True


def make_facts(owners: dict[str, str | None], offsets: dict[str, int]) -> Facts:
    """Facts of partitions with these owners, of which w1 is live, and these checkpoints."""
    owns = {p: OwnView(owner, 0, 1) for p, owner in owners.items()}
    at = {
        p: Read(Checkpoint(offset=o, token=1, run_id="r", rows=0, seconds=0, epoch=1, table="t"), Node(b"", 0, 1, 1, 0))
        for p, o in offsets.items()
    }
    return Facts(tuple(owners), owns, 1, {}, {"w1@1": Live()}, (), {}, 0.0, at, {})


def test_a_partition_is_without_owner_since_the_first_look_that_saw_it_so() -> None:
    facts = make_facts({"p:a": "w1@1", "p:b": None, "p:c": "w2@2"}, {})
    first = remember_unowned(facts, {"p:c": "its owner w2@2 is gone"}, {}, 100.0)
    assert first == {"p:b": (100.0, "nobody owns it"), "p:c": (100.0, "its owner w2@2 is gone")}
    before = {p: since for p, (since, _) in first.items()}
    later = remember_unowned(facts, {}, before, 300.0)
    assert {p: since for p, (since, _) in later.items()} == before
    owned = make_facts({"p:b": "w1@1", "p:c": None}, {})
    assert list(remember_unowned(owned, {}, before, 400.0)) == ["p:c"]
    assert remember_unowned(owned, {}, before, 50.0)["p:c"][0] == 50.0, "the clock went back"


def play(*looks: tuple[float, int, int]) -> tuple[dict[str, str], dict[str, str]]:
    """What is said at the last of these looks (when, offset, end) at one partition: grows, stands."""
    behind: dict[str, Lag] = {}
    for now, at, end in looks:
        behind = remember_behind({"p:a": (at, end)}, behind, now)
        said = find_behind(behind, make_facts({"p:a": "w1@1"}, {"p:a": at}), now)
    return said


def test_lag_that_falls_or_comes_and_goes_is_ordinary() -> None:
    assert play((0, 0, 1000), (BEHIND, 1, 1000), (2 * BEHIND, 2, 1000)) == ({}, {}), "a backlog that drains"
    assert play((0, 0, 5), (BEHIND / 2, 5, 5), (BEHIND, 5, 9), (BEHIND * 1.9, 5, 9)) == ({}, {}), (
        "there was none between"
    )
    assert play((0, 0, 5), (BEHIND, 5, 10), (2 * BEHIND, 10, 15)) == ({}, {}), "it keeps up"


def test_lag_that_grows_warns_and_a_partition_that_stands_fails() -> None:
    growing, standing = play((0, 0, 5), (BEHIND / 2, 1, 9), (BEHIND, 2, 20))
    assert "its lag was 5 and has grown" in growing["p:a"]
    assert not standing
    growing, standing = play((0, 3, 5), (BEHIND / 2, 3, 5), (BEHIND, 3, 5))
    assert not growing
    assert "it stands at 3" in standing["p:a"]


def test_a_memory_outlives_its_sensor_and_a_strange_one_is_forgotten() -> None:
    memory = Memory(7, {"p:a": "why"}, {}, {"p:b": 1.5}, {"p:c": (2.5, 3, 4)})
    assert load_memory(memory.dump()) == memory
    assert load_memory(None) == load_memory('{"other": 1}') == load_memory("[]") == load_memory("{") == Memory()
