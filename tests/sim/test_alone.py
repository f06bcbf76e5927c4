"""Workers that decide alone, in virtual time: the shipped agents, in every world, with faults between any two steps."""

from collections import Counter
from dataclasses import replace

import pytest

from rota.core.reconcile import Event as MachineEvent
from rota.core.reconcile import Instruction, Observed, State, assigned
from simulator.actors import SHIPPED, Parts
from simulator.simulation import Result, Simulation
from simulator.world import Happening, Timing, World
from simulator.worlds import WORLDS, make_partitions, make_team, world
from tests.ablations import NO_TARGET, NO_VERSION, make_changer, no_wait
from tests.sim.alone_handover import AloneHandOver
from tests.sim.damage import breaks
from tests.sim.small_worlds import smaller

PROTOCOLS = {
    "claim": ("claim", {}),
    "claim published": ("claim", {"steal": "published", "interval": 5.0}),
    "race": ("race", {}),
    "race fastest": ("race", {"decide": "fastest", "lease": 30.0, "delay": 1.0}),
    "ordinal": ("ordinal", {}),
    "ordinal sticky": ("ordinal", {"slices": "sticky"}),
}
FEW = ("claim published", "race fastest", "ordinal")


def make(happening: World, how: str = "claim", seed: int = 1, parts: Parts = SHIPPED) -> Simulation:
    protocol, options = PROTOCOLS[how]
    return Simulation(happening, seed=seed, options=options, protocol=protocol, parts=parts)


def play(happening: World, how: str = "claim") -> Result:
    return make(happening, how).run()


def plain(
    partitions: int, workers: int, *happenings: Happening, duration: float = 120, timing: Timing | None = None
) -> World:
    """Nothing but owning: no runs, and so nothing to drain."""
    timing = timing or Timing(backlog=1e4, report=1e4)
    team, parts = make_team(workers), make_partitions(partitions)
    return World("plain", team, parts, happenings, duration, begin=20, timing=timing)


@pytest.mark.parametrize(
    ("how", "name"),
    [(how, name) for how in ("claim", "race", "ordinal sticky") for name in sorted(WORLDS)]
    + [(how, name) for how in FEW for name in ("crash-handover", "drain", "paced")],
)
def test_every_protocol_holds_every_world_together(how: str, name: str) -> None:
    """One owner, nothing starved, ends balanced, no move when balanced: the checker raises at the first breach."""
    assert play(smaller(name), how).commits > 30


@pytest.mark.parametrize("protocol", ["claim", "race", "ordinal"])
def test_no_fault_between_any_two_steps_does_damage(protocol: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        played = AloneHandOver(seed, protocol).play()
        assert not played.checker.found, played.repro()
        counts += played.counts
        if seed >= 5 and counts["fenced"]:  # a zombie has written
            break
    assert counts["faults"] > 100
    assert counts["fenced"] > 0  # else it proved nothing


def test_claim_owns_a_thousand_within_15_s_of_the_last_join_and_moves_the_fewest() -> None:
    late = Happening(40, "join", "w10")
    result = play(plain(1_000, 10, late, duration=80))
    assert result.converge < 15
    assert result.moves == 100
    filled = [t for t, moved in result.jumps if moved == 1]
    assert filled
    assert filled[0] > 40


def test_a_killed_workers_partitions_come_back_when_its_session_ends() -> None:
    result = play(plain(100, 10, Happening(40, "crash", "w03"), duration=80))
    assert result.moves == result.unavoidable_moves == 10
    assert result.unowned < 10 * (10 + 5)


@pytest.mark.parametrize("how", ["claim", "race", "ordinal sticky"])
def test_nothing_moves_where_nothing_changes_however_late_every_answer_is(how: str) -> None:
    assert play(replace(smaller("latency"), begin=150), how).moves == 0


def test_published_claims_fill_one_a_round() -> None:
    """100 partitions over 10 workers: ten rounds of 5 to 6 s, where the default needs one observation."""
    quick, slow = (play(plain(100, 10), how) for how in ("claim", "claim published"))
    assert quick.unowned == 0  # measured from the 20th second
    assert slow.unowned > 500


# --- ablations


def by_clock(state: State, event: MachineEvent) -> tuple[State, tuple[Instruction, ...]]:
    """The machine of a worker that takes a claim of 180 s ago, on its own clock, for expired: no claim is renewed here."""
    expired = isinstance(event, Observed) and event.now > 180
    return assigned(state, replace(event, live=frozenset({state.incarnation or ""})) if expired else event)  # type: ignore[arg-type]


DAMAGE = [
    *(
        (guard, Parts(machine=machine), smaller(where), how, "stolen")
        for guard, machine, where in (
            ("a clock is used for expiry", by_clock, "clock-skew"),
            ("an owner is not waited for", no_wait, "join-storm"),
        )
        for how in ("claim", "race", "ordinal sticky")
    ),
    (
        "claims name no version",
        Parts(connected=make_changer(NO_VERSION, NO_TARGET)),
        world("hiccups"),
        "ordinal sticky",
        "stolen",
    ),
]


@pytest.mark.parametrize(("guard", "parts", "where", "how", "rule"), DAMAGE, ids=[f"{d[0]}, {d[3]}" for d in DAMAGE])
def test_what_a_missing_guard_lets_through_is_counted(
    guard: str, parts: Parts, where: World, how: str, rule: str
) -> None:
    worlds = (make(where, how, seed, parts) for seed in range(8, 20))  # two claims at one moment are rare
    assert any(breaks(one, one.run, rule) for one in worlds), f"{guard}: not noticed"
