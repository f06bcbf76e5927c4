"""The checks tell a stale commit and a gap from ordinary life."""

from dataclasses import dataclass, field

from rota.coordination.records import Parked
from rota.coordination.store import Node
from rota.coordination.views import Read
from rota.dagster.assets.checks import find_gaps, find_parked, find_stale
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
    assert find_parked(waits, flights) == {"flights:AA": "flights (`rota why flights:AA`)"}
    assert find_parked(waits, europe) == {"flights-eu:AA": "flights-eu (`rota why flights-eu:AA`)"}
