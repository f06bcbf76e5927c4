"""A guard that is taken out makes damage that the checker counts; with every guard the same world is clean."""

from dataclasses import replace
from typing import Any

import pytest

from rota.core import Plan, Policy, Snapshot, plan
from rota.core.values import Team
from rota.group import rebalance
from simulator.actors import Parts
from simulator.checker import Violation
from simulator.simulation import Simulation
from simulator.world import Happening
from simulator.worlds import world
from tests.ablations import NO_CAP, NO_DRAIN, NO_TARGET, NO_VERSION, make_changer, no_wait, publish_carelessly
from tests.sim.ablations import Tokenless, Unfenced
from tests.sim.damage import breaks


def without_policy(snapshot: Snapshot, assignor: str, options: Any, memory: Any, _: Policy) -> Plan:
    """The plan of a controller that keeps no budget, cooldown or grace."""
    return plan(snapshot, assignor, options, memory, Policy())


# range gives to a full worker and takes from it at once; round-robin moves most
DAMAGE = [
    ("a live owner is not waited for", Parts(machine=no_wait), "cap-cut", "sticky", "stolen"),
    ("a release does not wait for the run", Parts(machine=NO_DRAIN), "cap-cut", "sticky", "busy"),
    ("the table does not compare tokens", Parts(table=Tokenless), "flapping", "sticky", "stale"),
    ("the table compares neither tokens nor offsets", Parts(table=Unfenced), "flapping", "sticky", "doubled"),
    (
        "claims compare neither record nor target",
        Parts(connected=make_changer(NO_VERSION, NO_TARGET)),
        "hiccups",
        "round-robin",
        "stolen",
    ),
    ("a claim does not look at the cap", Parts(machine=NO_CAP), "paced", "range", "cap"),
]


@pytest.mark.parametrize(("guard", "parts", "name", "assignor", "rule"), DAMAGE, ids=[d[0] for d in DAMAGE])
def test_the_checker_counts_what_a_missing_guard_lets_through(
    guard: str, parts: Parts, name: str, assignor: str, rule: str
) -> None:
    worlds = (Simulation(world(name), assignor, seed, parts=parts) for seed in (1, 2, 3))
    assert any(breaks(one, one.run, rule) for one in worlds), f"{guard}: not noticed"


def without_caps(snapshot: Snapshot, *rest: Any) -> Plan:
    """The plan of a controller that overlooks what a worker may hold."""
    boundless = tuple(replace(w, max_partitions=None) for w in snapshot.workers)
    return plan(replace(snapshot, workers=boundless, team=Team.of(boundless)), *rest)


def without_cooldown(snapshot: Snapshot, assignor: str, options: Any, memory: Any, policy: Policy) -> Plan:
    """The plan of a controller that does not rest between two voluntary moves."""
    return plan(snapshot, assignor, options, memory, replace(policy, cooldown=0.0))


COUNTED = Parts(connected=lambda _: None)  # what ships, and breaches are counted
CARELESS = [
    ("it keeps no budget", "plan", without_policy, "paced", "budget"),
    ("it does not rest", "plan", without_cooldown, "paced", "budget"),
    ("it overlooks caps", "plan", without_caps, "cap-cut", "cap"),
    (
        "it neither rewrites nor reads back what a dead one left",
        "publish",
        publish_carelessly,
        "controller-dies",
        "disjoint",
    ),
]


@pytest.mark.parametrize(("guard", "what", "careless", "name", "rule"), CARELESS, ids=[c[0] for c in CARELESS])
def test_the_checker_counts_what_a_careless_controller_does(
    guard: str, what: str, careless: Any, name: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller is the shipped one, in whose module one function is another."""
    monkeypatch.setattr(rebalance, what, careless)
    worlds = (Simulation(world(name), "sticky", seed, parts=COUNTED) for seed in (1, 2, 3))
    assert any(breaks(one, one.run, rule) for one in worlds), f"{guard}: not noticed"


def test_a_breach_names_its_seed_and_how_to_see_it_again() -> None:
    simulation = Simulation(world("cap-cut"), "sticky", seed=7)
    with pytest.raises(
        Violation, match=r"settled at 0\.000 s: .* Again: python -m simulator --world cap-cut .* --seed 7"
    ):
        simulation.checker.breach("settled", "orders:01 is not")


def test_a_worker_that_never_claims_is_a_breach_at_the_end() -> None:
    """Its answers come too late for any observation to end: what a dead worker leaves to it stays unclaimed."""
    calm = world("crash")
    late = Happening(100, "lag", "w03", 1e6)
    with pytest.raises(Violation, match=r"settled at 600\.000 s: .* is owned by None, its target is w03"):
        Simulation(replace(calm, happenings=(late, *calm.happenings))).run()
