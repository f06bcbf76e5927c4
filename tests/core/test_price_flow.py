"""Law 4 by prices: the prices prove the flow, the network finds none better, and every interruption ends the same."""

import numpy as np
import pytest

from rota.core import Partition, Snapshot, Worker, plan
from rota.core.assignors.sticky import assignor as sticky
from rota.core.assignors.sticky import price_flow
from rota.core.assignors.sticky.open_choices import OpenChoices
from rota.core.assignors.sticky.price_flow import PriceFlow, spread_by_prices
from rota.core.assignors.sticky.source_spread import spread_by_flow
from tests.core.exact_solver import best, score_one


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_flow, "MANY", 0)


def world(
    seed: int, workers: int, partitions: int, sources: int
) -> tuple[list[Worker], list[Partition], dict[str, str]]:
    """Alike partitions of sources of very different sizes; who owns what is anything from settled to absurd."""
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


def open_choices(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> list[OpenChoices]:
    """What law 4 was asked while this was planned."""
    asked: list[OpenChoices] = []

    def asks(choices: OpenChoices) -> bool:
        asked.append(choices)
        return not choices.waiting

    monkeypatch.setattr(sticky, "is_faster", asks)
    plan(snapshot)
    return [f for f in asked if not f.waiting]


def is_proven(problem: PriceFlow) -> bool:
    """Whether the prices prove the flow: each worker holds its cheapest units, and each source is placed exactly."""
    up, down = problem.up - problem.price[:, None], problem.down - problem.price[:, None]
    return bool((up.min(axis=0) >= down.max(axis=0)).all() and (problem.held.sum(axis=1) == problem.size).all())


@pytest.mark.parametrize("seed", range(27))
def test_every_assignment_there_is_is_no_better(seed: int) -> None:
    workers, partitions, owners = world(seed, 3, 7, 3)
    made = plan(Snapshot.of(workers, partitions, owners))
    assert score_one(workers, partitions, owners, made.assignment.as_dict()) == best(workers, partitions, owners)


@pytest.mark.parametrize("seed", range(27))
def test_prices_prove_the_flow_and_the_network_finds_none_better(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for choices in open_choices(Snapshot.of(*world(seed, 60, 2_000, 9)), monkeypatch):
        problem, _ = PriceFlow.of(choices)
        problem.solve()
        assert is_proven(problem)
        squares = []
        for released, taken in (spread_by_prices(choices), spread_by_flow(choices)):
            assert (taken.sum(axis=1) - released.sum(axis=1) == choices.free).all()
            squares.append(int(((choices.have - released + taken) ** 2).sum()))
        assert squares[0] == squares[1]


def test_a_worse_flow_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    (choices,) = open_choices(Snapshot.of(*world(1, 60, 2_000, 9)), monkeypatch)
    problem, _ = PriceFlow.of(choices)
    assert not is_proven(problem)
    problem.solve()
    up, down = problem.up - problem.price[:, None], problem.down - problem.price[:, None]
    worker = int((up[:-1].min(axis=0) - down[:-1].max(axis=0)).argmax())
    cheap, dear = up[:, worker].argmin(), down[:, worker].argmax()
    problem.shift(np.array([cheap]), np.array([worker]), 1)
    problem.shift(np.array([dear]), np.array([worker]), -1)
    assert not is_proven(problem)


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


def test_many_cells_of_few_sources_are_spread_by_prices_and_others_by_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    asked = []
    monkeypatch.setattr(sticky, "is_faster", lambda f: asked.append(price_flow.is_faster(f)) or asked[-1])
    for workers, sources in ((500, 10), (50, 10), (500, 40)):
        parts = [Partition(f"p{i:05}", f"s{i % sources:02}") for i in range(5 * workers)]
        plan(Snapshot.of([Worker(f"w{i:03}") for i in range(workers)], parts, {}))
    assert asked == [True, False, False]
