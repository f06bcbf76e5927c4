"""What needs a person, asked again and again in virtual time: stalled work is always reported, ordinary life never.
Progress is judged by the table alone."""

from dataclasses import replace
from typing import Any

import pytest

from rota.core.protocols.known_protocols import ASSIGNED
from rota.face.causes import IDLE, SETTLE
from simulator.world import Happening, Timing, World
from simulator.worlds import WORLDS, make_partitions, make_team
from tests.sim.small_worlds import smaller
from tests.sim.watched import Watched

ALL = 120.0  # seconds in which a pipeline without any work is reported, and the shutdown of an owner that hangs


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_no_world_that_heals_calls_a_person(name: str) -> None:
    watched = Watched(smaller(name), "sticky", 1)
    watched.run()
    assert watched.reported == {}
    assert watched.silent == []


@pytest.mark.parametrize("name", ["crash", "controller-dies", "drain"])
def test_after_no_event_a_world_that_heals_calls_a_person(name: str) -> None:
    watched = Watched(smaller(name), "sticky", 1, every=0.0)
    watched.run()
    assert (watched.reported, watched.silent) == ({}, [])


@pytest.mark.parametrize("protocol", ["claim", "race", "ordinal"])
@pytest.mark.parametrize("name", ["crash-handover", "drain", "join-storm"])
def test_where_workers_decide_alone_no_world_that_heals_calls_a_person(name: str, protocol: str) -> None:
    watched = Watched(smaller(name), seed=1, protocol=protocol)
    watched.run()
    assert (watched.reported, watched.silent) == ({}, [])


def strike(*happenings: Happening) -> World:
    """Four workers, 12 partitions, and what strikes them at 120 s; nothing has to be settled at the end."""
    return World("strike", make_team(4), make_partitions(12, 2), happenings, 1200, begin=60, timing=Timing())


CRASH = Happening(120, "crash", "w01")
STRIKES: dict[str, tuple[World, dict[str, Any], str]] = {
    "a worker dies and no process decides": (strike(CRASH), {"decides": False}, "unowned"),
    "all workers die": (strike(*(Happening(120, "crash", f"w{n:02}") for n in range(1, 5))), {}, "workers"),
    "all workers are drained": (strike(*(Happening(120, "drain", f"w{n:02}") for n in range(1, 5))), {}, "unplaceable"),
    "all workers are capped": (
        strike(*(Happening(120, "cap", f"w{n:02}", 0.0) for n in range(1, 5))), {}, "unplaceable",
    ),
    "no run is launched": (replace(strike(), timing=Timing(backlog=1e6)), {}, "idle"),
    "one dies and the others are full": (
        strike(*(Happening(100, "cap", f"w{n:02}", 3.0) for n in range(1, 5)), CRASH), {}, "unplaceable",
    ),
    "all are drained, alone": (
        strike(*(Happening(120, "drain", f"w{n:02}") for n in range(1, 5))), {"protocol": "claim"}, "unplaceable",
    ),
    "one dies and the others are full, alone": (
        strike(*(Happening(100, "cap", f"w{n:02}", 3.0) for n in range(1, 5)), CRASH), {"protocol": "claim"},
        "unplaceable",
    ),
}  # fmt: skip


def play(case: str) -> Watched:
    world, how, _ = STRIKES[case]
    watched = Watched(world, "sticky", 1, **how)
    watched.checker.strict = False
    watched.run()
    return watched


@pytest.mark.parametrize("case", STRIKES)
def test_stalled_work_is_reported_with_its_cause(case: str) -> None:
    watched, cause = play(case), STRIKES[case][2]
    assert watched.silent == []
    first = min(at for (why, _), at in watched.reported.items() if why == cause)
    patience = IDLE if cause == "idle" else SETTLE + watched.timing.session
    begins = 0.0 if cause == "idle" else 100.0
    assert first <= begins + patience + ALL
    assert {why for why, _ in watched.reported} == {cause}


@pytest.mark.parametrize("case", ["all workers are drained", "all workers die"])
def test_without_one_of_its_parts_work_stalls_in_silence(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge shares nothing with the function that it judges: it counts the silence."""
    for gone in ("find_of_partitions", "find_of_group")[: 1 + (case == "all workers die")]:
        monkeypatch.setattr(f"rota.face.needs.{gone}", lambda *_: iter(()))
    assert play(case).silent


def test_the_group_decides_by_a_controller() -> None:
    assert Watched(strike(), "sticky", 1).protocol == ASSIGNED
