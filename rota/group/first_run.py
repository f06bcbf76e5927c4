"""A worker that joins waits for its first run, so that a partition moves to it only when the run can consume it at once.

Laws:
1. A worker waits only if a run consumes in the group when it joins: otherwise no record would arrive sooner. Under protocols
   without a controller it does not wait: the other workers would not notice the end of the wait at once.
2. A worker that waits owns nothing and claims nothing. The former owners keep their partitions and consume them.
3. It waits at most `LONGEST` seconds, and only while another live worker has room. So no partition is without an owner
   because a worker waits.
"""

from collections.abc import Callable, Generator

from rota.coordination.group_reader import GroupReader

LONGEST = 20.0  # seconds from the join


class FirstRun:
    """The wait of one incarnation for its first run."""

    def __init__(self, tree: GroupReader, clock: Callable[[], float]) -> None:
        self.tree, self.clock = tree, clock
        self._began = 0.0

    def begin(self) -> bool:
        """Begin the wait before a join. Return whether there is anything to wait for."""
        self._began = self.clock()
        return bool(self.tree.live_runs())

    def explain_end(self, incarnation: str) -> Generator[None, None, str]:
        """Return why the wait is over; empty if it is not. Yields between two calls to ZooKeeper."""
        if self.clock() - self._began >= LONGEST:
            return f"no run of it was ready within {LONGEST:g} s"
        if incarnation in self.tree.working().values():
            return "its first run is ready"
        yield
        others = [one.record for one in self.tree.live() if one.incarnation != incarnation]
        if any(one is not None and one.has_room and not one.leaving for one in others):
            return ""
        return "no other worker has room"
