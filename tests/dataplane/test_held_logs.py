"""A cached log reads only newer commits, and compares the same as a log that is opened again."""

import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rota.deltalog import delta_log, packing, packs
from rota.deltalog.delta_log import DeltaLog
from rota.deltalog.log_files import LogFiles
from rota.deltalog.port import Draft, Moved
from rota.errors import EnvironmentFailed
from rota.ledger.change import read_back
from rota.ledger.schema import FIRST
from rota.ledger.values import Batch
from rota.local.bucket import BucketServer
from tests.dataplane.conformance.histories import IDS, SOON, History, open_log
from tests.dataplane.conformance.log_suite import append, make_file
from tests.dataplane.delta_tables import ledger

LAST = 12  # commits of a log without a checkpoint
GUARDED = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])


class Place:
    """A cached log, the folder of its files, and another process that writes to it."""

    def __init__(self, location: str, folder: Path) -> None:
        self.log, self.elsewhere, self.folder = DeltaLog(location), DeltaLog(location), folder
        self.log.create(FIRST, {"delta.checkpointInterval": "1000"})

    def copy(self) -> Path:
        shutil.copytree(self.folder, self.folder.with_name("copy"))
        return self.folder.with_name("copy")

    def bring_back(self) -> None:
        """Replace the table by the copy."""
        shutil.rmtree(self.folder)
        self.folder.with_name("copy").rename(self.folder)


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return Place(str(tmp_path / "main"), tmp_path / "main")
    location = f"{request.getfixturevalue('bucket')}/main"
    data: Path = request.getfixturevalue("bucket_server").data
    return Place(location, data / location.removeprefix("s3://"))


@pytest.fixture
def on_disk(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "main"), tmp_path / "main")


@GUARDED
def test_each_commit_is_read_once_and_delta_rs_is_not_asked(
    on_disk: Place, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A log that is opened again for each poll reads all commits each time."""
    for number in range(LAST):
        append(on_disk.elsewhere, sets={"a": number})
    log, read, real = DeltaLog(on_disk.log.location), list[int](), DeltaLog.read_commit
    monkeypatch.setattr(LogFiles, "load", None)
    for news in (0, 0, 1, 4):
        for _ in range(news):
            append(on_disk.elsewhere, sets={"a": 1})
        with monkeypatch.context() as patched:
            patched.setattr(DeltaLog, "read_commit", lambda one, at: read.append(at) or real(one, at))
            table = open_log(log if guarded else DeltaLog(log.location))
            assert table.transaction("a") is not None
            assert len(read_back(table, 9)) == 9
    assert (read[LAST + 1 + 9 :] == list(range(LAST + 1, LAST + 6))) == guarded


def test_a_look_at_a_bucket_takes_one_list_and_each_new_commit(bucket: str, bucket_server: BucketServer) -> None:
    place = Place(f"{bucket}/main", bucket_server.data)
    for number in range(LAST):
        append(place.elsewhere, sets={"a": number})

    def count(news: int, log: DeltaLog = place.log) -> int:
        for _ in range(news):
            append(place.elsewhere, sets={"a": 1}, adds=(make_file("p", 0, 1),))
        before = bucket_server.count_requests()
        table = open_log(log)
        assert table.transaction("a") is not None
        assert len(read_back(table, 9)) == 9
        return bucket_server.count_requests() - before

    anew = DeltaLog(place.log.location)
    assert LAST < count(0, anew) <= LAST + 1 + 9 + 5, "each commit once, and what the last ones state"
    assert [count(0, anew), count(0, anew)] == [1, 1]
    assert [count(1, anew), count(1, anew), count(4, anew)] == [2 + 1, 2 + 1, 2 + 4], "a list before and after, too"


def test_a_table_is_read_once_for_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 300,000 files delta-rs takes 14 ms for each id: 42 s for a poll of 1,000 partitions."""
    table, asked, read = ledger(tmp_path), list[str](), list[int]()
    real = DeltaLog.read_state
    monkeypatch.setattr(DeltaLog, "read_state", lambda log, at: read.append(at) or real(log, at))
    monkeypatch.setattr(DeltaTable, "transaction_version", lambda _, one: asked.append(one))
    partitions = tuple(f"p:{i}" for i in range(50))
    claimed = table.claim(dict.fromkeys(partitions, 1), dict.fromkeys(partitions, 0))
    assert table.read_positions(partitions)["p:7"].offset == 0
    table.commit(claimed, Batch("c", "r", "", "", 0, dict.fromkeys(partitions, (0, 1))))
    assert not asked
    assert read == [-1, 0], "no table; and then the first version, which commits extend"


@GUARDED
def test_a_version_that_is_held_does_not_move(place: Place, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """A claim, then a newer owner's claim, then a poll of this process: the old claim's commit is refused. If newer commits
    are not compared, it is committed over the newer token."""
    if not guarded:
        monkeypatch.setattr(delta_log, "clashes", lambda *_: False)
    append(place.log, sets={"a": 1})
    old = open_log(place.log)
    append(place.elsewhere, sets={"a": 2}, adds=(make_file("p", 0, 1),))
    newest = open_log(place.log)
    assert (newest.transaction("a"), newest.files().num_rows) == (2, 1)
    with pytest.raises(Moved) if guarded else nullcontext():
        old.append(Draft(old, {"a": 1}))
    assert open_log(place.log).transaction("a") == (2 if guarded else 1)
    assert (old.transaction("a"), old.files().num_rows, newest.files().num_rows) == (1, 0, 1)


@GUARDED
def test_a_copy_that_took_the_place_is_read_anew(place: Place, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    append(place.log, sets={"a": 1})
    place.copy()
    append(place.log, sets={"b": 2})
    held = open_log(place.log)
    place.bring_back()
    append(place.elsewhere, sets={"b": 7})
    if not guarded:
        monkeypatch.setattr(DeltaLog, "list_page", lambda *_: ({held.number: held.tag}, False))
    table = open_log(place.log)
    assert table.number == held.number, "the same number, and another commit"
    assert table.transaction("b") == (7 if guarded else 2)


@GUARDED
def test_a_copy_that_takes_the_place_during_a_look_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    append(place.log, sets={"a": 1})
    open_log(place.log)
    copy = place.copy()
    append(DeltaLog(place.log.location.replace("/main", "/copy")), sets={"a": 5})
    append(place.elsewhere, sets={"b": 1})
    read, look, lists = DeltaLog.read_commit, DeltaLog.list_page, list[Any]()

    def swap(one: DeltaLog, version: int) -> bytes:
        commit = read(one, version)
        if copy.exists():
            place.bring_back()
        return commit

    def list_first(one: DeltaLog, after: int) -> Any:
        lists.append(look(one, after))
        return lists[0]

    with monkeypatch.context() as patched:
        patched.setattr(DeltaLog, "read_commit", swap)
        if not guarded:
            patched.setattr(DeltaLog, "list_page", list_first)
        seen = open_log(place.log)
    assert (seen.transaction("a"), seen.transaction("b")) == ((5, None) if guarded else (1, 1))


def test_after_a_failure_all_is_read_anew(place: Place) -> None:
    """An unmounted disk leaves an empty folder; a bucket that is gone does not answer."""
    append(place.log, sets={"a": 1})
    held = open_log(place.log)
    assert open_log(place.log) is held
    aside = place.folder.parent.with_name("aside")
    place.folder.parent.rename(aside)
    with pytest.raises(EnvironmentFailed) if "://" in place.log.location else nullcontext():
        assert place.log.open() is None
    aside.rename(place.folder.parent)
    assert open_log(place.log) is not held
    append(place.elsewhere, sets={"a": 2})
    assert open_log(place.log).transaction("a") == 2


def test_another_client_reads_anew(on_disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    held = open_log(on_disk.log)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    assert open_log(on_disk.log) is not held


def lose_a_part(history: History) -> None:
    """Another program ended while it wrote a checkpoint."""
    table = pa.table({"n": [1]})
    pq.write_table(table, history.folder / f"_delta_log/{3:020}.checkpoint.{1:010}.{3:010}.parquet")


@pytest.mark.parametrize(
    "step",
    [History.checkpoint, History.checkpoint_in_parts, History.shorten, History.lose_hint, lose_a_part],
    ids=["checkpoint", "in parts", "shortened", "no hint", "half a checkpoint"],
)
def test_a_log_of_a_known_shape_is_read_without_delta_rs(tmp_path: Path, step: Callable[[History], None]) -> None:
    history = History(str(tmp_path / "main"), tmp_path / "main", interval=1000)
    for number in range(4):
        history.set_by_delta_rs({IDS[0]: number})
        if number == 2:
            history.checkpoint()
            step(history)
    log = DeltaLog(history.held.location)
    assert log.read_state(4).transactions == {IDS[0]: 3}
    assert log.read_state(3).transactions == {IDS[0]: 2}, "never of another version"
    if step is History.shorten:
        assert log.read_state(2).transactions is None, "its commits are gone"
    history.set_by_delta_rs({IDS[1]: 6}, 2**42)
    assert log.read_state(5).transactions is None, "it may expire"


def test_a_log_that_is_packed_up_to_its_checkpoint_is_found(on_disk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever `_last_checkpoint` names: older commits are in packs, or the checkpoint is of a replaced log."""
    monkeypatch.setattr(packs, "PACKED", 3)
    for number in range(LAST):
        append(on_disk.log, sets={"a": number})
        on_disk.log.load().create_checkpoint()
    packing.pack(on_disk.log, SOON)
    hint = on_disk.folder / "_delta_log/_last_checkpoint"
    for said in (hint.read_text(), hint.read_text().replace(str(LAST), "1"), '{"version": 1000}', "{", None):
        hint.write_text(said) if said else os.unlink(hint)
        log = DeltaLog(on_disk.log.location)
        table = open_log(log)
        assert (table.number, table.transaction("a")) == (LAST, LAST - 1)
        assert open_log(log) is table
