"""A guard that is taken out makes damage that the checker counts; with every guard the same world is clean."""

import pytest

from rota.coordination.ownership import Guards as Owning
from rota.coordination.publication import Guards as Publishing
from rota.core.reconcile import Guards as Reconciling
from rota.sim.checker import Violation
from rota.sim.simulation import Ablation, Simulation
from rota.sim.worlds import world

DAMAGE = [
    ("a live owner is not waited for", Ablation(reconcile=Reconciling(wait=False)), "cap-cut", "stolen"),
    ("a release does not wait for the run", Ablation(reconcile=Reconciling(drain=False)), "cap-cut", "busy"),
    ("the table does not compare tokens", Ablation(table=False), "flapping", "gap"),
    (
        "claims compare neither record nor target",
        Ablation(ownership=Owning(version=False, assign=False)),
        "hiccups",
        "stolen",
    ),
    (
        "a dead controller's targets are neither rewritten nor read back",
        Ablation(publication=Publishing(clean=False, verify=False)),
        "controller-dies",
        "disjoint",
    ),
]


@pytest.mark.parametrize(("guard", "ablation", "name", "rule"), DAMAGE, ids=[d[0] for d in DAMAGE])
def test_the_checker_counts_what_a_missing_guard_lets_through(
    guard: str, ablation: Ablation, name: str, rule: str
) -> None:
    runs = (Simulation(world(name), "sticky", seed, ablation=ablation).run() for seed in (1, 2, 3))
    assert any(run.violations.get(rule) for run in runs), f"{guard}: nobody noticed"


def test_a_breach_says_its_seed_and_how_to_see_it_again() -> None:
    simulation = Simulation(world("cap-cut"), "sticky", seed=7)
    with pytest.raises(Violation, match=r"gap at 0\.000 s: .* Again: rota simulate --world cap-cut .* --seed 7"):
        simulation.checker.committed("orders-01", 5, 3)
