"""The maintenance puts files together, so much in one run, and nothing else changes: for nobody beside it either."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.delta.parquet_files import ParquetFiles
from rota.errors import Fenced
from rota.ledger import merging
from rota.ledger.ledger import Ledger
from rota.ledger.merging import FEW, Merged, merge, plan_groups
from rota.ledger.replacing import replace_rows
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.delta_tables import again, batch, expect_rows, fill, ledger
from tests.dataplane.striking import strike_at


def count_files(table: Ledger) -> int:
    return len(DeltaTable(table.location).file_uris())


def as_files(sizes: list[int]) -> pa.Table:
    return pa.table({"path": [f"{i}" for i in range(len(sizes))], "size_bytes": pa.array(sizes, pa.int64())})


def test_it_puts_them_together_a_bounded_amount_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = fill(tmp_path, 20, "p", "q", token=5)
    size = max(table.open().files()["size_bytes"].to_pylist())  # type: ignore[union-attr]
    monkeypatch.setattr(merging, "TARGET", 10 * size)
    monkeypatch.setattr(merging, "MANY", 2 * 10)
    seen = []
    while count_files(table) > FEW:
        seen.append(merge(table))
        assert seen[-1].before <= 20
        assert damage(Path(table.location), expect_rows(p=40, q=40)) == NO_DAMAGE
        assert not table.find_foreign_commits(["p"])
    assert [one.left > 0 for one in seen][:2] == [True, False]
    assert merge(ledger(tmp_path / "no table")) == Merged()
    replace_rows(table, again(table, 3, 21))
    assert damage(Path(table.location), expect_rows(p=40, q=40)) == NO_DAMAGE


@given(st.lists(st.integers(1, 2 * merging.TARGET), max_size=300))
def test_what_is_large_or_few_stays(sizes: list[int]) -> None:
    groups = plan_groups(as_files(sizes))
    taken = [one["path"] for group in groups for one in group]
    assert len(set(taken)) == len(taken)
    for group in groups:
        of = [one["size_bytes"] for one in group]
        assert max(of) < merging.TARGET // 2
        assert sum(of) <= merging.TARGET
        assert len(of) >= FEW or (len(of) > 1 and sum(of) >= merging.TARGET // 2)


@given(st.lists(st.integers(1, merging.TARGET), min_size=1, max_size=200))
def test_it_comes_to_rest_with_few_small_files(sizes: list[int]) -> None:
    rounds = 0
    while groups := plan_groups(as_files(sizes)):
        gone = {int(one["path"]) for group in groups for one in group}
        sizes = [s for i, s in enumerate(sizes) if i not in gone]
        sizes += [sum(one["size_bytes"] for one in group) for group in groups]
        rounds += 1
    assert rounds <= 10
    assert sum(size < merging.TARGET // 2 for size in sizes) < 2 * FEW


def test_a_consumer_beside_it_goes_through_and_a_zombie_is_fenced(tmp_path: Path) -> None:
    """Each commit in the middle of the other."""
    table = fill(tmp_path, 10, "p", "q", token=5)
    zombie, live = table.claim({"p": 5}, {"p": 0}), table.claim({"q": 5}, {"q": 0})
    late, made = batch(table, zombie), batch(table, live)
    newer = table.claim({"p": 6}, {"p": 0})

    def consume() -> None:
        claimed = table.claim({"q": 5}, {"q": 0})
        table.commit(claimed, batch(table, claimed))

    before = log(Path(table.location)).transactions
    with strike_at(ParquetFiles, "merge", consume, before=False):
        done = merge(table)
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
    """Without its compare a row that was replaced is there again."""
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
        assert merge(table).after == (0 if guarded else 1)
    assert (damage(Path(table.location), expect_rows(p=20)) == NO_DAMAGE) == guarded


def test_columns_that_came_later_are_null_before(tmp_path: Path) -> None:
    table = fill(tmp_path, FEW, token=5)
    claimed = table.claim({"p": 5}, {"p": 0})
    table.commit(claimed, batch(table, claimed, n="long"))
    assert merge(table).after == 1
    assert damage(Path(table.location), expect_rows(p=2 * FEW + 2)) == NO_DAMAGE
    assert {row["n"] for row in log(Path(table.location)).rows()} == {None}
