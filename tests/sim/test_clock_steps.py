"""ZooKeeper's clock is put forward or back by an hour under a group that is well.

Laws: no need is reported. By count nothing moves. By load nothing moves where the clock goes back; where it
goes forward the rates of an hour are in the loads for two minutes, and what moves for that is bounded.
"""

from dataclasses import replace
from typing import Any

import pytest

from rota.core import Policy
from rota.core.protocols.known_protocols import ASSIGNED
from rota.face.seen import Seen
from simulator.world import Happening, World
from simulator.worlds import make_partitions, make_team
from tests.sim.watched import Watched

HOUR, AT, GRACE = 3600.0, 400.0, 60.0
PARTITIONS, LOADS = 48, (0.25, 0.5, 1.0, 2.0)


class Stepped(Watched):
    """A world whose ZooKeeper has a clock of its own, which is put by so many seconds at `AT`."""

    def __init__(self, step: float, assignor: str, *happenings: Happening, **more: Any) -> None:
        parts = make_partitions(PARTITIONS, 2, lambda number: LOADS[number % len(LOADS)])
        world = World("step", make_team(6), parts, happenings, 900.0, begin=300.0, policy=Policy(grace=GRACE))
        super().__init__(world, assignor, 2, **more)  # one in which loads, as measured, move nothing by themselves
        truth, self.ahead = self.server.clock, 2 * HOUR
        self.server.clock = lambda: truth() + self.ahead
        self.timeline.at(AT, lambda: setattr(self, "ahead", self.ahead + step))

    def see(self) -> Seen:
        """By ZooKeeper's clock, as a command does."""
        seen, now = super().see(), self.server.clock()
        return replace(seen, now=now, facts=replace(seen.facts, now=now))


@pytest.mark.parametrize("protocol", [ASSIGNED, "claim", "race", "ordinal"])
@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_by_count_nothing_moves(step: float, protocol: str) -> None:
    stepped = Stepped(step, "sticky", protocol=protocol)
    assert stepped.run().moves == 0
    assert (stepped.reported, stepped.silent) == ({}, [])


@pytest.mark.parametrize(("step", "most"), [(0.0, 0), (-HOUR, 0), (HOUR, PARTITIONS // 2)])
def test_by_load_little_moves(step: float, most: int) -> None:
    stepped = Stepped(step, "sticky-load")
    assert stepped.run().moves <= most
    assert (stepped.reported, stepped.silent) == ({}, [])


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_what_heals_reports_no_need(step: float) -> None:
    """A worker that may still return died before."""
    stepped = Stepped(step, "sticky", Happening(AT - GRACE / 2, "crash", "w06"))
    stepped.run()
    assert (stepped.reported, stepped.silent) == ({}, [])
