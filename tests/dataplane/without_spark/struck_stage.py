"""A pipeline with batches in its table, and another program that acts at a moment of the next run."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.coordination.parking import tell_park
from rota.dataplane.files.file_index import FileIndex
from rota.errors import RotaError
from rota.face.health import read_table
from rota.ledger.ledger import Ledger
from rota.people.adopt import adopt
from rota.run.replay import ReplayedRange, replay
from tests.chaos.plain_job import PlainJob
from tests.dataplane.conftest import log
from tests.dataplane.striking import strike_at
from tests.dataplane.without_spark.trickle import Trickle

MOMENTS: dict[str, tuple[type, str, bool]] = {  # a call of the run, and whether the other program acts before it
    "before the claim": (FileIndex, "extend", True),
    "before the reading": (PlainJob, "run", True),
    "between writing and commit": (Ledger, "check_on_disk", True),
    "just before the commit": (Ledger, "check_on_disk", False),
    "after the commit": (Ledger, "commit", False),
}
BETWEEN = "between two batches"


@contextmanager
def strike(moment: str, act: Callable[[], object]) -> Iterator[None]:
    """Let the other program act once, at that moment of the next run, or now."""
    if moment == BETWEEN:
        act()
        yield
        return
    kind, name, before = MOMENTS[moment]
    with strike_at(kind, name, act, before=before):
        yield


class Stage(Trickle):
    """Commit two batches of both partitions, and land a third one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.main = self.world.table / "main"
        self.said: list[str] = []
        for _ in range(2):
            self.land_both()
            self.consume()
        self.land_both()

    def land_both(self) -> None:
        for key in "ab":
            self.land(key)

    def go_on(self, runs: int = 3) -> None:
        """Run so many times, each after any park is over. Return the reports."""
        for _ in range(runs):
            try:
                self.consume()
            except (RotaError, AssertionError) as error:  # an assertion: the event of a dropped partition
                self.said.append(str(error))
            now = self.world.server.clock() + 3700.0
            self.world.server.clock = lambda at=now: at
        self.said += [tell_park(p, one.record) for p, one in self.world.tree.parked().items()]

    def look(self) -> str:
        """Return the report of `rota status` on the table."""
        return read_table(self.ports.main, tuple(map(self.partition, "ab"))).refusal  # type: ignore[arg-type]

    def mend(self) -> None:
        """Do an operator's next step."""
        adopt(self.world.tree, [self.world.pipeline])
        for key in "ab":
            end = self.ports.main.read_positions((self.partition(key),))[self.partition(key)].offset or 0
            (done,) = replay(self.world.tree, self.ports, {self.partition(key): (0, end)}, "again")
            assert isinstance(done, ReplayedRange), done

    def check_offsets(self) -> None:
        """Assert that each offset was committed once."""
        ends: dict[str, int] = {}
        for commit in log(self.main).said("commit"):
            for partition, (start, end) in json.loads(str(commit["rota.ranges"])).items():
                assert ends.get(partition, 0) == start
                ends[partition] = end
        assert ends == {"p:a": 4, "p:b": 4}

    def finish(self) -> None:
        """Run one more batch. Assert that every row is in the table once, and that no operator is needed."""
        self.land_both()
        self.said.clear()
        self.go_on()
        assert (self.said, self.look()) == ([], "")
        lost, doubled = self.damage()
        assert (lost.total(), doubled.total()) == (0, 0)
        self.check_offsets()
