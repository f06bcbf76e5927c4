"""A maintenance of a pipeline's tables, during runs and after runs that died."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rota.dataplane.delta import vacuum
from rota.dataplane.delta.tables import PipelineTables
from rota.deltalog import packs
from rota.errors import EnvironmentFailed, ForeignTable
from rota.ledger.merging import FEW, Bound
from rota.run import maintain as nightly
from rota.run.maintain import maintain
from tests.dataplane.without_spark.trickle import Trickle

A_DAY, A_WEEK = 90_000, 700_000  # seconds, and some more


def age(folder: Path, seconds: float) -> None:
    """Make all files below older by so much."""
    for path in [*folder.rglob("*"), folder]:
        at = path.lstat().st_mtime - seconds
        os.utime(path, (at, at), follow_symlinks=False)


@pytest.fixture
def trickle(tmp_path: Path) -> Iterator[Trickle]:
    one = Trickle(tmp_path / "x")
    for _ in range(FEW + 4):
        one.land("a")
        one.land("b")
        one.consume()
    yield one
    one.land("a")
    one.consume()
    assert not any(one.damage()[0].values())
    assert not any(one.damage()[1].values())


def count_files(table: Path) -> int:
    return len(DeltaTable(table).file_uris())


def test_it_puts_files_together_and_a_second_finds_nothing_to_do(trickle: Trickle) -> None:
    main = trickle.world.table / "main"
    before = count_files(main)
    done = maintain(trickle.world.pipeline)
    assert (done.main.before, done.main.after, done.failed) == (before, 1, ())
    assert count_files(main) == 1
    assert maintain(trickle.world.pipeline).main.before == 0


def test_it_packs_what_is_older_than_a_day_in_all_three_logs(trickle: Trickle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACKED", 4)
    monkeypatch.setattr("rota.deltalog.delta_log.TAIL", 1)
    table, done = trickle.world.table, 0
    assert maintain(trickle.world.pipeline).packed == 0, "there was no checkpoint before"
    for _ in range(2):
        trickle.land()
        trickle.consume()
        age(table, A_DAY)
        done += maintain(trickle.world.pipeline).packed
    assert done > 2 * FEW
    assert {one.parent.parent.name for one in table.glob("*/_past/*.parquet")} == {"main", "index"}
    tables = PipelineTables.of(trickle.world.pipeline, "g", "")
    assert sum(one.op == "commit" for one in tables.main.read_log()) == FEW + 6
    # the trickle's own checker reads the JSON of the log alone
    for folder in ("main", "index"):
        log = vacuum.DeltaLog(str(table / folder))
        for number in packs.list_packs(log.store):
            for version, commit in packs.read_pack(log.store, packs.name_pack(number)).items():
                (table / folder / f"_delta_log/{version:020}.json").write_bytes(commit)


def leave_behind(table: Path) -> list[Path]:
    """Write the files that a killed Spark, a killed run and a killed commit leave."""
    run = "0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a-0a0a0a0a0a0a"
    left = [
        table / "main/data" / run / "70/part-1.parquet",
        table / "main/_delta_log/00000000000000000007.json#1",
        table / "main/_past/0a0a.tmp",
        table / "quarantine/raw" / run / "raw.json",
        table / "stage" / run / "link",
    ]
    for one in left:
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_bytes(b"left")
    (table / "main/data" / f"{run[:-1]}b" / "70").mkdir(parents=True)
    return left


def test_what_attempts_left_that_died_goes_after_a_week_and_not_before(trickle: Trickle) -> None:
    table = trickle.world.table
    left = leave_behind(table)
    maintain(trickle.world.pipeline)
    assert all(one.exists() for one in left), "a run may still write it"
    for one in left:
        age(one.parent, A_WEEK)
        age(one, A_WEEK)
    age(table / "main/data/0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a-0a0a0a0a0a0b", A_WEEK)
    said = vacuum.vacuum(str(table))
    assert len([one for one in said if "0a0a" in one or "#1" in one]) >= len(left)
    age(table / "main/data/0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a-0a0a0a0a0a0a", A_WEEK)
    maintain(trickle.world.pipeline)
    assert not any(one.exists() for one in left)
    for _ in range(2):  # a folder that has just become empty waits
        age(table / "main/data", A_WEEK)
        maintain(trickle.world.pipeline)
    assert not list((table / "main/data").glob("0a0a*")), "no empty folder either"


def test_a_step_that_fails_keeps_no_other_from_being_taken(trickle: Trickle, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise EnvironmentFailed("The disk is gone. Mount it")

    left = leave_behind(trickle.world.table)
    for one in left:
        age(one.parent, A_WEEK)
        age(one, A_WEEK)
    with monkeypatch.context() as patched:
        patched.setattr(vacuum.DeltaLog, "checkpoint", fail)
        done = maintain(trickle.world.pipeline)
    assert done.failed == ("The disk is gone. Mount it",)
    assert (done.main.after, left[0].exists()) == (1, False)


def test_what_it_rewrites_is_bounded(trickle: Trickle, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [one.stat().st_size for one in (trickle.world.table / "main").glob("data/*/*/*.parquet")]
    monkeypatch.setattr(nightly, "A_NIGHT", Bound(10 * max(sizes), 10 * max(sizes)))
    done = maintain(trickle.world.pipeline).main
    assert 0 < done.bytes <= 10 * max(sizes)
    assert (done.left > 0, done.left_bytes > 0) == (True, True)


def test_the_table_of_another_pipeline_is_left_alone(trickle: Trickle) -> None:
    before = sorted(trickle.world.table.rglob("*"))
    with pytest.raises(ForeignTable, match="Nothing was done"):
        maintain(replace(trickle.world.pipeline, name="other"))
    assert sorted(trickle.world.table.rglob("*")) == before


def test_where_there_is_no_table_yet_there_is_nothing_to_do(tmp_path: Path) -> None:
    one = Trickle(tmp_path / "x")
    assert maintain(one.world.pipeline).failed == ()


@pytest.mark.parametrize("error", [DeltaError("list response\nbody: cut"), OSError("reset")], ids=["delta-rs", "Arrow"])
def test_a_store_that_fails_in_the_vacuum_fails_that_step_alone(
    trickle: Trickle, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """When a bucket cut off a list, the maintenance ended with a traceback of delta-rs."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(DeltaTable, "vacuum", fail)
    done = maintain(trickle.world.pipeline)
    (said,) = done.failed
    assert "could not be vacuumed" in said
    assert "\n" not in said
    assert done.main.after == 1
