"""The flow's dual proves its optimum without a search, at sizes beyond any enumeration; a greedy result is marked so."""

import numpy as np
import pytest

from rota.core import Partition, Snapshot, Worker, plan
from rota.core.assignors.partition_classes import PartitionClasses
from rota.core.assignors.sticky import constrained
from rota.core.assignors.sticky.balance import NEVER, Prices, balance_classes, compute_prices
from rota.core.constraints import find_matches, find_valid_owners


def check_certificate(classes: PartitionClasses, units: np.ndarray, certificate: Prices) -> bool:
    """Whether `certificate` proves that `units` is optimal. It checks weak duality arc by arc and searches nothing."""
    placed = units.sum(axis=1)
    fits = bool((units >= 0).all() and (units[~classes.may] == 0).all() and (units.sum(axis=0) <= classes.bound).all())
    cheapest = np.where(classes.may, certificate.worker, NEVER).min(axis=1)
    on_cheapest = bool(((units == 0) | (certificate.worker == cheapest[:, None])).all())
    count = units.sum(axis=0)
    priced = bool((count >= certificate.low).all() and (count <= certificate.low + certificate.optional).all())
    left = placed < classes.size
    return fits and on_cheapest and priced and bool((cheapest[left] == NEVER).all())


def world(seed: int, equal: bool = True) -> Snapshot:
    rng = np.random.default_rng(seed)
    team = [
        Worker(
            f"w{i:02}",
            capacity=1.0 if equal else float(rng.choice([0.3, 1.0, 1.1, 2.5])),
            labels={name: "y" for name in "abc" if rng.random() < 0.5},
            max_partitions=int(rng.integers(5, 40)) if rng.random() < 0.3 else None,
            state="cordoned" if rng.random() < 0.1 else "active",
        )
        for i in range(12)
    ]
    parts = [
        Partition(
            f"p{i:03}",
            source=f"s{i % 7}",
            requires={name: "y" for name in "abc" if rng.random() < 0.25},
            pin=f"w{rng.integers(12):02}" if rng.random() < 0.05 else None,
        )
        for i in range(300)
    ]
    return Snapshot.of(team, parts, {p.id: f"w{rng.integers(14):02}" for p in parts if rng.random() < 0.8})


def solve(snapshot: Snapshot) -> tuple[PartitionClasses, np.ndarray]:
    match = find_matches(snapshot)
    classes = PartitionClasses.of_snapshot(snapshot, match, find_valid_owners(snapshot, match))
    return classes, balance_classes(classes, snapshot.team.capacity)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("equal", [True, False])
def test_the_dual_proves_the_balance(seed: int, equal: bool) -> None:
    snapshot = world(seed, equal)
    classes, units = solve(snapshot)
    assert check_certificate(classes, units, compute_prices(classes, units, snapshot.team.capacity))


def test_a_worse_balance_is_not_proven() -> None:
    snapshot = world(3)
    classes, units = solve(snapshot)
    dual = compute_prices(classes, units, snapshot.team.capacity)
    count = units.sum(axis=0)
    row, giver, taker = next(
        (row, giver, taker)
        for row, giver in np.argwhere(units > 1)
        for taker in np.flatnonzero(classes.may[row])
        if taker != giver and count[taker] >= count[giver] - 1
    )
    units[row, giver] -= 2
    units[row, taker] += 2
    assert not check_certificate(classes, units, dual)


def test_above_the_limit_of_arcs_the_result_is_greedy_valid_near_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = world(1)
    exact = plan(snapshot)
    assert exact.measures.lower_bound == exact.measures.imbalance_after
    monkeypatch.setattr(constrained, "MOST_ARCS", 10)
    assert plan(snapshot).measures.reason.startswith("greedy, not proven:")
    assert (plan(snapshot).measures.lower_bound or 9) < (exact.measures.lower_bound or 0)
    match = find_matches(snapshot)
    target, _, note = constrained.assign_constrained(snapshot, match, find_valid_owners(snapshot, match))
    assert note.startswith("greedy, not proven:")
    assert (target >= 0).sum() == (exact.assignment.target >= 0).sum()
    counts, best = (np.bincount(t[t >= 0], minlength=12) for t in (target, exact.assignment.target))
    assert (counts**2).sum() <= 1.05 * (best**2).sum()


def test_two_groups_that_overlap_move_the_least() -> None:
    """20 topics of 20 over 50 workers, two groups that share 2 topics: one more worker costs its share and no more."""
    team = [Worker(f"w{i:03}", labels={"g": str(i % 2)}) for i in range(51)]
    parts = [
        Partition(f"t{t:02}-{i:02}", source=f"t{t:02}", requires={"g": "0"} if t < 9 else {"g": "1"} if t > 10 else {})
        for t in range(20)
        for i in range(20)
    ]
    first = plan(Snapshot.of(team[:50], parts, {}))
    counts = sorted(len(h) for h in first.assignment.as_dict().values())
    assert (counts[0], counts[-1]) == (8, 8)
    owners = {p: w for w, held in first.assignment.as_dict().items() for p in held}
    assert plan(Snapshot.of(team, parts, owners)).measures.moves == 7
