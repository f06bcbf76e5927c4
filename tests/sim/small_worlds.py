"""The worlds of the simulator, small enough for every assignor and protocol to run in each."""

from dataclasses import replace

from simulator.world import World
from simulator.worlds import world


def smaller(name: str) -> World:
    """A sixth of the partitions, looked at half as often, and no longer than it takes to settle: a hand-over by force, and
    the calm after it that the checkers ask for."""
    whole = world(name)
    struck = {happening.target for happening in whole.happenings}
    parts = tuple(p for i, p in enumerate(whole.partitions) if i % 6 == 0 or p.id in struck)
    ids, last = {p.id for p in parts}, max((happening.at for happening in whole.happenings), default=0.0)
    return replace(
        whole,
        partitions=parts,
        initial={p: owner for p, owner in whole.initial.items() if p in ids},
        duration=min(whole.duration, max(300, last + 240)),
        timing=replace(whole.timing, backlog=15.0, poll=3.0, report=60.0),
    )
