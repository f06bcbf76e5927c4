"""Other programs at work on a table of ours, each at every moment of a batch.

Law: no offset is committed twice, and none is consumed that was not. Where rows that were committed are gone or others, a
person is told what to do, and after it all rows are there once. What changes no row stops nobody for good.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from rota.dataplane.files.files_source import FilesSource
from rota.errors import EnvironmentFailed, RotaError
from rota.face.health import read_table
from rota.ledger.ledger import Ledger
from rota.people.adopt import adopt
from rota.run.replay import ReplayedRange, replay
from tests.chaos.plain_job import PlainJob
from tests.dataplane.conftest import log
from tests.dataplane.striking import strike_at
from tests.dataplane.without_spark import foreign_programs as programs
from tests.dataplane.without_spark.foreign_programs import KEEPS, TAKES
from tests.dataplane.without_spark.trickle import Trickle

MOMENTS: dict[str, tuple[type, str, bool]] = {  # what a run calls then, and whether the other program comes before it
    "before the claim": (FilesSource, "assign_offsets", True),
    "before the reading": (PlainJob, "run", True),
    "between writing and commit": (Ledger, "check_same_copy", True),
    "just before the commit": (Ledger, "check_on_disk", False),
    "after the commit": (Ledger, "commit", False),
}
BETWEEN = "between two batches"


@contextmanager
def strike(moment: str, act: Callable[[], object]) -> Iterator[None]:
    """The other program acts once, at that moment of the next run, or now."""
    if moment == BETWEEN:
        act()
        yield
        return
    kind, name, before = MOMENTS[moment]
    with strike_at(kind, name, act, before=before):
        yield


class Stage(Trickle):
    """Two batches of both partitions are in the table, and a third one waits."""

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
        """So many runs, each after any park is over; what they say."""
        for _ in range(runs):
            try:
                self.consume()
            except (RotaError, AssertionError) as error:  # an event that says that it is dropped
                self.said.append(str(error))
            now = self.world.server.clock() + 3700.0
            self.world.server.clock = lambda at=now: at
        self.said += [one.record.reason for one in self.world.tree.parked().values()]

    def look(self) -> str:
        """What `rota status` says of the table."""
        return read_table(self.ports.main, tuple(map(self.partition, "ab"))).refusal  # type: ignore[arg-type]

    def mend(self) -> None:
        """What a person is told to do."""
        adopt(self.world.tree, [self.world.pipeline])
        for key in "ab":
            end = self.ports.main.read_positions((self.partition(key),))[self.partition(key)].offset or 0
            (done,) = replay(self.world.tree, self.ports, {self.partition(key): (0, end)}, "again")
            assert isinstance(done, ReplayedRange), done

    def check_offsets(self) -> None:
        """No offset was committed twice, and none was left out."""
        ends: dict[str, int] = {}
        for commit in log(self.main).said("commit"):
            for partition, (start, end) in json.loads(str(commit["rota.ranges"])).items():
                assert ends.get(partition, 0) == start
                ends[partition] = end
        assert ends == {"p:a": 4, "p:b": 4}

    def finish(self) -> None:
        """One more batch; then every row is there once, and nobody is needed."""
        self.land_both()
        self.said.clear()
        self.go_on()
        assert (self.said, self.look()) == ([], "")
        lost, doubled = self.damage()
        assert (lost.total(), doubled.total()) == (0, 0)
        self.check_offsets()


@pytest.mark.parametrize("moment", [BETWEEN, *MOMENTS])
@pytest.mark.parametrize("name", TAKES)
def test_whoever_takes_or_changes_rows_is_told_of_and_they_come_back(name: str, moment: str, tmp_path: Path) -> None:
    one = Stage(tmp_path / "x")
    with strike(moment, lambda: TAKES[name](one.main)):
        one.go_on()
    assert "rota adopt" in " ".join(one.said)
    assert all(parked.record.retry_at is None for parked in one.world.tree.parked().values())
    if name in ("overwrite of the columns", "CREATE OR REPLACE", "overwrite"):
        DeltaTable(one.main).delete()  # what is not of ours
    one.mend()
    one.finish()


@pytest.mark.parametrize("moment", [BETWEEN, *MOMENTS])
@pytest.mark.parametrize("name", KEEPS)
def test_whoever_changes_no_row_stops_nobody(name: str, moment: str, tmp_path: Path) -> None:
    one = Stage(tmp_path / "x")
    with strike(moment, lambda: KEEPS[name](one.main)):
        one.go_on()
    if moment == "just before the commit" and name in ("VACUUM FULL", "VACUUM by Spark"):
        said = one.look()
        assert "names data/" in said
        assert "repair(), then: rota adopt, and replay what stood there: p:" in said
        DeltaTable(one.main).repair()
        one.mend()
    assert not one.world.tree.parked()
    one.finish()


@pytest.mark.parametrize("moment", [BETWEEN, *MOMENTS])
def test_a_table_whose_columns_have_other_names_in_files_is_left_alone_until_they_have_not(
    moment: str, tmp_path: Path
) -> None:
    one = Stage(tmp_path / "x")
    with strike(moment, lambda: programs.map_columns_by_spark(one.main)):
        one.go_on()
    step = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
    assert step in one.look()
    assert any(step in said for said in one.said) == (moment != "after the commit"), "nothing was to be written then"
    programs.unmap_columns_by_spark(one.main)
    one.finish()


@pytest.mark.parametrize("moment", [BETWEEN, *MOMENTS])
def test_a_feature_that_is_not_written_is_named_and_not_tried_again_and_again(moment: str, tmp_path: Path) -> None:
    one = Stage(tmp_path / "x")
    with strike(moment, lambda: programs.add_feature_by_spark(one.main, "clustering", "domainMetadata")):
        one.go_on(1)
    one.land_both()
    with pytest.raises(EnvironmentFailed, match=r"delta-rs does not write \(.*Clustered.*ALTER TABLE ... DROP FEATURE"):
        one.consume()
    programs.add_feature_by_spark(one.main, "future", reader=True)
    with pytest.raises(EnvironmentFailed, match="a feature that delta-rs does not read: take it away there"):
        one.consume()


def test_a_replay_does_not_bring_back_what_was_deleted_in_place(tmp_path: Path) -> None:
    """Its file still holds the row: who wrote anew what else is in it had the row again, and Spark had both files."""
    one = Stage(tmp_path / "x")
    programs.delete_in_place_by_spark(one.main)
    one.go_on()
    assert "(DELETE) changed rows" in " ".join(one.said)
    adopt(one.world.tree, [one.world.pipeline])
    version = DeltaTable(one.main).version()
    with pytest.raises(EnvironmentFailed, match=r"deleted in place. Nothing was replaced. .*REORG TABLE"):
        list(replay(one.world.tree, one.ports, {"p:a": (0, 2), "p:b": (0, 2)}, "again"))
    assert DeltaTable(one.main).version() == version
