"""Cases from the articles, and the complaints of users of such systems, that `sticky` must answer better."""

import numpy as np
import pytest

from rota.core import Partition, Plan, Snapshot, Worker, plan
from tests.core.groups import read_owners


def team(count: int) -> list[Worker]:
    return [Worker(f"w{i:02}") for i in range(count)]


def parts(count: int) -> list[Partition]:
    return [Partition(f"p{i:03}") for i in range(count)]


def deal_out(counts: list[int]) -> dict[str, str]:
    ids = iter(parts(sum(counts)))
    return {next(ids).id: f"w{w:02}" for w, count in enumerate(counts) for _ in range(count)}


def counts(made: Plan) -> list[int]:
    return sorted((len(h) for h in made.assignment.as_dict().values()), reverse=True)


@pytest.mark.parametrize(
    ("before", "workers", "partitions", "after", "moves"),
    [
        ([4, 2, 2, 2], 4, 10, [3, 3, 2, 2], 1),  # stable in Event Processor; one move repairs it
        ([5, 5, 5, 3], 4, 18, [5, 5, 4, 4], 1),  # where its steal rule sticks
        ([6, 6, 6], 4, 18, [5, 5, 4, 4], 4),
        ([5, 5, 5, 5], 3, 20, [7, 7, 6], 5),  # one of four dies
        ([5, 5, 5, 5], 4, 25, [7, 6, 6, 6], 0),  # five partitions are added
        ([1, 1, 1, 1, 1], 6, 5, [1, 1, 1, 1, 1, 0], 0),  # one too many stays idle
        ([5, 0], 2, 5, [3, 2], 2),
    ],
)
def test_scenarios_of_the_articles(
    before: list[int], workers: int, partitions: int, after: list[int], moves: int
) -> None:
    made = plan(Snapshot.of(team(workers), parts(partitions), deal_out(before)))
    assert counts(made) == after
    assert made.measures.moves == moves


@pytest.mark.parametrize("seed", range(20))
def test_the_closed_form_of_the_fewest_moves(seed: int) -> None:
    """P - sum(min(own, q)) - min(r, #{own > q}) moves and placements, whatever the state before."""
    rng = np.random.default_rng(seed)
    size, workers = int(rng.integers(0, 300)), int(rng.integers(1, 20))
    home = rng.choice(workers + 2, size, p=(w := rng.random(workers + 2)) / w.sum())
    owners = {
        f"p{i:03}": f"w{h:02}" for i, h in enumerate(home) if h <= workers
    }  # w<workers> is gone; the next number has no owner
    made = plan(Snapshot.of(team(workers), parts(size), owners))
    own = np.bincount(home, minlength=workers + 2)[:workers]
    q, r = divmod(size, workers)
    assert len(made.moves) == size - np.minimum(own, q).sum() - min(r, int((own > q).sum()))
    assert max(counts(made), default=0) - min(counts(made), default=0) <= 1


def test_each_source_stays_even_through_growth_and_shrinking() -> None:
    """Two sources of 12 over 1, 2, 4, 2 workers: 12, 6, 3, 6 of each on every worker."""
    partitions = [Partition(f"{s}-{i:02}", source=s) for s in "ab" for i in range(12)]
    owners: dict[str, str] = {}
    for workers, each in ((1, 12), (2, 6), (4, 3), (2, 6)):
        made = plan(Snapshot.of(team(workers), partitions, owners))
        for held in made.assignment.as_dict().values():
            assert [sum(p[0] == s for p in held) for s in "ab"] == [each, each]
        owners = read_owners(made)


def test_a_thousand_joins_and_leaves_never_drift() -> None:
    """After any history the counts are as even as on the first day, and a quiet look moves nothing."""
    rng = np.random.default_rng(7)
    partitions = [Partition(f"s{i % 3}-{i:03}", source=f"s{i % 3}") for i in range(100)]
    there, owners = set(range(8)), {}
    for _ in range(100):
        there ^= {int(rng.integers(12))}
        workers = [Worker(f"w{i:02}") for i in sorted(there)] or team(1)
        made = plan(Snapshot.of(workers, partitions, owners))
        assert counts(made)[0] - counts(made)[-1] <= 1
        owners = read_owners(made)
        assert not plan(Snapshot.of(workers, partitions, owners)).moves


def test_columns_and_views_say_the_same() -> None:
    made = plan(Snapshot.of(team(3), parts(10), deal_out([10, 0, 0])))
    moves, columns = made.moves, made.assignment.snapshot
    takers = [columns.name(code) for code in made.assignment.target.tolist()]
    assert dict(zip(columns.partition_ids, takers, strict=True)) == read_owners(made)
    assert [*moves] == moves
    assert moves[-1] == list(moves)[-1]
    assert moves[:2] == list(moves)[:2]
    with pytest.raises(IndexError):
        moves[len(moves)]
