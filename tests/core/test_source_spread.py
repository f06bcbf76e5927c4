"""Law 4, few sources over many workers: no exchange improves the spread, and every interruption ends the same."""

import numpy as np
import pytest

from rota.core import Partition, Snapshot, Worker, plan
from rota.core.assignors.sticky import assignor as sticky
from rota.core.assignors.sticky.open_choices import OpenChoices
from rota.core.assignors.sticky.source_spread import spread_by_flow
from rota.core.values import Bools, Ints
from tests.core.exact_solver import best, score_one

NEVER = 1 << 40  # the cost of an exchange that may not be


def world(
    seed: int, workers: int, partitions: int, sources: int
) -> tuple[list[Worker], list[Partition], dict[str, str]]:
    """Alike partitions of sources of very different sizes; the owners are anything from settled to absurd."""
    rng = np.random.default_rng(seed)
    team = [
        Worker(
            f"w{i:03}",
            capacity=float(rng.choice([1.0, 1.0, 2.5])) if seed % 3 == 0 else 1.0,
            max_partitions=int(rng.integers(1, 2 * partitions // workers + 2)) if rng.random() < 0.1 else None,
            state=str(rng.choice(["active"] * 12 + ["cordoned", "draining"])),
        )
        for i in range(workers)
    ]
    share = rng.lognormal(0, [0.0, 0.3, 1.5][seed % 3], sources)
    parts = [Partition(f"p{i:05}", f"s{rng.choice(sources, p=share / share.sum()):02}") for i in range(partitions)]
    favour = rng.dirichlet(np.full(workers + 1, [0.2, 5.0, 100.0][seed // 3 % 3]))
    owners = {p.id: f"w{rng.choice(workers + 1, p=favour):03}" for p in parts if rng.random() < 0.95}
    if seed % 5 == 4:  # each worker owns of one source only: one price after the other gets stuck, paths must end it
        owners = {p.id: f"w{int(p.source[1:]) + sources * rng.integers(workers // sources):03}" for p in parts}
    return team, parts, owners


def list_choices(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> list[OpenChoices]:
    """What law 4 was asked while this was planned."""
    asked: list[OpenChoices] = []

    def ask(choices: OpenChoices) -> tuple[Ints, Ints]:
        asked.append(choices)
        return spread_by_flow(choices)

    monkeypatch.setattr(sticky, "spread_by_flow", ask)
    plan(snapshot)
    return [one for one in asked if not one.waiting]


def find_exchanges(held: Ints, may_take: Bools, may_give: Bools) -> Ints:
    """Source x source -> the least that the sum of squares changes where a worker takes one unit of the first for one of the
    second. The last source is of units that cost nothing: whether an optional worker takes one more."""
    up, down = 2 * held + 1, 2 * held - 1
    up[-1] = down[-1] = 0
    costs = np.where(may_take[:, None] & may_give[None], up[:, None] - down[None], NEVER)
    return np.asarray(costs.min(axis=2))


def can_be_better(choices: OpenChoices, released: Ints, taken: Ints) -> bool:
    """Whether any chain of exchanges, each on one worker, lowers the sum of squares: a flow of convex costs is optimal where
    none does (Klein, 1967)."""
    held = choices.have - released + taken
    out, come = choices.limit_moves()
    idle = choices.low + choices.optional - held.sum(axis=0)  # 1: an optional worker that takes no more
    may_take = np.vstack((held < choices.have + np.where(choices.take, come, 0), choices.optional & (idle == 0)))
    may_give = np.vstack((held > np.maximum(choices.have - np.where(choices.release, out, 0), 0), idle == 1))
    cost = find_exchanges(np.vstack((held, idle)), may_take, may_give)
    for between in range(len(cost)):
        cost = np.minimum(cost, cost[:, [between]] + cost[[between]])
    return bool((cost.diagonal() < 0).any())


@pytest.mark.parametrize("seed", range(27))
def test_every_assignment_there_is_is_no_better(seed: int) -> None:
    workers, partitions, owners = world(seed, 3, 7, 3)
    made = plan(Snapshot.of(workers, partitions, owners))
    assert score_one(workers, partitions, owners, made.assignment.as_dict()) == best(workers, partitions, owners)


@pytest.mark.parametrize("seed", range(27))
def test_no_chain_of_exchanges_is_better(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for choices in list_choices(Snapshot.of(*world(seed, 60, 2_000, 9)), monkeypatch):
        released, taken = spread_by_flow(choices)
        assert (taken.sum(axis=1) - released.sum(axis=1) == choices.free).all()
        assert not can_be_better(choices, released, taken)


def test_a_worse_spread_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers exchange a unit of two sources, against what they hold of them."""
    (choices,) = list_choices(Snapshot.of(*world(1, 60, 2_000, 9)), monkeypatch)
    released, taken = spread_by_flow(choices)
    gives = taken > 0
    source, other = next((a, b) for a in range(9) for b in range(9) if a != b and gives[a].any() and gives[b].any())
    one = int(np.flatnonzero(gives[source])[0])
    two = int(next(w for w in np.flatnonzero(gives[other]) if w != one))
    for row, worker, change in ((source, one, -1), (source, two, 1), (other, two, -1), (other, one, 1)):
        taken[row, worker] += change
    assert can_be_better(choices, released, taken)


@pytest.mark.parametrize("seed", range(9))
def test_every_interruption_goes_on_to_the_same_end(seed: int) -> None:
    workers, partitions, owners = world(seed, 12, 400, 5)
    made = plan(Snapshot.of(workers, partitions, owners))
    done = dict(owners)
    for n, move in enumerate(made.moves):
        done[move.partition] = move.to_worker
        if n % max(len(made.moves) // 9, 1) == 0:
            again = plan(Snapshot.of(workers[::-1], partitions, done))
            assert again.assignment.as_dict() == made.assignment.as_dict()
