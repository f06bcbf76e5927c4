"""A guard that is taken out makes damage that the checker counts; with every guard the same world is clean."""

from dataclasses import replace

import pytest

from rota.coordination.ownership import Guards as Owning
from rota.coordination.publication import Guards as Publishing
from rota.core import Partition, Snapshot, Worker, plan
from rota.core.reconcile import Guards as Reconciling
from rota.sim.checker import Violation
from rota.sim.simulation import Ablation, Simulation
from rota.sim.world import Happening
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
    ("the controller keeps no budget", Ablation(policy=False), "paced", "budget"),
    ("a claim does not look at the cap", Ablation(reconcile=Reconciling(cap=False)), "paced", "cap"),
]


@pytest.mark.parametrize(("guard", "ablation", "name", "rule"), DAMAGE, ids=[d[0] for d in DAMAGE])
def test_the_checker_counts_what_a_missing_guard_lets_through(
    guard: str, ablation: Ablation, name: str, rule: str
) -> None:
    assignor = "range" if rule == "cap" else "sticky"  # one that gives to a full worker and takes from it at once
    runs = (Simulation(world(name), assignor, seed, ablation=ablation).run() for seed in (1, 2, 3))
    assert any(run.violations.get(rule) for run in runs), f"{guard}: nobody noticed"


def test_a_breach_says_its_seed_and_how_to_see_it_again() -> None:
    simulation = Simulation(world("cap-cut"), "sticky", seed=7)
    with pytest.raises(Violation, match=r"gap at 0\.000 s: .* Again: rota simulate --world cap-cut .* --seed 7"):
        simulation.checker.committed("orders-01", 5, 3)


def test_a_target_beyond_the_cap_that_its_plan_has_read_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(world("crash"))
    monkeypatch.setattr(simulation.checker, "planned", lambda _: simulation.checker._caps.update(w01=1))
    with pytest.raises(Violation, match=r"cap at .* w01 shall hold \d+ partitions, its cap is 1"):
        simulation.run()


def test_a_worker_that_never_claims_is_a_breach_at_the_end() -> None:
    """Its answers come too late for any look to end: what a dead worker leaves to it stays unclaimed."""
    calm = world("crash")
    late = Happening(100, "lag", "w03", 1e6)
    with pytest.raises(Violation, match=r"settled at 600\.000 s: .* is owned by None, its target is w03"):
        Simulation(replace(calm, happenings=(late, *calm.happenings))).run()


def test_a_voluntary_move_before_the_cooldown_is_over_is_a_breach() -> None:
    simulation = Simulation(world("paced"))
    workers = [Worker("w01"), Worker("w02")]
    made = plan(Snapshot.of(workers, [Partition("a"), Partition("b")], {"a": "w01", "b": "w01"}, now=5.0))
    simulation.checker.planned(made)
    with pytest.raises(Violation, match=r"budget at .* a voluntary move 0\.0 s after the last"):
        simulation.checker.planned(made)
