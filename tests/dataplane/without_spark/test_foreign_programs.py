"""Operations of other programs on a table of rota, each at every moment of a batch.

Law: each offset is committed once. If committed rows were deleted or changed, the report has the
operator's next step, after which each row is in the table once. An operation that changes no row stops runs only briefly.
"""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from rota.deltalog.delta_log import DeltaVersion
from rota.errors import EnvironmentFailed
from rota.ledger.merging import FEW
from rota.people.adopt import adopt
from rota.run.maintain import maintain
from rota.run.replay import replay
from tests.dataplane.without_spark import foreign_programs as programs
from tests.dataplane.without_spark.foreign_programs import KEEPS, TAKES
from tests.dataplane.without_spark.struck_stage import BETWEEN, MOMENTS, Stage, strike
from tests.dataplane.without_spark.trickle import Trickle


@pytest.mark.parametrize("moment", [BETWEEN, *MOMENTS])
@pytest.mark.parametrize("name", TAKES)
def test_a_program_that_changes_rows_is_reported_and_they_come_back(name: str, moment: str, tmp_path: Path) -> None:
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
def test_a_program_that_changes_no_row_stops_no_run(name: str, moment: str, tmp_path: Path) -> None:
    one = Stage(tmp_path / "x")
    with strike(moment, lambda: KEEPS[name](one.main)):
        one.go_on()
    if moment == "just before the commit" and name in ("VACUUM FULL", "VACUUM by Spark"):
        said = one.look()
        assert "names data/" in said
        assert "repair(), then: rota adopt, and replay what was there: p:" in said
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
    assert any(step in said for said in one.said)
    programs.unmap_columns_by_spark(one.main)
    one.finish()


@pytest.mark.parametrize("moment", [BETWEEN, *MOMENTS])
def test_a_feature_that_is_not_written_is_named_and_not_tried_again_and_again(moment: str, tmp_path: Path) -> None:
    one = Stage(tmp_path / "x")
    with strike(moment, lambda: programs.add_feature_by_spark(one.main, "clustering", "domainMetadata")):
        one.go_on(1)
    one.land_both()
    with pytest.raises(
        EnvironmentFailed, match=r"rota does not write \(clustering, domain.*ALTER TABLE ... DROP FEATURE"
    ):
        one.consume()
    programs.add_feature_by_spark(one.main, "future", reader=True)
    with pytest.raises(EnvironmentFailed, match="a feature that delta-rs does not read: take it away there"):
        one.consume()


def test_a_replay_does_not_bring_back_what_was_deleted_in_place(tmp_path: Path) -> None:
    """The file still has the row: a replay that kept the file's other rows restored it, and Spark read both files."""
    one = Stage(tmp_path / "x")
    programs.delete_in_place_by_spark(one.main)
    one.go_on()
    assert "(DELETE) changed rows" in " ".join(one.said)
    adopt(one.world.tree, [one.world.pipeline])
    version = DeltaTable(one.main).version()
    with pytest.raises(EnvironmentFailed, match=r"deleted in place. Nothing was replaced. .*REORG TABLE"):
        list(replay(one.world.tree, one.ports, {"p:a": (0, 2), "p:b": (0, 2)}, "again"))
    assert DeltaTable(one.main).version() == version


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_files_with_rows_that_were_deleted_in_place_stay_and_the_others_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Without the guard no files are merged any more; each maintenance fails and leaves an unnamed file."""
    if not guarded:
        monkeypatch.setattr(DeltaVersion, "find_vectored", lambda *_: set())
    one = Trickle(tmp_path / "x")
    for _ in range(FEW + 1):
        one.land("a")
        one.consume()
    main = one.world.table / "main"
    programs.delete_in_place_by_spark(main)
    adopt(one.world.tree, [one.world.pipeline])
    done = maintain(one.world.pipeline)
    assert (done.main.before, done.main.after, not done.failed) == ((FEW, 1, True) if guarded else (0, 0, False))
    assert len(DeltaTable(main).file_uris()) == (2 if guarded else FEW + 1)
    assert len(list(main.glob("data/*/merged/*.parquet"))) == 1
