"""Old commits are packed: every word and every transaction stays, for rota and for delta-rs, whatever dies on the way."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.deltalog import packing, packs
from rota.deltalog.delta_log import DeltaLog
from rota.deltalog.kept_tables import KEPT
from rota.errors import EnvironmentFailed
from rota.ledger.change import read_back
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.delta_tables import append_batch, batch, expect_rows, fill
from tests.dataplane.transactions import IDS, SCHEMA, commit_moves

SOON = 2**40  # no commit is too young
SMALL = 4  # commits of a pack
MOVES = st.lists(st.tuples(st.integers(0, len(IDS) - 1), st.integers(0, 2**63 - 1)), min_size=1, max_size=4)
CHECKPOINT, PACK, AS_IF_KILLED = "checkpoint", "pack", "as if killed"
STEPS = st.lists(st.one_of(MOVES, MOVES, st.sampled_from([CHECKPOINT, PACK, AS_IF_KILLED])), max_size=30)


class Killed(BaseException):
    """The process is gone."""


def make_log(table: Path) -> DeltaLog:
    log = DeltaLog(str(table))
    log.create(SCHEMA, {"delta.logRetentionDuration": "interval 36500 days"})
    return log


def list_json(table: Path) -> list[int]:
    return sorted(int(one.stem) for one in (table / "_delta_log").glob("*.json"))


def pack_and_die(log: DeltaLog, table: Path, at: int) -> None:
    """Dies before it deletes the commit of that number among those that go."""
    real, left = DeltaLog.delete_commit, [at]

    def delete(one: DeltaLog, version: int) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        real(one, version)

    with patch.object(DeltaLog, "delete_commit", delete):
        with suppress(Killed):
            packing.pack(log, SOON)


def find_lost(table: Path, said: list[dict[str, Any]], numbers: dict[str, int]) -> list[str]:
    """What of the words and transactions is not there any more: by a process of rota's that begins, and by delta-rs."""
    KEPT.clear()
    newest = DeltaLog(str(table)).open()
    assert newest
    lost = [name for name, number in numbers.items() if newest.transaction(name) != number]
    lost += [name for name, number in numbers.items() if DeltaTable(table).transaction_version(name) != number]
    return lost + ([] if read_back(newest) == said else ["words"])


@settings(max_examples=30)
@given(STEPS)
def test_every_word_and_every_transaction_stays(steps: list[object]) -> None:
    with TemporaryDirectory() as folder, patch.object(packs, "PACKED", SMALL):
        table = Path(folder) / "main"
        log = make_log(table)
        numbers: dict[str, int] = {}
        for number, step in enumerate(steps):
            if step == CHECKPOINT:
                DeltaTable(table).create_checkpoint()
            elif step == PACK:
                packing.pack(log, SOON)
            elif step == AS_IF_KILLED:
                pack_and_die(log, table, number % SMALL)
            else:
                assert isinstance(step, list)
                commit_moves(table, step)
                numbers |= {IDS[i]: to for i, to in reversed(step)}
            newest = log.open()
            assert newest
            said = [dict(log.read_info(v)) for v in range(newest.number, -1, -1)]
            assert all(said)
            assert not find_lost(table, said, numbers)


def test_the_folder_of_the_log_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACKED", SMALL)
    log, most = make_log(tmp_path), 0
    for number in range(60):
        commit_moves(tmp_path, [(number % len(IDS), number)])
        if number % 5 == 4:
            DeltaTable(tmp_path).create_checkpoint()
            packing.pack(log, SOON)
            most = max(most, len(list_json(tmp_path)))
    assert most <= 2 * 5 + SMALL
    assert packs.list_packs(log.store) == list(range(60 // SMALL - 2))


def test_whoever_writes_the_commits_back_has_every_version_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "PACKED", SMALL)
    table = fill(tmp_path, 5)
    main = Path(table.location)
    before = {one.name: one.read_bytes() for one in (main / "_delta_log").glob("*.json")}
    rows = {version: DeltaTable(main, version=version).count() for version in range(2, 7)}
    for _ in range(2):
        DeltaTable(main).create_checkpoint()
        append_batch(table)
    log = DeltaLog(str(main))
    assert packing.pack(log, SOON) == SMALL
    assert damage_now(main, 14, before) == NO_DAMAGE
    with pytest.raises(DeltaError):
        DeltaTable(main, version=3)
    for number in packs.list_packs(log.store):
        for version, commit in packs.read_pack(log.store, packs.name_pack(number)).items():
            (main / f"_delta_log/{version:020}.json").write_bytes(commit)
    assert before.items() <= {one.name: one.read_bytes() for one in (main / "_delta_log").glob("*.json")}.items()
    assert {version: DeltaTable(main, version=version).count() for version in range(2, 7)} == rows


def damage_now(main: Path, end: int, before: dict[str, bytes]) -> dict[str, int]:
    """By a checker that reads JSON alone: with the commits that were there."""
    missing = [name for name in before if not (main / "_delta_log" / name).exists()]
    for name in missing:
        (main / "_delta_log" / name).write_bytes(before[name])
    try:
        return damage(main, expect_rows(p=end))
    finally:
        for name in missing:
            (main / "_delta_log" / name).unlink()


def test_what_is_young_or_needed_or_not_known_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACKED", SMALL)
    log = make_log(tmp_path)
    for number in range(9):
        commit_moves(tmp_path, [(0, number)])
    DeltaTable(tmp_path).create_checkpoint()
    assert packing.pack(log, SOON) == 0, "there is one checkpoint"
    commit_moves(tmp_path, [(0, 9)])
    DeltaTable(tmp_path).create_checkpoint()
    assert packing.pack(log, time.time() - 60) == 0, "they are young"
    first = tmp_path / f"_delta_log/{0:020}.json"
    kept = first.read_bytes()
    first.unlink()
    assert packing.pack(log, SOON) == 0, "somebody shortened it"
    first.write_bytes(kept)
    assert packing.pack(log, SOON) == 2 * SMALL


def test_each_version_of_the_last_day_is_read_by_delta_alone_also_where_a_checkpoint_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed before it made the one that comes after the last old commit: two versions could not be read."""
    monkeypatch.setattr(packs, "PACKED", SMALL)
    log = make_log(tmp_path)
    for number in range(1, 10):
        commit_moves(tmp_path, [(0, number)])
        if number in (2, 6, 9):
            DeltaTable(tmp_path).create_checkpoint()
    for version in range(SMALL):
        os.utime(tmp_path / f"_delta_log/{version:020}.json", (0, 0))
    assert packing.pack(log, time.time() - 60) == 0
    assert [DeltaTable(tmp_path, version=version).version() for version in range(2, 10)] == list(range(2, 10))
    for version in range(7):
        os.utime(tmp_path / f"_delta_log/{version:020}.json", (0, 0))
    assert packing.pack(log, time.time() - 60) == SMALL
    assert [DeltaTable(tmp_path, version=version).version() for version in range(6, 10)] == list(range(6, 10))


def test_a_consumer_goes_on_with_a_version_that_it_opened_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "PACKED", SMALL)
    table = fill(tmp_path, 8)
    main = Path(table.location)
    DeltaTable(main).create_checkpoint()
    append_batch(table)
    DeltaTable(main).create_checkpoint()
    before = {one.name: one.read_bytes() for one in (main / "_delta_log").glob("*.json")}
    claimed = table.claim({"p": 1}, {"p": 0})
    assert packing.pack(DeltaLog(str(main)), SOON) == 2 * SMALL
    table.commit(claimed, batch(table, claimed))
    assert damage_now(main, 20, before) == NO_DAMAGE
    assert {p for one in table.read_log() for p in one.ranges} == {"p"}
    assert len(table.read_log()) == 1 + 10


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_checkpoint_that_lost_a_transaction_keeps_the_log_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """As another program's does where transactions expire."""
    monkeypatch.setattr(packs, "PACKED", SMALL)
    log, numbers = make_log(tmp_path), dict[str, int]()
    for number in range(len(IDS)):
        commit_moves(tmp_path, [(number, 7)])
        numbers[IDS[number]] = 7
    for _ in range(2):
        DeltaTable(tmp_path).create_checkpoint()
        commit_moves(tmp_path, [(len(IDS) - 1, 7)])
    newest = log.open()
    assert newest
    said = read_back(newest)
    for checkpoint in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"):
        rows = pq.read_table(checkpoint)
        keep = [not (txn and txn["appId"] == IDS[0]) for txn in rows["txn"].to_pylist()]
        pq.write_table(rows.filter(pa.array(keep)), checkpoint)
    if guarded:
        with pytest.raises(
            EnvironmentFailed, match=r"does not have .* as the log says it \(7\). The log was left whole"
        ):
            packing.pack(log, SOON)
    else:
        monkeypatch.setattr(packing, "check_transactions", lambda *_: None)
        packing.pack(log, SOON)
    for checkpoint in (tmp_path / "_delta_log").glob("*check*"):
        checkpoint.unlink()  # whoever mends it has the log
    if guarded:
        assert not find_lost(tmp_path, said, numbers)
    else:
        assert 0 not in list_json(tmp_path), "the log alone does not say it any more"


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_pack_that_is_not_what_it_should_be_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    monkeypatch.setattr(packs, "PACKED", SMALL)
    log = make_log(tmp_path)
    for number in range(9):
        commit_moves(tmp_path, [(0, number)])
        DeltaTable(tmp_path).create_checkpoint()
    newest = log.open()
    assert newest
    said, real = read_back(newest), packs.write_pack
    torn = [json.dumps({"commitInfo": {}}).encode()] * SMALL
    monkeypatch.setattr(packs, "write_pack", lambda store, number, _: real(store, number, torn))
    if guarded:
        with pytest.raises(EnvironmentFailed, match="does not have what the log has"):
            packing.pack(log, SOON)
        assert not find_lost(tmp_path, said, {IDS[0]: 8})
    else:
        there = {version: log.read_commit(version) for version in range(9)}
        monkeypatch.setattr(packs, "read_pack", lambda *_: there)
        packing.pack(log, SOON)
        monkeypatch.undo()
        monkeypatch.setattr(packs, "PACKED", SMALL)
        assert find_lost(tmp_path, said, {IDS[0]: 8}) == ["words"]
