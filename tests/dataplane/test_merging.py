"""Small files are merged in bounded steps, and nothing else changes: no row and no offset, and no run waits for it."""

import datetime
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.delta import parquet_files
from rota.dataplane.delta.parquet_files import ParquetFiles
from rota.dataplane.delta.tables import open_table
from rota.deltalog import delta_log
from rota.errors import Fenced
from rota.ledger import merging
from rota.ledger.ledger import Ledger
from rota.ledger.merging import (
    A_NIGHT,
    A_RUN,
    EVERY,
    FEW,
    Bound,
    Merged,
    choose_groups,
    is_due,
    merge,
    merge_beside_run,
    plan_groups,
)
from rota.ledger.replacing import replace_rows
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.delta_tables import META, again, batch, expect_rows, fill, ledger
from tests.dataplane.striking import strike_at
from tests.dataplane.world import World

TARGET = A_RUN.target
LONG = "p-" + "long" * 31


def count_files(table: Ledger) -> int:
    return len(DeltaTable(table.location).file_uris())


def as_files(sizes: list[int]) -> pa.Table:
    return pa.table({"path": [f"{i}" for i in range(len(sizes))], "size_bytes": pa.array(sizes, pa.int64())})


def test_many_small_batches_leave_few_files(tmp_path: Path) -> None:
    """As runs write them. 250 batches left 238 files."""
    table, most = ledger(tmp_path), 0
    for _ in range(40):
        claimed = table.claim({"p": 5}, {"p": 0})
        if is_due(table.commit(claimed, batch(table, claimed)).version):
            merge_beside_run(table)
        most = max(most, count_files(table))
    assert most <= EVERY + FEW
    assert damage(Path(table.location), expect_rows(p=80)) == NO_DAMAGE
    replace_rows(table, again(table, 3, 41))
    assert damage(Path(table.location), expect_rows(p=80)) == NO_DAMAGE
    assert not table.find_foreign_commits(["p"])


@given(st.integers(0, EVERY), st.integers(1, 2))
def test_the_run_that_looks_is_met_also_where_each_commit_follows_a_claim(first: int, step: int) -> None:
    assert sum(is_due(version) for version in range(first, first + EVERY * step, step)) == 1


def test_it_puts_them_together_a_bounded_amount_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = fill(tmp_path, 20, "p", "q", token=5)
    size = max(table.open().files()["size_bytes"].to_pylist())  # type: ignore[union-attr]
    monkeypatch.setattr(merging, "MANY", 2 * 10)
    seen = []
    while count_files(table) > FEW:
        seen.append(merge(table, Bound(10 * size, 1 << 30)))
        assert seen[-1].before <= 20
        assert damage(Path(table.location), expect_rows(p=40, q=40)) == NO_DAMAGE
        assert not table.find_foreign_commits(["p"])
    assert [one.left > 0 for one in seen][:2] == [True, False]
    assert merge(ledger(tmp_path / "no table"), A_NIGHT) == Merged()
    replace_rows(table, again(table, 3, 21))
    assert damage(Path(table.location), expect_rows(p=40, q=40)) == NO_DAMAGE


@given(st.lists(st.integers(1, 2 * TARGET), max_size=300))
def test_what_is_large_or_few_stays(sizes: list[int]) -> None:
    groups = plan_groups(as_files(sizes), TARGET)
    taken = [one["path"] for group in groups for one in group]
    assert len(set(taken)) == len(taken)
    for group in groups:
        of = [one["size_bytes"] for one in group]
        assert max(of) < TARGET // 2
        assert sum(of) <= TARGET
        assert len(of) >= FEW or (len(of) > 1 and sum(of) >= TARGET // 2)


@given(st.lists(st.integers(1, TARGET), min_size=1, max_size=200))
def test_it_comes_to_rest_with_few_small_files(sizes: list[int]) -> None:
    rounds = 0
    while groups := plan_groups(as_files(sizes), TARGET):
        gone = {int(one["path"]) for group in groups for one in group}
        sizes = [s for i, s in enumerate(sizes) if i not in gone]
        sizes += [sum(one["size_bytes"] for one in group) for group in groups]
        rounds += 1
    assert rounds <= 10
    assert sum(size < TARGET // 2 for size in sizes) < 2 * FEW


def test_a_consumer_beside_it_goes_through_and_a_zombie_is_fenced(tmp_path: Path) -> None:
    """Each commit happens in the middle of the other."""
    table = fill(tmp_path, 10, "p", "q", token=5)
    zombie, live = table.claim({"p": 5}, {"p": 0}), table.claim({"q": 5}, {"q": 0})
    late, made = batch(table, zombie), batch(table, live)
    newer = table.claim({"p": 6}, {"p": 0})

    def consume() -> None:
        claimed = table.claim({"q": 5}, {"q": 0})
        table.commit(claimed, batch(table, claimed))

    before = log(Path(table.location)).transactions
    with strike_at(ParquetFiles, "merge", consume, before=False):
        done = merge(table, A_NIGHT)
    assert (done.before, done.after, done.left) == (20, 1, 0)
    assert log(Path(table.location)).transactions == before | {"rota/g/q/offset": 22}
    with pytest.raises(Exception, match="offset of q moved"):
        table.commit(live, made)
    with pytest.raises(Fenced):
        table.commit(zombie, late)
    table.commit(newer, batch(table, newer))
    assert damage(Path(table.location), expect_rows(p=22, q=22)) == NO_DAMAGE


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_what_a_replay_replaced_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Without the comparison a replaced row is in the table again."""
    table = fill(tmp_path, 10, token=5)
    if not guarded:
        newest: Any = type(table.open())
        real = newest.append

        def forced(version: Any, draft: Any) -> None:
            fresh = table.open()
            there = {one["path"] for one in fresh.files().to_pylist()}  # type: ignore[union-attr]
            draft = merging.Draft(
                fresh, adds=draft.adds, removes={p: s for p, s in draft.removes.items() if p in there}
            )
            real(fresh, draft)

        monkeypatch.setattr(newest, "append", forced)

        def replay() -> None:
            monkeypatch.undo()
            replace_rows(table, again(table, 1, 4))
            monkeypatch.setattr(newest, "append", forced)
    else:

        def replay() -> None:
            replace_rows(table, again(table, 1, 4))

    with strike_at(ParquetFiles, "merge", replay, before=False):
        assert merge(table, A_NIGHT).after == (0 if guarded else 1)
    assert (damage(Path(table.location), expect_rows(p=20)) == NO_DAMAGE) == guarded


OPTIMIZE: dict[str, Callable[[DeltaTable], object]] = {
    "OPTIMIZE": lambda table: table.optimize.compact(),
    "ZORDER": lambda table: table.optimize.z_order(["_offset"]),
}


def without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: commits that move rows do not repeat the table's metadata."""
    real = delta_log.write_commit

    def plain(draft: Any, metadata: Any) -> bytes:
        lines = real(draft, metadata).split(b"\n")
        return b"\n".join(line for line in lines if not line.startswith(b'{"metaData"'))

    monkeypatch.setattr(delta_log, "write_commit", plain)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
@pytest.mark.parametrize("checkpoint", [True, False], ids=["checkpoint", "no checkpoint"])
@pytest.mark.parametrize("name", OPTIMIZE)
def test_deltalake_refuses_an_optimize_that_began_before_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, checkpoint: bool, guarded: bool
) -> None:
    """deltalake ignores removes with `dataChange: false`: without the repeated metadata it adds every merged row again."""
    if not guarded:
        without_metadata(monkeypatch)
    table = fill(tmp_path, 10, token=5)
    if checkpoint:
        DeltaTable(table.location).create_checkpoint()
        table = ledger(tmp_path)
    was = DeltaTable(table.location)
    assert merge(table, A_NIGHT).after == 1
    with pytest.raises(CommitFailedError, match="Metadata changed") if guarded else nullcontext():
        OPTIMIZE[name](was)
    now = DeltaTable(table.location)
    assert now.to_pyarrow_table().num_rows == (20 if guarded else 40)
    assert (str(now.metadata()), now.schema()) == (str(was.metadata()), was.schema()), "nothing new"


def test_a_batch_beside_a_merge_is_not_committed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = fill(tmp_path, 10, token=5)
    claimed = table.claim({"p": 5}, {"p": 0})
    made = batch(table, claimed)
    assert merge(table, A_NIGHT).after == 1
    monkeypatch.setattr(Ledger, "renew", None)
    assert table.commit(claimed, made).rows == {"p": 2}
    assert damage(Path(table.location), expect_rows(p=22)) == NO_DAMAGE


def test_columns_that_came_later_are_null_before(tmp_path: Path) -> None:
    table = fill(tmp_path, FEW, token=5)
    claimed = table.claim({"p": 5}, {"p": 0})
    table.commit(claimed, batch(table, claimed, n="long"))
    assert merge(table, A_NIGHT).after == 1
    assert damage(Path(table.location), expect_rows(p=2 * FEW + 2)) == NO_DAMAGE
    assert {row["n"] for row in log(Path(table.location)).rows()} == {None}


@given(st.lists(st.integers(1, TARGET), max_size=300))
def test_a_run_rewrites_little(sizes: list[int]) -> None:
    groups = plan_groups(as_files(sizes), TARGET)
    taken, left = choose_groups(groups, A_RUN)
    assert sorted(map(len, [*taken, *left])) == sorted(map(len, groups))
    files = [one for group in taken for one in group]
    assert sum(one["size_bytes"] for one in files) <= A_RUN.most + A_RUN.each * len(files)


def test_all_are_put_together_where_every_file_is_small() -> None:
    groups = plan_groups(as_files([20_000] * 16_000), TARGET)
    assert choose_groups(groups, A_RUN) == (groups, [])
    assert sum(map(len, groups)) == 16_000
    assert plan_groups(as_files([30 << 20] * 300_000), TARGET) == []


def test_rows_of_any_partition_are_found_again_by_a_replay(tmp_path: Path) -> None:
    """By the bounds in the log, which writers shorten if ids are long."""
    table = fill(tmp_path, 10, "p", LONG, token=5)
    assert merge(table, A_RUN).before == 20
    for partition in ("p", LONG):
        claimed = table.claim({partition: 5}, {partition: 0})
        made = batch(table, replace(claimed, offsets={partition: 4}))
        replace_rows(table, made)
    assert damage(Path(table.location), expect_rows(**{"p": 20, LONG: 20})) == NO_DAMAGE


def test_what_fails_costs_the_run_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = fill(tmp_path, 10, token=5)
    lost = log(Path(table.location)).files[3]
    shutil.move(lost, tmp_path / "away")
    assert merge_beside_run(table) == Merged()
    assert "not_merged=" in caplog.text
    shutil.move(tmp_path / "away", lost)
    assert merge_beside_run(ledger(tmp_path / "no table")) == Merged()
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
def test_times_that_a_new_file_would_change_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: Callable[[Path], None], guarded: bool
) -> None:
    if not guarded:
        monkeypatch.setattr(parquet_files, "is_plain", lambda _: True)
    table = DeltaTable.create(tmp_path, pa.schema([("at", pa.timestamp("us", "UTC"))]))
    files = [tmp_path / f"{number}.parquet" for number in range(FEW)]
    for file in files:
        old(file)
    added = [AddAction(file.name, file.stat().st_size, {}, 0, True, '{"numRecords": 1}') for file in files]
    table.create_write_transaction(added, "append", table.schema(), partition_by=[])

    def said() -> list[object]:
        """Return what Spark reads: the time, and by which calendar."""
        found = []
        for uri in DeltaTable(tmp_path).file_uris():
            file = pq.ParquetFile(uri, coerce_int96_timestamp_unit="us")
            by = b"org.apache.spark.legacyDateTime" in (file.metadata.metadata or {})
            found += [(at.replace(tzinfo=None), by) for at in file.read()["at"].to_pylist()]
        return sorted(found)

    before = said()
    assert before[0] < (datetime.datetime(1600, 1, 1), False)
    merge_beside_run(open_table(tmp_path, "g", META, editable=True))
    assert (said() == before) == guarded


def test_a_run_puts_together_what_runs_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "EVERY", 3)
    monkeypatch.setattr(merging, "FEW", 2)
    world.give("a", "b")
    for number in range(4):
        world.rows("a", f"{number}", 3, first=3 * number)
        world.rows("b", f"{number}", 2)
        world.land("b", f"bad{number}", ["no JSON", *('{"n": 1}' for _ in range(9))])
        world.until_idle("a", "b")
    main, aside = world.table / "main", world.table / "quarantine"
    assert [len(DeltaTable(table).file_uris()) < 4 for table in (main, aside)] == [True, True]
    rows = log(main).rows()
    assert sorted(r["n"] for r in rows if r["_partition"] == "p:a") == list(range(12))  # type: ignore[type-var]
    assert len([r for r in rows if r["_partition"] == "p:b"]) == 4 * 2 + 4 * 9
    assert len(log(aside).rows()) == 4
