"""From every interrupted prefix of its own moves a plan goes on to the same end, for each assignor for which that is a law.

It is one for `sticky` (also in `test_sticky_laws`) and for the memoryless ones, whose answer does not depend on owners. The
exception is a cordoned worker over its cap, if no other worker has room for some of its partitions. If several sets of
them may stay and each places as many, the flow chooses one, and another prefix is another flow (`A_TIE`). Under `range`
the exception holds also where there is room for all (`ALL_PLACED`).
`sticky-load` is a heuristic for an NP-hard problem and stops as soon as it is within its tolerance: a part of its moves
may be enough. Its law is that going on from anywhere ends within 1 % of the same height, or within the tolerance.
The shedders have no such law: what they want is a step of a round, counted in a memory that is published with the target
in one write; from half a step they count anew. What they keep is that what a budget held back is not remembered as done
(`test_planner`).
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.core import Partition, Snapshot, Worker, plan
from tests.core.groups import build_drifted, draw_group, read_owners


@pytest.mark.parametrize("assignor", ["sticky", "ordinal", "hash", "range", "round-robin"])
@given(case=draw_group())
@settings(max_examples=40)
def test_every_prefix_goes_on_to_the_same_end(assignor: str, case: Any) -> None:
    workers, partitions, owners = case
    made = plan(Snapshot.of(workers, partitions, owners), assignor)
    end, ends = frozenset(read_owners(made).items()), {*ends_of_prefixes(assignor, workers, partitions, owners)}
    if assignor == "range" and is_cordoned_over_cap(workers, owners):
        assert {len(other) for other in ends} <= {len(end)}
        return
    cordoned = {w.id for w in workers if w.state == "cordoned"}
    assume(not any(u.from_worker in cordoned for u in made.unassigned))
    assert ends <= {end}


def is_cordoned_over_cap(workers: list[Worker], owners: dict[str, str]) -> bool:
    """Whether a cordoned worker has to give some of its partitions away, and which is open."""
    caps = {w.id: w.max_partitions for w in workers if w.state == "cordoned" and w.max_partitions is not None}
    return any(list(owners.values()).count(worker) > cap for worker, cap in caps.items())


def ends_of_prefixes(
    assignor: str, workers: list[Worker], partitions: list[Partition], owners: dict[str, str]
) -> Iterator[frozenset[tuple[str, str]]]:
    """Where the plan comes from ends from each prefix of its own moves."""
    done = dict(owners)
    for move in plan(Snapshot.of(workers, partitions, owners), assignor).moves:
        done[move.partition] = move.to_worker
        yield frozenset(read_owners(plan(Snapshot.of(workers, partitions, done), assignor)).items())


A_TIE = (
    [
        Worker("w0", zone="b", state="cordoned", max_partitions=1),
        Worker("w1", max_partitions=0),
        Worker("w2", zone="b", max_partitions=1),
    ],
    [Partition("p0"), Partition("p1"), Partition("p2", requires={"zone": "b"})],
    {"p0": "w0", "p1": "w0", "p2": "w0"},
)


ALL_PLACED = (
    [Worker("w0", zone="a"), Worker("w1", zone="a", state="cordoned", max_partitions=1), Worker("w2")],
    [Partition("p0"), Partition("p1"), Partition("p2"), Partition("p3"), Partition("p4", requires={"zone": "a"})],
    {"p2": "w1", "p3": "w1", "p4": "w1"},
)


def test_a_tie_at_a_cordoned_worker_places_as_many_from_every_prefix() -> None:
    """p2 stays and p1 moves; once it has, p0 stays, p2 takes the room and p1 waits. No answer places more than two. Where
    there is room for all, p2 stays; once p3 has moved, p4 does."""
    assert {len(end) for end in ends_of_prefixes("range", *A_TIE)} == {2}
    ends = {*ends_of_prefixes("range", *ALL_PLACED)}
    assert len(ends) == 2
    assert {len(end) for end in ends} == {5}


@given(seed=st.integers(0, 10_000), tolerance=st.sampled_from([0, 0.05, 0.1]))
@settings(max_examples=20)
def test_going_on_by_load_ends_as_low_or_within_the_tolerance(seed: int, tolerance: float) -> None:
    snapshot = build_drifted(60, 8, seed)
    parts = [snapshot.partition(i) for i in range(60)]
    owners = {p.id: f"w{c:02}" for p, c in zip(parts, snapshot.owner.tolist(), strict=True)}
    made = plan(snapshot, "sticky-load", {"tolerance": tolerance})
    done = dict(owners)
    for move in made.moves:
        done[move.partition] = move.to_worker
        again = plan(Snapshot.of(snapshot.workers, parts, done), "sticky-load", {"tolerance": tolerance})
        limit = max(made.measures.imbalance_after or 1.0, 1 + tolerance)
        assert (again.measures.imbalance_after or 1.0) <= limit * 1.01
