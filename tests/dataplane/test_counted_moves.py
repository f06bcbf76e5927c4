"""Commits of other programs that state that they only moved rows between files are counted, reported, and undone.

deltalake 1.6.6 commits an OPTIMIZE although another OPTIMIZE replaced its files: then their rows are in the table twice.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from rota.deltalog.port import Move
from rota.errors import ForeignTable
from rota.ledger.ledger import Ledger
from rota.ledger.merging import A_NIGHT, merge
from rota.ledger.replacing import replace_rows
from tests.dataplane.delta_tables import again, append_batch, batch, expect_rows, fill

BATCHES = 6
Act = Callable[[DeltaTable], object]
OPTIMIZE: dict[str, Act] = {
    "OPTIMIZE": lambda table: table.optimize.compact(),
    "ZORDER": lambda table: table.optimize.z_order(["_offset"]),
}
UNDO, REPLAY = "To undo it, type: rota adopt", "a replay of its offsets brings back rows and takes second copies away"


def count_rows(table: Ledger) -> dict[str, dict[int, int]]:
    """Partition -> offset -> rows, as deltalake reads them."""
    found: dict[str, Counter[int]] = {}
    for row in DeltaTable(table.location).to_pyarrow_table().to_pylist():
        found.setdefault(row["_partition"], Counter())[row["_offset"]] += 1
    return {p: dict(of) for p, of in found.items()}


def double(table: Ledger, name: str = "OPTIMIZE", later: int = 0) -> None:
    """Two OPTIMIZE of deltalake begin; the second sees `later` more batches. Both commit."""
    first = DeltaTable(table.location)
    for _ in range(later):
        append_batch(table)
    second = DeltaTable(table.location)
    OPTIMIZE["OPTIMIZE"](first)
    OPTIMIZE[name](second)


def double_twice(table: Ledger) -> None:
    """Commit a batch between the two that was claimed before them."""
    claimed = table.claim({"p": 1}, {"p": 0})
    double(table)
    table.commit(claimed, batch(table, claimed))
    double(table)


def write_move(table: Ledger, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """An OPTIMIZE whose commit another program wrote with other actions."""
    main = Path(table.location)
    DeltaTable(main).optimize.compact()
    (commit,) = sorted((main / "_delta_log").glob("*.json"))[-1:]
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    commit.write_text("\n".join(map(json.dumps, change(actions))))


def without_stats(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{kind: {**body, "stats": None} if kind == "add" else body for kind, body in one.items()} for one in actions]


def without_a_remove(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = next(one for one in actions if "remove" in one)
    return [one for one in actions if one is not first]


def without_the_add(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in actions if "add" not in one]


CASES: dict[str, Callable[[Ledger], object]] = {
    "OPTIMIZE": double,
    "ZORDER": lambda table: double(table, "ZORDER"),
    "OPTIMIZE of more": lambda table: double(table, later=2),
    "ZORDER of more": lambda table: double(table, "ZORDER", later=2),
    "two of them": double_twice,
    "no count": lambda table: write_move(table, without_stats),
    "a file stays": lambda table: write_move(table, without_a_remove),
    "rows are gone": lambda table: write_move(table, without_the_add),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_reported_and_rota_adopt_undoes_it(tmp_path: Path, name: str) -> None:
    table = fill(tmp_path, BATCHES)
    CASES[name](table)
    said = table.find_foreign_commits(["p"])["p"]
    assert said.endswith(UNDO)
    assert table.explain_harm() == said, "rota status and rota check report it"
    for act in (append_batch, lambda one: merge(one, A_NIGHT)):
        with pytest.raises(ForeignTable, match=UNDO):
            act(table)
    table.adopt()
    end = table.read_positions(("p",))["p"].offset
    assert count_rows(table) == expect_rows(p=end)  # type: ignore[arg-type]
    assert table.adopt() == 1, "nothing is left to do"
    append_batch(table)
    assert count_rows(table) == expect_rows(p=end + 2)  # type: ignore[operator]
    assert not table.explain_harm()


@pytest.mark.parametrize("name", ["OPTIMIZE", "ZORDER"])
def test_without_the_count_rows_are_there_twice_and_nothing_reports_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Move, "keeps_rows", True)
    table = fill(tmp_path, BATCHES)
    double(table, name)
    append_batch(table)
    assert (table.find_foreign_commits(["p"]), table.explain_harm()) == ({}, "")
    assert sum(count_rows(table)["p"].values()) == 2 * 2 * BATCHES + 2


@pytest.mark.parametrize("name", ["a file stays", "OPTIMIZE of more"])
def test_what_cannot_be_undone_is_reported_and_a_replay_repairs_it(tmp_path: Path, name: str) -> None:
    """A file that must come back was deleted by a VACUUM of another program."""
    table = fill(tmp_path, BATCHES)
    CASES[name](table)
    DeltaTable(table.location).vacuum(0, dry_run=False, enforce_retention_duration=False)
    said = table.find_foreign_commits(["p"])["p"]
    assert REPLAY in said
    assert UNDO not in said
    table.adopt()
    end = table.read_positions(("p",))["p"].offset or 0
    replace_rows(table, again(table, 0, end))
    append_batch(table)
    assert count_rows(table) == expect_rows(p=end + 2)


def test_a_move_is_read_once_and_one_that_kept_its_rows_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = fill(tmp_path, BATCHES)
    DeltaTable(table.location).optimize.compact()
    table.find_foreign_commits(["p"])
    monkeypatch.setattr("rota.deltalog.past.list_moved", None)
    assert not table.find_foreign_commits(["p"])
    append_batch(table)
    assert count_rows(table) == expect_rows(p=2 * BATCHES + 2)


def test_what_a_log_cannot_tell_any_more_is_reported(tmp_path: Path) -> None:
    """The commit before the move is missing in the log's folder, and no checkpoint is that old."""
    table = fill(tmp_path, BATCHES)
    DeltaTable(table.location).optimize.compact()
    DeltaTable(table.location).create_checkpoint()
    for commit in sorted((Path(table.location) / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert REPLAY in table.find_foreign_commits(["p"])["p"]


ROWS = st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers(0, 3))


@given(before=ROWS, adds=ROWS, removes=st.frozensets(st.sampled_from("abcdef")))
def test_counts_agree_only_where_the_table_has_as_many_rows(
    before: dict[str, int | None], adds: dict[str, int | None], removes: frozenset[str]
) -> None:
    """Compare with a model of the table: a set of files with their rows."""
    table = dict(before)
    for path in removes:
        table.pop(path, None)
    table |= adds
    touched = removes | adds.keys()
    known = {path: rows for path, rows in before.items() if path in touched}
    unknown = None in (*known.values(), *adds.values())
    same = not unknown and sum(before[p] or 0 for p in known) == sum(table[p] or 0 for p in touched & table.keys())
    assert Move(adds, removes, known).keeps_rows == (same and removes <= before.keys())
