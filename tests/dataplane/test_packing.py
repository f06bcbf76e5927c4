"""Old commits are packed: no byte and no transaction is lost. `histories` packs at random, and is killed in between."""

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rota.deltalog import packing, packs
from rota.deltalog.delta_log import DeltaLog
from rota.errors import EnvironmentFailed
from rota.ledger.change import read_back
from tests.dataplane.conformance.histories import IDS, SMALL, SOON, History, open_log
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.delta_tables import append_batch, batch, expect_rows, fill

GUARDED = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACKED", SMALL)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path / "main"), tmp_path / "main", interval=10**6)


def commit(history: History, numbers: range, *checkpoints: int) -> None:
    for number in numbers:
        history.set_by_delta_rs({IDS[0]: number})
        if number in checkpoints:
            history.checkpoint()


def read_json(main: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in (main / "_delta_log").glob("*.json")}


def make_old(history: History, versions: range) -> None:
    for version in versions:
        os.utime(history.folder / f"_delta_log/{version:020}.json", (0, 0))


def test_the_folder_of_the_log_stays_small(history: History) -> None:
    most = 0
    for start in range(0, 60, 5):
        commit(history, range(start, start + 5), start + 4)
        packing.pack(history.held, SOON)
        most = max(most, len(read_json(history.folder)))
    assert most <= 2 * 5 + SMALL
    assert packs.list_packs(history.held.store) == list(range((60 - 5) // SMALL))


def test_the_commits_of_the_packs_make_every_version_again(tmp_path: Path) -> None:
    table = fill(tmp_path, 5)
    main, log = Path(table.location), DeltaLog(table.location)
    before, rows = read_json(main), {version: DeltaTable(main, version=version).count() for version in range(2, 7)}
    for _ in range(2):
        DeltaTable(main).create_checkpoint()
        append_batch(table)
    assert packing.pack(log, SOON) == 2 * SMALL
    with pytest.raises(DeltaError):
        DeltaTable(main, version=3)
    for number in packs.list_packs(log.store):
        for version, body in packs.read_pack(log.store, packs.name_pack(number)).items():
            (main / f"_delta_log/{version:020}.json").write_bytes(body)
    assert before.items() <= read_json(main).items()
    assert damage(main, expect_rows(p=14)) == NO_DAMAGE
    assert {version: DeltaTable(main, version=version).count() for version in range(2, 7)} == rows


def test_what_is_young_or_needed_or_not_known_stays(history: History) -> None:
    commit(history, range(9), 8)
    assert packing.pack(history.held, SOON) == 0, "there is one checkpoint"
    commit(history, range(9, 10), 9)
    assert packing.pack(history.held, time.time() - 60) == 0, "they are young"
    first = history.folder / f"_delta_log/{0:020}.json"
    body = first.read_bytes()
    first.unlink()
    assert packing.pack(history.held, SOON) == 0, "another program shortened it"
    first.write_bytes(body)
    assert packing.pack(history.held, SOON) == 3 * SMALL


def test_delta_alone_reads_each_version_of_the_last_day_also_if_a_checkpoint_is_missing(history: History) -> None:
    """A run was killed before it wrote the checkpoint after the last old commit: two versions were unreadable."""
    commit(history, range(1, 10), 1, 6, 9)
    make_old(history, range(4))
    assert packing.pack(history.held, time.time() - 60) == 0
    assert [history.held.load(version).version() for version in range(1, 10)] == list(range(1, 10))
    make_old(history, range(7))
    assert packing.pack(history.held, time.time() - 60) == 2 * SMALL
    assert [history.held.load(version).version() for version in range(6, 10)] == list(range(6, 10))


def test_a_run_commits_on_a_version_that_it_opened_before(tmp_path: Path) -> None:
    table = fill(tmp_path, 8)
    main = Path(table.location)
    DeltaTable(main).create_checkpoint()
    append_batch(table)
    DeltaTable(main).create_checkpoint()
    before = read_json(main)
    claimed = table.claim({"p": 1}, {"p": 0})
    assert packing.pack(DeltaLog(table.location), SOON) == 3 * SMALL
    table.commit(claimed, batch(table, claimed))
    assert len(table.read_log()) == 1 + 10
    for name, body in before.items():
        (main / "_delta_log" / name).write_bytes(body)
    assert damage(main, expect_rows(p=20)) == NO_DAMAGE


@GUARDED
def test_a_checkpoint_that_lost_a_transaction_keeps_the_log_whole(
    history: History, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Another program writes such a checkpoint if transactions expire."""
    for name in IDS:
        history.set_by_delta_rs({name: 7})
    for _ in range(2):
        history.checkpoint()
        history.set_by_delta_rs({IDS[-1]: 7})
    for checkpoint in history.list_log("*.checkpoint.parquet"):
        rows = pq.read_table(checkpoint)
        keep = [not (txn and txn["appId"] == IDS[0]) for txn in rows["txn"].to_pylist()]
        pq.write_table(rows.filter(pa.array(keep)), checkpoint)
    if not guarded:
        monkeypatch.setattr(packing, "check_transactions", lambda *_: None)
    lost = r"does not have .* as the log has it \(7\). The log was left whole"
    with pytest.raises(EnvironmentFailed, match=lost) if guarded else nullcontext():
        packing.pack(history.held, SOON)
    for checkpoint in history.list_log("*check*"):
        checkpoint.unlink()  # an operator repairs it from the log
    assert (f"{0:020}.json" in read_json(history.folder)) == guarded
    if guarded:
        history.check()


@GUARDED
def test_a_pack_that_differs_from_the_log_takes_nothing(
    history: History, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    commit(history, range(9), *range(9))
    said, real = read_back(open_log(history.held)), packs.write_pack
    torn = [json.dumps({"commitInfo": {}}).encode()] * SMALL
    there = {version: history.held.read_commit(version) for version in range(9)}
    with monkeypatch.context() as patched:
        patched.setattr(packs, "write_pack", lambda store, number, _: real(store, number, torn))
        if not guarded:
            patched.setattr(packs, "read_pack", lambda *_: there)
        with pytest.raises(EnvironmentFailed, match="does not have what the log has") if guarded else nullcontext():
            packing.pack(history.held, SOON)
    assert (read_back(open_log(DeltaLog(history.held.location))) == said) == guarded
