"""Small files are put together, and nothing else changes: no row, no offset, no run that waits or fails for it."""

import datetime
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.delta.parquet_files import ParquetFiles
from rota.dataplane.delta.tables import open_table
from rota.errors import Fenced
from rota.ledger import compaction
from rota.ledger.compaction import EACH, EVERY, FEW, LARGE, ONCE, compact, is_due
from rota.ledger.replacing import replace_rows
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.delta_tables import META, again, batch, expect_rows, fill, ledger
from tests.dataplane.world import World

LONG = "p-" + "long" * 31


def files(table: Path) -> int:
    return len(DeltaTable(table).file_uris())


def test_many_small_batches_leave_few_files(tmp_path: Path) -> None:
    """As runs do. Two hundred and fifty left 238 files."""
    table, most = ledger(tmp_path), 0
    for _ in range(40):
        claimed = table.claim({"p": 5}, {"p": 0})
        if is_due(table.commit(claimed, batch(table, claimed)).version):
            compact(table)
        most = max(most, files(Path(table.location)))
    assert most <= EVERY + FEW
    assert damage(Path(table.location), expect_rows(p=80)) == NO_DAMAGE
    replace_rows(table, again(table, 3, 41))
    assert damage(Path(table.location), expect_rows(p=80)) == NO_DAMAGE
    assert not table.find_foreign_commits(["p"])


@given(st.integers(0, EVERY), st.integers(1, 2))
def test_the_run_that_looks_is_met_also_where_each_commit_follows_a_claim(first: int, step: int) -> None:
    assert sum(is_due(version) for version in range(first, first + EVERY * step, step)) == 1


def test_what_began_before_goes_through_and_a_zombie_is_fenced(tmp_path: Path) -> None:
    table = fill(tmp_path, 10, "p", "q", token=5)
    zombie, live = table.claim({"p": 5}, {"p": 0}), table.claim({"q": 5}, {"q": 0})
    late, made = batch(table, zombie), batch(table, live)
    newer = table.claim({"p": 6}, {"p": 0})
    before = log(Path(table.location)).transactions
    assert compact(table) == 19
    assert log(Path(table.location)).transactions == before
    table.commit(live, made)
    with pytest.raises(Fenced):
        table.commit(zombie, late)
    table.commit(newer, batch(table, newer))
    assert damage(Path(table.location), expect_rows(p=22, q=22)) == NO_DAMAGE


def test_rows_of_any_partition_are_found_again_by_a_replay(tmp_path: Path) -> None:
    """By the bounds in the log, which writers shorten where ids are long."""
    table = fill(tmp_path, 10, "p", LONG, token=5)
    compact(table)
    for partition in ("p", LONG):
        claimed = table.claim({partition: 5}, {partition: 0})
        made = batch(table, replace(claimed, offsets={partition: 4}))
        replace_rows(table, made)
    assert damage(Path(table.location), expect_rows(**{"p": 20, LONG: 20})) == NO_DAMAGE


def test_what_fails_costs_the_run_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = fill(tmp_path, 10, token=5)
    lost = log(Path(table.location)).files[3]
    shutil.move(lost, tmp_path / "away")
    assert compact(table) == 0
    assert "not_compacted=" in caplog.text
    shutil.move(tmp_path / "away", lost)
    assert compact(ledger(tmp_path / "no table")) == 0
    assert damage(Path(table.location), expect_rows(p=20)) == NO_DAMAGE


def test_whoever_was_overtaken_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, real = fill(tmp_path, 10, token=5), compaction.choose_target

    def meanwhile(sizes: Any) -> int:
        replace_rows(table, again(table, 1, 4))
        return real(sizes)

    monkeypatch.setattr(compaction, "choose_target", meanwhile)
    assert compact(table) == 0
    assert damage(Path(table.location), expect_rows(p=20)) == NO_DAMAGE


def int96(file: Path) -> None:
    """As Spark writes with outputTimestampType=INT96: here a time that nanoseconds since 1970 cannot hold."""
    at = pa.table({"at": [datetime.datetime(2000, 1, 1)]}, pa.schema([("at", pa.timestamp("ns"))]))
    pq.write_table(at, file, use_deprecated_int96_timestamps=True, compression="none", use_dictionary=False)
    then, year_1500 = ((2_451_545).to_bytes(4, "little"), (2_269_000).to_bytes(4, "little"))
    assert then in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(then, year_1500))


def old_calendar(file: Path) -> None:
    """As Spark writes with datetimeRebaseModeInWrite=LEGACY."""
    at = pa.table({"at": [datetime.datetime(1500, 1, 1)]}, pa.schema([("at", pa.timestamp("us", "UTC"))]))
    pq.write_table(at.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), file)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
@pytest.mark.parametrize("old", [int96, old_calendar])
def test_times_that_delta_rs_would_change_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: Callable[[Path], None], guarded: bool
) -> None:
    if not guarded:
        monkeypatch.setattr(ParquetFiles, "is_plain", lambda *_: True)
    kind = pa.schema([("at", pa.timestamp("us", "UTC"))])
    for _ in range(FEW):
        write_deltalake(tmp_path, pa.table({"at": [datetime.datetime(2000, 1, 1)]}, kind), mode="append")
    old(file := tmp_path / "old.parquet")
    table, added = DeltaTable(tmp_path), AddAction(file.name, file.stat().st_size, {}, 0, True, '{"numRecords": 1}')
    table.create_write_transaction([added], "append", table.schema(), partition_by=[])

    def said() -> list[object]:
        """What a reader of Spark's takes it for: the time, and by which calendar."""
        found = []
        for uri in DeltaTable(tmp_path).file_uris():
            file = pq.ParquetFile(uri, coerce_int96_timestamp_unit="us")
            by = b"org.apache.spark.legacyDateTime" in (file.metadata.metadata or {})
            found += [(at.replace(tzinfo=None), by) for at in file.read()["at"].to_pylist()]
        return sorted(found)

    before = said()
    assert before[0] < (datetime.datetime(1600, 1, 1), False)
    compact(open_table(tmp_path, "g", META))
    assert (said() == before) == guarded


@given(st.lists(st.integers(1, 2 * LARGE), max_size=300))
def test_a_look_rewrites_little_and_the_smallest(sizes: list[int]) -> None:
    target = compaction.choose_target(pa.chunked_array([pa.array(sizes, pa.int64())]))
    taken = [size for size in sizes if size <= target]
    assert not target or len(taken) >= FEW
    assert sum(taken) <= ONCE + EACH * len(taken)
    assert target <= LARGE


def test_the_bounds_are_met_where_every_file_is_small() -> None:
    assert compaction.choose_target(pa.chunked_array([pa.array([20_000] * 16_000)])) == LARGE
    assert compaction.choose_target(pa.chunked_array([pa.array([30 << 20] * 300_000)])) == 0


def test_a_run_puts_together_what_runs_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "EVERY", 3)
    monkeypatch.setattr(compaction, "FEW", 2)
    world.give("a", "b")
    for number in range(4):
        world.rows("a", f"{number}", 3, first=3 * number)
        world.rows("b", f"{number}", 2)
        world.land("b", f"bad{number}", ["no JSON", *('{"n": 1}' for _ in range(9))])
        world.until_idle("a", "b")
    main, aside = world.table / "main", world.table / "quarantine"
    assert any(c["operation"] == "OPTIMIZE" for c in log(main).commits)
    assert any(c["operation"] == "OPTIMIZE" for c in log(aside).commits)
    rows = log(main).rows()
    assert sorted(r["n"] for r in rows if r["_partition"] == "p:a") == list(range(12))  # type: ignore[type-var]
    assert len([r for r in rows if r["_partition"] == "p:b"]) == 4 * 2 + 4 * 9
    assert len(log(aside).rows()) == 4
