"""A simulated world, a caller that asks what needs a person, and a judge of the answers."""

from dataclasses import replace
from typing import Any

from rota.coordination.snapshot import read_basis
from rota.face.causes import BEHIND
from rota.face.memory import Memory
from rota.face.need import Need
from rota.face.needs import find_needs
from rota.face.seen import PipelineSeen, Seen
from rota.ids import pipeline_of
from rota.run.eligibility import read_facts
from simulator.log_checker import LoggedCommit
from simulator.simulation import Simulation
from simulator.timeline import Life

EVERY = 5.0  # virtual seconds between two checks, or 0: after each event, for ten times the cost
BOUND = BEHIND + 60.0  # a partition that makes no progress for so long is reported


class Watched(Simulation):
    """A world, a caller that asks what needs a person, and a judge of the answers that knows the table's commits alone."""

    def __init__(self, *args: Any, decides: bool = True, every: float = EVERY, **more: Any) -> None:
        super().__init__(*args, **more)
        self.decides, self.every = decides, every
        self.memory, self.asked = Memory(), 0.0
        self.reported: dict[tuple[str, str], float] = {}  # (cause, name) -> when it first needed a person
        self.silent: list[str] = []
        self.counted, self.ends = 0, dict[str, int]()  # commits that were read; partition -> offset in the table
        self.at: dict[str, tuple[int, float]] = {}  # partition -> its offset, and since when it is there

    def after_event(self) -> None:
        super().after_event()
        if self.now - self.asked >= self.every:
            self.asked = self.now
            self.ask()

    def ask(self) -> None:
        needs, self.memory = find_needs(self.see(), self.memory)
        persons = [need for need in needs if need.person]
        for need in persons:
            self.reported.setdefault((need.cause, need.name), self.now)
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
            absences=basis.controller.record.absences,
            pipelines=tuple(
                PipelineSeen(name, ends={p: end for p, end in ends.items() if pipeline_of(p) == name}) for name in of
            ),
        )

    def judge(self, persons: list[Need]) -> None:
        """Notes each partition that makes no progress beyond the bound and is not reported."""
        about = {need.name for need in persons if need.kind in ("partition", "pipeline")}
        all_waiting = any(need.kind not in ("partition", "pipeline") for need in persons)
        for one in map(LoggedCommit.of, self.log.commits[self.counted :]):
            self.ends |= {p: end for p, (_, end) in one.ranges.items() if one.op == "commit"}
        self.counted = len(self.log.commits)
        for p in self.truth.load:
            offset = self.ends.get(p, 0)
            if self.at.get(p, (-1, 0.0))[0] != offset or self.read_end(p) <= offset:
                self.at[p] = offset, self.now
            lasted = self.now - self.at[p][1]
            if lasted > BOUND and not all_waiting and not about & {p, pipeline_of(p)}:
                self.silent.append(f"{p} is at {offset} for {lasted:.0f} s")

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
