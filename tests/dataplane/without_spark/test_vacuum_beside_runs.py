"""A vacuum of rota, or of another program without retention, at every moment of a run, also of the index of files.

Law: rota's vacuum deletes no file that a run needs, and files left behind for a week. If another one deletes files of the
index between their write and their commit, that is reported, and no row is lost or doubled.
"""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from rota.dataplane.delta import vacuum as ours
from rota.deltalog.delta_log import DeltaVersion
from tests.dataplane.striking import strike_at
from tests.dataplane.without_spark import foreign_programs as programs
from tests.dataplane.without_spark.struck_stage import BETWEEN, MOMENTS, Stage, strike

A_WEEK = timedelta(days=8).total_seconds()


def leave_behind(main: Path) -> Path:
    """Write a file of an attempt that died long ago."""
    left = main / "data" / "dead" / "rows.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"rows")
    os.utime(left, (time.time() - A_WEEK,) * 2)
    return left


@pytest.mark.parametrize("moment", [BETWEEN, *MOMENTS])
def test_ours_takes_what_is_left_behind_and_nothing_that_a_run_needs(moment: str, tmp_path: Path) -> None:
    one = Stage(tmp_path / "x")
    left = leave_behind(one.main)
    with strike(moment, lambda: ours.vacuum(str(one.world.table), dry_run=False)):
        one.go_on()
    assert not left.exists()
    assert (one.said, one.world.tree.parked()) == ([], {})
    one.finish()


def test_without_its_week_it_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta has the same guard."""
    real = DeltaTable.vacuum
    monkeypatch.setattr(ours, "MIN_RETENTION", timedelta(0))
    monkeypatch.setattr(DeltaTable, "vacuum", lambda *a, **more: real(*a, **more, enforce_retention_duration=False))
    one = Stage(tmp_path / "x")

    def vacuum() -> None:
        for file in one.main.rglob("*.parquet"):
            os.utime(file, (time.time() - 10,) * 2)
        ours.vacuum(str(one.world.table), timedelta(0), dry_run=False)

    with strike("just before the commit", vacuum):
        one.go_on()
    assert "and it is gone: no reader can read the table" in one.look()


@pytest.mark.parametrize("full", [False, True], ids=["VACUUM", "VACUUM FULL"])
@pytest.mark.parametrize("moment", [BETWEEN, *MOMENTS])
def test_of_the_index_another_one_takes_nothing_that_counts(moment: str, full: bool, tmp_path: Path) -> None:
    one = Stage(tmp_path / "x")
    with strike(moment, lambda: programs.vacuum(one.world.table / "index", full=full)):
        one.go_on()
    assert (one.said, one.world.tree.parked()) == ([], {})
    one.finish()


def test_what_it_takes_between_the_writing_and_the_commit_of_the_index_is_reported(tmp_path: Path) -> None:
    """These are some milliseconds. Nothing is consumed until the file is restored."""
    one = Stage(tmp_path / "x")
    index = one.world.table / "index"
    before = set(index.glob("*.parquet"))
    kept: dict[Path, bytes] = {}

    def vacuum() -> None:
        kept.update((file, file.read_bytes()) for file in {*index.glob("*.parquet")} - before)
        programs.vacuum(index, full=True)

    with strike_at(DeltaVersion, "append", vacuum, before=True):
        one.go_on()
    assert kept
    assert all("index cannot be read" in said and "Bring it back" in said for said in one.said)
    for file, data in kept.items():
        file.write_bytes(data)
    one.said.clear()
    one.go_on()
    one.finish()
