"""What needs a person, asked again and again in virtual time: work that stands still is always told, and ordinary life calls
nobody. Whether work stands still is judged by the table alone."""

from dataclasses import replace
from typing import Any

import pytest

from rota.coordination.snapshot import read_basis
from rota.core.protocols.registry import ASSIGNED
from rota.face.needs import BEHIND, IDLE, SETTLE, Memory, Need, find_needs
from rota.face.seen import PipelineSeen, Seen
from rota.ids import pipeline_of
from rota.run.eligibility import read_facts
from rota.sim.log_checker import Told
from rota.sim.simulation import Simulation
from rota.sim.timeline import Life
from rota.sim.world import Happening, Timing, World
from rota.sim.worlds import WORLDS, make_partitions, make_team
from tests.sim.small_worlds import smaller

EVERY = 5.0  # virtual seconds between two looks
BOUND = BEHIND + 60.0  # a partition that stands still so long is told
ALL = 120.0  # seconds in which a pipeline at which nobody works at all is told, and the shutdown of an owner where one hangs


class Watched(Simulation):
    """A world, somebody who asks what needs a person, and a judge of the answers who knows the table's commits alone."""

    def __init__(self, *args: Any, decides: bool = True, **more: Any) -> None:
        super().__init__(*args, **more)
        self.decides = decides
        self.memory, self.asked = Memory(), 0.0
        self.told: dict[tuple[str, str], float] = {}  # (cause, name) -> when it first needed a person
        self.silent: list[str] = []
        self.counted, self.ends = 0, dict[str, int]()  # commits that were read; partition -> offset in the table
        self.at: dict[str, tuple[int, float]] = {}  # partition -> its offset, and since when it stands there

    def after_event(self) -> None:
        super().after_event()
        if self.now - self.asked >= EVERY:
            self.asked = self.now
            self.ask()

    def ask(self) -> None:
        needs, self.memory = find_needs(self.see(), self.memory)
        persons = [need for need in needs if need.person]
        for need in persons:
            self.told.setdefault((need.cause, need.name), self.now)
        self.judge(persons)

    def see(self) -> Seen:
        """What a command would read, with the source's ends as they are."""
        ids = self.reader.ids()
        facts, basis = read_facts(self.reader, ids), read_basis(self.reader)
        at = {p: read.record.offset for p, read in facts.checkpoints.items()}
        ends = {p: (at.get(p, 0), self.read_end(p)) for p in ids}
        of = sorted(set(ids.values()))
        return Seen(
            self.group,
            self.now,
            replace(facts, now=self.now),
            protocol=basis.meta.protocol,
            grace=basis.meta.grace,
            handover=self.timing.max_shutdown,
            workers=basis.workers,
            pins=basis.overrides.pins,
            pipelines=tuple(
                PipelineSeen(name, ends={p: end for p, end in ends.items() if pipeline_of(p) == name}) for name in of
            ),
        )

    def judge(self, persons: list[Need]) -> None:
        """Notes each partition that stands still beyond the bound and of which nothing is told."""
        about = {need.name for need in persons if need.kind in ("partition", "pipeline")}
        everybody = any(need.kind not in ("partition", "pipeline") for need in persons)
        for one in map(Told.of, self.log.commits[self.counted :]):
            self.ends |= {p: end for p, (_, end) in one.ranges.items() if one.op == "commit"}
        self.counted = len(self.log.commits)
        for p in self.truth.load:
            offset = self.ends.get(p, 0)
            if self.at.get(p, (-1, 0.0))[0] != offset or self.read_end(p) <= offset:
                self.at[p] = offset, self.now
            lasted = self.now - self.at[p][1]
            if lasted > BOUND and not everybody and not about & {p, pipeline_of(p)}:
                self.silent.append(f"{p} stands at {offset} for {lasted:.0f} s")

    def run(self) -> Any:
        if not self.decides:  # one round places everything; then Dagster is down
            happened = self.controller.life

            def life() -> Life:
                for pause in happened():
                    if self.now > 60.0:
                        return
                    yield pause

            self.controller.life = life  # type: ignore[method-assign]
        return super().run()


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_no_world_that_heals_calls_a_person(name: str) -> None:
    watched = Watched(smaller(name), "sticky", 1)
    watched.run()
    assert watched.told == {}
    assert watched.silent == []


@pytest.mark.parametrize("protocol", ["claim", "race", "ordinal"])
@pytest.mark.parametrize("name", ["crash-handover", "drain", "join-storm"])
def test_where_workers_decide_alone_no_world_that_heals_calls_a_person(name: str, protocol: str) -> None:
    watched = Watched(smaller(name), seed=1, protocol=protocol)
    watched.run()
    assert (watched.told, watched.silent) == ({}, [])


def strike(*happenings: Happening) -> World:
    """Four workers, 12 partitions, and what strikes them at 120 s; nothing has to be settled at the end."""
    return World("strike", "", make_team(4), make_partitions(12, 2), happenings, 1200, begin=60, timing=Timing())


CRASH = Happening(120, "crash", "w01")
STRIKES: dict[str, tuple[World, dict[str, Any], str]] = {
    "a worker dies and nobody decides": (strike(CRASH), {"decides": False}, "unowned"),
    "all workers die": (strike(*(Happening(120, "crash", f"w{n:02}") for n in range(1, 5))), {}, "workers"),
    "all workers are drained": (strike(*(Happening(120, "drain", f"w{n:02}") for n in range(1, 5))), {}, "unplaceable"),
    "all workers are capped": (
        strike(*(Happening(120, "cap", f"w{n:02}", 0.0) for n in range(1, 5))), {}, "unplaceable",
    ),
    "nobody launches": (replace(strike(), timing=Timing(backlog=1e6)), {}, "idle"),
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
def test_work_that_stands_still_is_told_with_its_cause(case: str) -> None:
    watched, cause = play(case), STRIKES[case][2]
    assert watched.silent == []
    first = min(at for (why, _), at in watched.told.items() if why == cause)
    patience = IDLE if cause == "idle" else SETTLE + watched.timing.session
    begins = 0.0 if cause == "idle" else 100.0
    assert first <= begins + patience + ALL
    assert {why for why, _ in watched.told} == {cause}


@pytest.mark.parametrize("gone", ["find_of_partitions", "find_of_group"])
def test_without_one_of_its_parts_work_stands_still_in_silence(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge shares nothing with what it judges: it counts the silence."""
    monkeypatch.setattr(f"rota.face.needs.{gone}", lambda *_: iter(()))
    assert play("all workers are drained" if gone == "find_of_partitions" else "all workers die").silent


def test_the_group_decides_by_a_controller() -> None:
    assert Watched(strike(), "sticky", 1).protocol == ASSIGNED
