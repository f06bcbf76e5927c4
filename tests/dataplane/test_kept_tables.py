"""Who opens a table again asks for what came since. It sees and compares what one who opens it anew does."""

import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from rota.deltalog import delta_log, kept_tables, packing, packs
from rota.deltalog.delta_log import DeltaLog, DeltaVersion
from rota.deltalog.kept_tables import KEPT, drop_oldest
from rota.deltalog.port import Draft, Moved
from rota.errors import EnvironmentFailed
from rota.ledger.change import read_back
from rota.ledger.schema import FIRST
from rota.local.bucket import BucketServer
from tests.dataplane.conformance.log_suite import append, make_file

LAST = 12  # commits of a log without a checkpoint


def make_log(location: str) -> DeltaLog:
    one = DeltaLog(location)
    one.create(FIRST, {"delta.checkpointInterval": "1000"})
    return one


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Where a table is, and the folder in which its files are."""
    if request.param == "disk":
        return str(tmp_path / "main"), tmp_path / "main"
    location = f"{request.getfixturevalue('bucket')}/main"
    data: Path = request.getfixturevalue("bucket_server").data
    return location, data / location.removeprefix("s3://")


@pytest.fixture
def log(place: tuple[str, Path]) -> DeltaLog:
    return make_log(place[0])


@pytest.fixture
def folder(place: tuple[str, Path]) -> Path:
    return place[1]


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    KEPT.clear()
    yield
    KEPT.clear()


def open_log(log: DeltaLog) -> DeltaVersion:
    table = log.open()
    assert table
    return table


class Elsewhere:
    """Another process: it keeps its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept: dict[Any, Any] = {}
        self.monkeypatch = monkeypatch

    def append(self, log: DeltaLog, **more: Any) -> None:
        with self.monkeypatch.context() as patched:
            patched.setattr(kept_tables, "KEPT", self.kept)
            append(log, **more)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    return Elsewhere(monkeypatch)


def read_all(table: DeltaVersion) -> tuple[object, ...]:
    """All that a version says."""
    ids = [table.transaction(name) for name in "abcdef"]
    paths = sorted(table.files()["path"].to_pylist())
    return table.number, table.schema, ids, paths, read_back(table)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_on_a_disk_each_commit_is_read_once_and_delta_rs_is_not_asked(
    tmp_path: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Without what is kept all is read at each look."""
    log, read, opened = make_log(str(tmp_path / "main")), list[int](), list[int]()
    for number in range(LAST):
        elsewhere.append(log, sets={"a": number})
    KEPT.clear()
    real = DeltaLog.read_commit
    monkeypatch.setattr(DeltaLog, "read_commit", lambda one, at: read.append(at) or real(one, at))
    monkeypatch.setattr(delta_log, "DeltaTable", lambda *a, **k: opened.append(1) or DeltaTable(*a, **k))
    for news in (0, 0, 1, 4):
        for _ in range(news):
            with monkeypatch.context() as patched:
                patched.setattr(DeltaLog, "read_commit", real)
                DeltaTable(log.location).create_write_transaction(
                    [], "append", DeltaTable(log.location).schema(), commit_properties=moving("a", 1)
                )
        if not guarded:
            KEPT.clear()
        table = open_log(log)
        assert table.transaction("a") is not None
        assert len(read_back(table, 9)) == 9
    assert not opened
    assert (read[LAST + 1 + 9 :] == list(range(LAST + 1, LAST + 6))) == guarded


def moving(name: str, number: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(name, number)])


def test_a_table_is_opened_once_and_then_asked_for_what_came_since(
    bucket: str, bucket_server: BucketServer, elsewhere: Elsewhere
) -> None:
    log = make_log(f"{bucket}/main")
    for number in range(LAST):
        elsewhere.append(log, sets={"a": number})

    def count(news: int) -> int:
        for _ in range(news):
            elsewhere.append(log, sets={"a": 1}, adds=(make_file("p", 0, 1),))
        before = bucket_server.count_requests()
        table = open_log(log)
        assert table.transaction("a") is not None
        assert len(read_back(table, 9)) == 9
        return bucket_server.count_requests() - before

    first = count(0)
    assert LAST < first <= LAST + 1 + 9 + 5, "each commit of the log once, and what the last ones say of themselves"
    assert [count(0), count(0)] == [1, 1]
    assert [count(1), count(1), count(4)] == [2 + 1, 2 + 1, 2 + 4], "a list before and after, and each commit"


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_version_that_somebody_has_is_not_moved(
    log: DeltaLog, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A claim, then a newer owner's, then a look of this process: the old claim's commit is refused. Where what came since
    is not compared it goes in over the newer token."""
    if not guarded:
        monkeypatch.setattr(delta_log, "clashes", lambda *_: False)
    append(log, sets={"a": 1})
    old = open_log(log)
    assert old.transaction("a") == 1
    elsewhere.append(log, sets={"a": 2}, adds=(make_file("p", 0, 1),))
    newest = open_log(log)
    assert (newest.transaction("a"), newest.files().num_rows) == (2, 1)
    with pytest.raises(Moved) if guarded else nullcontext():
        old.append(Draft(old, {"a": 1}))
    assert open_log(log).transaction("a") == (2 if guarded else 1)
    assert (old.transaction("a"), old.files().num_rows, newest.files().num_rows) == (1, 0, 1)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_copy_that_took_the_place_is_read_anew(
    log: DeltaLog, folder: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    append(log, sets={"a": 1})
    shutil.copytree(folder, folder.with_name("copy"))
    append(log, sets={"b": 2})
    kept = open_log(log)
    assert kept.transaction("b") == 2
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)
    elsewhere.append(log, sets={"b": 7})
    if not guarded:
        tag = next(iter(KEPT.values())).tag
        monkeypatch.setattr(DeltaLog, "list_page", lambda *_: ({kept.number: tag}, False))
    table = open_log(log)
    assert table.number == kept.number, "the same number, and another commit"
    assert table.transaction("b") == (7 if guarded else 2)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_copy_that_takes_the_place_while_it_is_read_is_not_taken_for_it(
    log: DeltaLog, folder: Path, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Between the reading of what came since and the end of the look, a log is there that went another way."""
    append(log, sets={"a": 1})
    open_log(log)
    shutil.copytree(folder, folder.with_name("copy"))
    elsewhere.append(DeltaLog(log.location.replace("/main", "/copy")), sets={"a": 5})
    elsewhere.append(log, sets={"b": 1})
    read, look, lists = DeltaLog.read_commit, DeltaLog.list_page, list[Any]()

    def swap(one: DeltaLog, version: int) -> bytes:
        commit = read(one, version)
        if folder.with_name("copy").exists():
            shutil.rmtree(folder)
            folder.with_name("copy").rename(folder)
        return commit

    def list_first(one: DeltaLog, after: int) -> Any:
        lists.append(look(one, after))
        return lists[0]

    with monkeypatch.context() as patched:
        patched.setattr(DeltaLog, "read_commit", swap)
        if not guarded:
            patched.setattr(DeltaLog, "list_page", list_first)
        seen = open_log(log)
    assert (seen.transaction("a"), seen.transaction("b")) == ((5, None) if guarded else (1, 1))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_says_what_a_table_that_is_opened_anew_does(
    log: DeltaLog, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whatever others do to the log between two looks: commits, files that go, columns, checkpoints, packs."""
    monkeypatch.setattr(packs, "PACKED", 3)
    chance = random.Random(seed)
    held: list[tuple[DeltaVersion, tuple[object, ...]]] = []
    columns = iter("uvwxyz")
    for _ in range(20):
        what = chance.choice(["set", "set", "set", "add", "column", "checkpoint", "pack", "own", "look"])
        if what == "set":
            elsewhere.append(log, sets={chance.choice("abcdef"): chance.randrange(99)})
        elif what == "add":
            elsewhere.append(log, adds=(make_file("p", 0, 1),))
        elif what == "own":
            append(log, sets={chance.choice("abcdef"): chance.randrange(99)})
        elif what == "column" and (name := next(columns, "")):
            elsewhere.append(log, columns=column(name))
        elif what == "checkpoint":
            log.load().create_checkpoint()
        elif what == "pack":
            packing.pack(log, 2**40, 3)
        table = open_log(log)
        with monkeypatch.context() as patched:
            patched.setattr(kept_tables, "KEPT", {})
            assert read_all(table) == read_all(open_log(log)), what
        if chance.random() < 0.3:
            held.append((table, read_all(table)))
    assert [read_all(table) for table, _ in held] == [said for _, said in held]


def column(name: str) -> str:
    return FIRST.replace('"_partition"', f'"{name}"').replace('"_offset"', f'"{name}{name}"')


def test_of_many_tables_those_are_kept_that_were_opened_last(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that goes on for months opens any number of tables."""
    monkeypatch.setattr(kept_tables, "TABLES", 2)
    monkeypatch.setattr(kept_tables, "NEWEST", {})
    logs = [DeltaLog(f"{bucket}/{number}") for number in range(3)]
    for number, one in enumerate(logs):
        one.create(FIRST)
        append(one, sets={"a": number})

    def count(number: int) -> int:
        before = bucket_server.count_requests()
        assert open_log(logs[number]).transaction("a") == number
        return bucket_server.count_requests() - before

    for number in (2, 0):
        count(number)
    assert [count(0), count(2), count(0)] == [1, 1, 1]
    assert [one[0] for one in KEPT] == [one[0] for one in kept_tables.NEWEST] == [logs[2].location, logs[0].location]
    assert count(1) > 1
    assert (count(1), count(0)) == (1, 1)
    assert count(2) > 1


def test_many_threads_drop_what_is_too_much_at_once() -> None:
    kept = dict[int, None]()

    def put(first: int) -> None:
        for number in range(first, first + 3000):
            kept[number] = None
            drop_oldest(kept, 10)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(0, 80_000, 10_000)))
    assert len(kept) == 10


def test_a_look_that_fails_keeps_nothing(bucket: str, bucket_server: BucketServer, elsewhere: Elsewhere) -> None:
    log = make_log(f"{bucket}/main")
    append(log, sets={"a": 1})
    open_log(log)
    place = bucket_server.data / bucket.removeprefix("s3://")
    place.rename(place.with_name("aside"))
    with pytest.raises(EnvironmentFailed):
        log.open()
    place.with_name("aside").rename(place)
    assert not KEPT
    elsewhere.append(log, sets={"a": 2})
    assert open_log(log).transaction("a") == 2


def test_on_a_disk_that_is_gone_nothing_is_kept(tmp_path: Path) -> None:
    """An empty folder is there where a disk was mounted."""
    log = make_log(str(tmp_path / "main"))
    append(log, sets={"a": 1})
    (tmp_path / "main").rename(tmp_path / "aside")
    assert log.open() is None
    assert log.stamp_newest() is None
    assert not KEPT
    (tmp_path / "aside").rename(tmp_path / "main")
    assert open_log(log).transaction("a") == 1


def test_a_log_that_was_packed_up_to_its_checkpoint_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever `_last_checkpoint` says: the commits below are in packs, or the checkpoint is of a log that is gone."""
    monkeypatch.setattr(packs, "PACKED", 3)
    log = make_log(str(tmp_path / "main"))
    for number in range(LAST):
        append(log, sets={"a": number})
        log.load().create_checkpoint()
    packing.pack(log, 2**40)
    hint = tmp_path / "main/_delta_log/_last_checkpoint"
    for said in (hint.read_text(), hint.read_text().replace(str(LAST), "1"), '{"version": 1000}', "{", None):
        hint.write_text(said) if said else hint.unlink()
        KEPT.clear()
        kept_tables.NEWEST.clear()
        table = open_log(log)
        assert (table.number, table.transaction("a")) == (LAST, LAST - 1)
        assert log.stamp_newest() == (LAST, log.stamp(LAST))
        assert KEPT
