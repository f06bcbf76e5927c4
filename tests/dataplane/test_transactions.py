"""The transactions of a handle are delta-rs' own, whatever became of the log; and they are read once."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.deltalog.delta_log import DeltaLog
from rota.deltalog.kept_tables import KEPT
from rota.ledger.change import read_back
from rota.ledger.values import Batch
from tests.dataplane.delta_tables import ledger
from tests.dataplane.transactions import IDS, SCHEMA, commit_moves


def checkpoint(table: Path) -> None:
    DeltaTable(table).create_checkpoint()


def in_parts(table: Path) -> None:
    """The newest checkpoint in two parts, as others write them."""
    checkpoint(table)
    newest = max((table / "_delta_log").glob("*.checkpoint.parquet"), default=None)
    if newest is None:
        return  # this version is in parts already: delta-rs writes no other
    rows = pq.read_table(newest)
    half = rows.num_rows // 2
    for number, part in enumerate((rows.slice(0, half), rows.slice(half)), 1):
        pq.write_table(part, newest.with_name(newest.name.replace("parquet", f"{number:010}.{2:010}.parquet")))
    newest.unlink()
    hint = table / "_delta_log/_last_checkpoint"
    if not hint.exists():
        return  # whoever reads it looks for a checkpoint
    said = json.loads(hint.read_text())
    hint.write_text(json.dumps({k: v for k, v in said.items() if k in ("version", "size")} | {"parts": 2}))


def shorten(table: Path) -> None:
    """As a cleanup of the log does: commits below its checkpoint go."""
    hint = table / "_delta_log/_last_checkpoint"
    base = json.loads(hint.read_text())["version"] if hint.exists() else 0
    for commit in (table / "_delta_log").glob("*.json"):
        if re.fullmatch(r"\d{20}\.json", commit.name) and int(commit.stem) < base:
            commit.unlink()


def restore(table: Path) -> None:
    handle = DeltaTable(table)
    if (table / f"_delta_log/{handle.version() - 1:020}.json").exists() and handle.version() > 1:
        handle.restore(handle.version() - 1)


OTHERS: list[Callable[[Path], object]] = [
    checkpoint,
    lambda table: (table / "_delta_log/_last_checkpoint").unlink(missing_ok=True),
    lambda table: DeltaTable(table).alter.set_table_properties({"delta.checkpointInterval": "3"}),
    lambda table: DeltaTable(table).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 seconds"}, raise_if_not_exists=False
    ),
    lambda table: write_deltalake(table, pa.table({"n": [1]}), mode="append"),
    lambda table: DeltaTable(table).optimize.compact(),
    in_parts,
    shorten,
    restore,
]
MOVES = st.lists(st.tuples(st.integers(0, len(IDS) - 1), st.integers(0, 2**63 - 1)), min_size=1, max_size=4)
STEPS = st.lists(
    st.one_of(MOVES, st.sampled_from(OTHERS), st.tuples(MOVES, st.sampled_from([1, 2**42]))), min_size=1, max_size=14
)


@settings(max_examples=30)
@given(STEPS)
@example([[(0, 0)], ([(0, 0)], 1), checkpoint, in_parts])  # a process goes on from a checkpoint that is gone
def test_they_are_those_of_delta_rs_at_every_version(steps: list[object]) -> None:
    with TemporaryDirectory() as folder:
        table = Path(folder) / "main"
        DeltaLog(str(table)).create(SCHEMA)
        for step in steps:
            if callable(step):
                step(table)
            elif isinstance(step, tuple):
                commit_moves(table, *step)
            else:
                commit_moves(table, step)  # type: ignore[arg-type]
            theirs = DeltaTable(table)
            for begins in (False, True):  # a process that goes on, and one that begins
                if begins:
                    KEPT.clear()
                ours = DeltaLog(str(table)).open()
                assert ours
                for one in [*IDS, "no", "nobody's"]:
                    assert ours.transaction(one) == theirs.transaction_version(one), one
            assert read_back(ours, 4) == theirs.history(4)


def test_a_log_of_a_known_shape_is_read_here(tmp_path: Path) -> None:
    log = DeltaLog(str(tmp_path))
    log.create(SCHEMA)
    for number in range(3):
        commit_moves(tmp_path, [(0, number)])
        assert log.read_state(number + 1).transactions == {IDS[0]: number}
    for more in (in_parts, shorten):
        more(tmp_path)
        assert log.read_state(3).transactions == {IDS[0]: 2}
    (
        tmp_path / "_delta_log/_last_checkpoint"
    ).unlink()  # and one part of two of a checkpoint that its writer did not end
    pq.write_table(pa.table({"n": [1]}), tmp_path / f"_delta_log/{3:020}.checkpoint.{1:010}.{3:010}.parquet")
    commit_moves(tmp_path, [(1, 5)])
    assert log.read_state(4).transactions == {IDS[0]: 2, IDS[1]: 5}
    assert log.read_state(3).transactions == {IDS[0]: 2}, "never of another version"
    assert log.read_state(2).transactions is None, "its commits are gone"
    commit_moves(tmp_path, [(1, 6)], int(time.time() * 1000))
    assert log.read_state(5).transactions is None, "it may expire"


def test_a_handle_reads_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 300,000 files delta-rs takes 14 ms for each id: 42 s for a look at 1,000 partitions."""
    table, asked, read = ledger(tmp_path), list[str](), list[int]()
    real = DeltaLog.read_state
    monkeypatch.setattr(DeltaLog, "read_state", lambda log, at: read.append(at) or real(log, at))
    monkeypatch.setattr(DeltaTable, "transaction_version", lambda _, one: asked.append(one))
    partitions = tuple(f"p:{i}" for i in range(50))
    claimed = table.claim(dict.fromkeys(partitions, 1), dict.fromkeys(partitions, 0))
    assert table.read_positions(partitions)["p:7"].offset == 0
    table.commit(claimed, Batch("c", "r", "", "", 0, dict.fromkeys(partitions, (0, 1))))
    assert not asked
    assert read == [-1, 0], "there was none; and then added up"


def test_a_version_speaks_of_where_it_is_whatever_went_on(tmp_path: Path) -> None:
    log = DeltaLog(str(tmp_path))
    first = log.create(SCHEMA)
    commit_moves(tmp_path, [(0, 7)])
    assert (first.number, first.transaction(IDS[0])) == (0, None)
    newest = log.open()
    assert newest
    assert (newest.number, newest.transaction(IDS[0])) == (1, 7)
