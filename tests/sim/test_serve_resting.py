"""A served run and what has to rest, in virtual time: it is read the moment it has rested, and no run polls more for it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from rota.dataplane.ports import ENDS, Observation, Query
from rota.run.consume import CommittedBatch
from rota.run.eligibility import read_facts
from rota.run.serve import POLL_INTERVAL, RunLimits, serve
from rota.run.work import LAUNCH, LAUNCHED, observe_work
from simulator.source import MemorySource
from tests.sim.served_run import BATCH, PIPELINE, ServedRun

SETTLE = 2.0


@dataclass(frozen=True)
class Resting(MemorySource):
    """Each offset of s:0 has rested `SETTLE` seconds after it landed."""

    now: Callable[[], float] = float
    landed: list[float] = field(default_factory=list)
    polls: list[float] = field(default_factory=list)

    def observe(self, partitions: tuple[str, ...], query: Query = ENDS) -> Observation:
        """What has rested."""
        self.polls.append(self.now())
        now = self.now() + query.ahead
        left = tuple(at + SETTLE - now for at in self.landed if at + SETTLE > now)
        ends = {p: len(self.landed) - len(left) if p == "s:0" else 0 for p in partitions}
        return Observation(ends=ends, starts=query.choose_starts("earliest", ends), ready_in=left)


@dataclass(frozen=True)
class Unforeseen(Resting):
    """The same, and it does not report when data will have rested."""

    def observe(self, partitions: tuple[str, ...], query: Query = ENDS) -> Observation:
        """See `Resting`."""
        return replace(super().observe(partitions, query), ready_in=())


def serve_arrivals(arrivals: list[float], *, foreseen: bool = True) -> tuple[list[float], list[float]]:
    """When each offset was committed, and when the run looked."""
    world = ServedRun()
    kind = Resting if foreseen else Unforeseen
    source = kind(world.ends.__getitem__, lambda _: 100, now=lambda: world.now)
    world.ports = replace(world.ports, source=source)
    for at in arrivals:
        world.script[at] = lambda: source.landed.append(world.now)
        world.script[at + SETTLE] = world.land("s:0")
    seen = world.serve(RunLimits(linger=10.0))
    commits = [(e.start, e.end, at) for at, e in seen if isinstance(e, CommittedBatch)]
    return [at for start, end, at in commits for _ in range(start, end)], source.polls


@pytest.mark.parametrize("arrival", [3.0, 3.05, 3.2, 3.33, 3.49])
def test_what_rests_is_read_the_moment_that_it_has_rested(arrival: float) -> None:
    ((came,), polls) = serve_arrivals([arrival])
    assert came - BATCH - arrival == pytest.approx(SETTLE, abs=0.01)
    assert len([at for at in polls if at < came]) <= came / POLL_INTERVAL + 2, "at the price of one poll"


def test_without_foresight_it_waits_for_the_next_look() -> None:
    waits = [serve_arrivals([at], foreseen=False)[0][0] - BATCH - at - SETTLE for at in (3.05, 3.2, 3.33, 3.49)]
    assert max(waits) > POLL_INTERVAL / 2


def test_what_comes_all_the_time_is_not_looked_for_more_often() -> None:
    """A file each 50 ms: each poll finds one that has rested in a moment."""
    arrivals = [5.0 + number / 20 for number in range(200)]
    came, polls = serve_arrivals(arrivals)
    assert len(came) == len(arrivals)
    busy = [at for at in polls if 5.0 + SETTLE <= at <= came[-1]]
    assert len(busy) <= 3 * (came[-1] - 5.0 - SETTLE) / (POLL_INTERVAL + BATCH) + 3, "a poll, and what a batch asks"


def test_the_report_of_a_commit_counts_as_pause() -> None:
    world = ServedRun(ends={"s:0": 1, "s:1": 0, "s:2": 0})
    waited: list[float] = []
    served = serve(world.tree, PIPELINE, world.w1, ("s:0",), "r1", world.ports, RunLimits(), wait=waited.append)
    for event in served:
        if isinstance(event, CommittedBatch):
            world.now += POLL_INTERVAL / 2  # its telling
        if waited:
            break
    assert waited == [pytest.approx(POLL_INTERVAL / 2)]


def test_a_run_is_launched_for_what_will_have_rested_once_it_is_there() -> None:
    world = ServedRun()
    source = Resting(world.ends.__getitem__, lambda _: 100, now=lambda: world.now)

    def launches() -> list[str]:
        facts = read_facts(world.tree, ("s:0",))
        return [p for one in observe_work(facts, source, query=LAUNCHED)[0] for p in one.lags]

    source.landed.append(0.0)
    for now, due in ((0.0, []), (SETTLE - LAUNCH - 0.1, []), (SETTLE - LAUNCH, ["s:0"]), (SETTLE, ["s:0"])):
        world.now = now
        assert launches() == due
    source.landed[:] = [world.now - 0.1]
    assert not launches(), "what is written all the time launches nothing"
