"""The index has the same content for any form of its files: appended, merged, renewed, sorted or not."""

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.dataplane.files import file_index, spans
from rota.dataplane.files.disk import DiskLanding
from rota.dataplane.files.file_index import FileIndex, LandedFile
from rota.dataplane.files.landing import Rested
from rota.dataplane.ports import ASSIGN, ENDS
from rota.deltalog.delta_log import DeltaVersion
from rota.errors import EnvironmentFailed
from tests.dataplane.conftest import log
from tests.dataplane.landing_folders import land, source

PARTITIONS = ("p:a", "p:b", "p-é\u2028", "p-" + "long" * 31)
PART = st.sampled_from(PARTITIONS)
STEPS = st.lists(
    st.one_of(
        st.dictionaries(PART, st.integers(0, 7), min_size=1),
        st.tuples(PART, st.integers(0, 30)),
        st.just("merged by another program"),
    ),
    min_size=1,
    max_size=14,
)
SPAN = st.tuples(st.integers(0, 25), st.integers(0, 25))


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Let few rows fill a row group, a file and a portion."""
    with (
        patch.object(spans, "KEPT", 2),
        patch.object(file_index, "LARGE", 6), patch.object(file_index, "MANY", 3),
    ):  # fmt: skip
        yield


def make_file(partition: str, number: int) -> LandedFile:
    return LandedFile(f"{partition}/{number}.json", number, 10**18 + number)


@settings(max_examples=25)
@given(STEPS, st.dictionaries(PART, SPAN))
def test_it_has_the_same_as_a_list_of_each_partition(steps: list[object], ranges: dict[str, tuple[int, int]]) -> None:
    with TemporaryDirectory() as folder:
        index, model = FileIndex.at(f"{folder}/index"), {p: list[LandedFile]() for p in PARTITIONS}
        for step in steps:
            if isinstance(step, dict):
                known: dict[str, frozenset[str]] = {}
                more = {p: [make_file(p, len(model[p]) + i) for i in range(n)] for p, n in step.items()}
                found = index.extend(
                    tuple(step), lambda seen, k=known, m=more: k.update(seen) or [{p: m[p]} for p in seen]
                )
                assert known == {p: {f.path for f in model[p]} for p in step}
                for p in step:
                    model[p] += more[p]
                assert found == {p: len(model[p]) for p in step}
            elif isinstance(step, tuple):
                p, number = step
                if number < len(model[p]):
                    model[p][number] = LandedFile(model[p][number].path, 7, 7)
                    renewed = {p: {number: model[p][number]}}
                    as_now = replace(index, renewed=renewed)
                    assert as_now.files({p: (number, number + 1)})[p][number] == model[p][number]
                    as_now.keep((p,))
            elif Path(index.location).exists():
                DeltaTable(index.location).optimize.compact()
        assert index.given(PARTITIONS) == {p: len(files) for p, files in model.items()}
        assert {p: tuple(files) for p, files in index.files(PARTITIONS).items()} == {
            p: tuple(f) for p, f in model.items()
        }
        asked = index.files(ranges)
        assert {p: asked[p][a:b] for p, (a, b) in ranges.items()} == {
            p: tuple(model[p][a:b]) for p, (a, b) in ranges.items()
        }
        assert {p: len(files) for p, files in asked.items()} == {p: len(model[p]) for p in ranges}
        if Path(index.location).exists():
            assert len(DeltaTable(index.location).file_uris()) <= 3 + sum(map(len, model.values())) // 3


def fill_index(folder: Path, files: int = 12) -> FileIndex:
    index = FileIndex.at(str(folder / "index"))
    index.extend(PARTITIONS, lambda known: [{p: [make_file(p, i) for i in range(files)] for p in known}])
    return index


def test_what_was_not_asked_for_is_no_answer(tmp_path: Path) -> None:
    files = fill_index(tmp_path).files({"p:a": (3, 5)})["p:a"]
    assert (len(files), [f.size for f in files[3:5]], files[4].size, files[12:20]) == (12, [3, 4], 4, ())
    for look in (lambda: files[2], lambda: files[3:6], lambda: tuple(files)):
        with pytest.raises(LookupError, match="not asked for"):
            look()
    with pytest.raises(IndexError):
        files[12]


def test_a_look_reads_what_may_hold_it_and_a_process_keeps_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 1,000,000 files every process read and kept all of them: 790 MiB."""
    index, groups, real = fill_index(tmp_path, 120), list[int](), pq.ParquetFile.read_row_groups
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", lambda f, some, *a: groups.extend(some) or real(f, some, *a))
    index = FileIndex.at(index.location)
    assert index.given(PARTITIONS) == dict.fromkeys(PARTITIONS, 120)
    assert not groups
    index.files({"p:a": (118, 120), "p:b": (0, 1)})
    assert len(groups) == 2, "of 240 row groups"
    assert not any(file.kept for file in index.read.newest[1].values())


def test_no_look_holds_all_paths_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, held, real = fill_index(tmp_path), list[int](), file_index.name_files

    def counted(some: list[str], rows: object) -> object:
        found = real(some, rows)  # type: ignore[arg-type]
        held.append(sum(len(piece) for pieces in found.values() for piece in pieces))
        return found

    monkeypatch.setattr(file_index, "name_files", counted)
    assert index.latest(PARTITIONS, lambda known: [{p: [] for p in known}])[1] == dict.fromkeys(PARTITIONS, 12)
    assert held == [12] * 4


def test_of_many_new_files_few_are_held_and_those_of_a_look_that_broke_off_keep_their_ordinals(tmp_path: Path) -> None:
    """At 1,000,000 new files a process kept all of them in memory: 1 GB."""
    index, held, most = FileIndex.at(str(tmp_path / "index")), 0, 0
    partitions = tuple(f"p:{number:02}" for number in range(40))

    def find(known: Mapping[str, frozenset[str]]) -> Iterator[Mapping[str, list[LandedFile]]]:
        nonlocal held, most
        held = 0
        for p, paths in known.items():
            if p == breaks:
                raise OSError(p)
            new = [file for file in (make_file(p, number) for number in range(4)) if file.path not in paths]
            held += len(new)
            most = max(most, held)
            yield {} if p == "p:07" else {p: new}

    breaks = "p:20"
    with pytest.raises(OSError, match="p:20"):
        index.extend(partitions, find)
    before = index.given(partitions)
    assert 40 < sum(before.values()) <= 80
    breaks = ""
    ends = index.extend(partitions, find)
    assert ends == dict.fromkeys(set(partitions) - {"p:07"}, 4), "one is not reported"
    assert index.given(partitions) == {**ends, "p:07": 0}
    assert most <= 6 + 4 + 4, "the new files of a portion, and of one that is left out"
    assert {p: [f.size for f in of] for p, of in index.files(tuple(ends)).items()} == {p: [0, 1, 2, 3] for p in ends}


def test_what_has_a_time_is_found_in_few_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = fill_index(tmp_path, files=40)
    DeltaTable(index.location).optimize.compact()
    groups: list[int] = []
    real = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, n, *more: groups.append(n) or real(self, n, *more)
    )
    wanted = [LandedFile("q/any", 0, 10**18 + n) for n in (7, 99)]
    assert sorted(index.find_alike(wanted)) == sorted((p, 7, make_file(p, 7)) for p in PARTITIONS)
    assert not list(index.find_alike([]))
    assert len(groups) < 160, "of 160 rows"


@pytest.mark.parametrize("lost", ["alone", "beside one that is doubled"])
def test_a_lost_row_is_reported_to_each_caller(tmp_path: Path, lost: str) -> None:
    index = fill_index(tmp_path)
    files = {
        p: pq.read_table(p).select(["partition", "ordinal"]).to_pylist() for p in Path(index.location).glob("*.parquet")
    }
    (name,) = (p for p, rows in files.items() if {"partition": "p:a", "ordinal": 3} in rows)
    rows = pq.read_table(name)
    keep = pa.array([o != 3 for o in rows["ordinal"].to_pylist()])
    left = [rows.filter(keep), rows.slice(0, 1)] if lost == "beside one that is doubled" else [rows.filter(keep)]
    pq.write_table(pa.concat_tables(left), name)
    with pytest.raises(EnvironmentFailed, match="has lost rows of p:a"):
        FileIndex.at(index.location).files({"p:a": (2, 4)})


def test_large_files_are_left_as_they_are(tmp_path: Path) -> None:
    index = fill_index(tmp_path)
    large = set(DeltaTable(index.location).file_uris())
    for number in range(12, 32):
        index.extend(("p:a",), lambda known, n=number: [{p: [make_file(p, n)] for p in known}])
    files = set(DeltaTable(index.location).file_uris())
    assert large <= files
    assert len(files - large) <= 3 + 20 // 6
    assert [f.size for f in index.files(("p:a",))["p:a"]] == list(range(32))


def test_two_runs_that_see_the_same_files_give_each_one_ordinal(tmp_path: Path) -> None:
    land(tmp_path, *(f"x/{i:03}.json" for i in range(30)), *(f"y/{i:03}.json" for i in range(30)))
    both = threading.Barrier(4)

    def look(partitions: tuple[str, ...]) -> None:
        both.wait()
        source(tmp_path).observe(partitions, ASSIGN)

    threads = [threading.Thread(target=look, args=(ps,)) for ps in 2 * [("p:x", "p:y"), ("p:y",)]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert source(tmp_path).observe(("p:x", "p:y"), ASSIGN).ends == {"p:x": 30, "p:y": 30}
    assert len({source(tmp_path).locate("p:x", i) for i in range(30)}) == 30


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the transaction"])
def test_a_run_that_was_slow_to_look_gives_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """If two files got one ordinal, one of them would be read, and the other never, or twice."""
    if not guarded:
        monkeypatch.setattr(file_index.FileIndex, "make_moves", lambda *_: {})
    slow = source(tmp_path)
    land(tmp_path, "x/2.json")
    real, armed = DiskLanding.list_rested, [True]

    def meanwhile(*given: Any) -> list[Rested]:
        found = list(real(*given))
        if armed and armed.pop():
            land(tmp_path, "x/1.json")
            assert source(tmp_path).observe(("p:x",), ASSIGN).ends == {"p:x": 2}
        return found

    monkeypatch.setattr(DiskLanding, "list_rested", meanwhile)
    slow.observe(("p:x",), ASSIGN)
    rows = log(Path(slow.index.location)).rows()
    given, paths = (Counter(row[name] for row in rows) for name in ("ordinal", "path"))
    assert (given[0], paths["x/2.json"]) == ((1, 1) if guarded else (2, 2))
    assert sorted(paths) == ["x/1.json", "x/2.json"]


def test_a_long_index_is_put_together_and_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_index, "MANY", 10)
    one = source(tmp_path)
    for i in range(15):
        land(tmp_path, f"x/{i:03}.json")
        one.observe(("p:x",), ASSIGN)
    assert len(DeltaTable(one.index.location).file_uris()) <= 10
    assert [one.locate("p:x", i) for i in range(15)] == [f"x/{i:03}.json" for i in range(15)]


def test_a_process_reads_no_file_of_an_index_twice_and_keeps_none_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_index, "MANY", 10)
    one, seen, real = source(tmp_path), list[str](), file_index.read_file
    monkeypatch.setattr(file_index, "read_file", lambda place, file: seen.append(file) or real(place, file))
    for i in range(30):  # put together twice
        land(tmp_path, f"x/{i:03}.json")
        one.observe(("p:x",), ASSIGN)
    assert one.observe(("p:x",)).assigned == {"p:x": 30}
    assert sum(file.rows for file in one.index.read.newest[1].values()) == 30
    assert len(seen) == len(set(seen))


def test_a_look_opens_no_log_that_did_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sensors poll once a second and runs twice, and opening the table took half the time of each poll."""
    one, opened, real = source(tmp_path), list[int](), DeltaVersion.files
    for name in ("x/1.json", "x/2.json"):
        land(tmp_path, name)
        one.observe(("p:x",), ASSIGN)
    monkeypatch.setattr(DeltaVersion, "files", lambda version: opened.append(version.number) or real(version))
    land(tmp_path, "x/3.json")
    assert [one.observe(("p:x",)).ends for _ in range(5)] == [{"p:x": 3}] * 5
    assert len(opened) <= 1


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_an_index_that_went_on_or_was_brought_back_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        real = FileIndex.read_newest
        monkeypatch.setattr(FileIndex, "read_newest", lambda of: list(of.read.newest[1].values()) or real(of))
    one, seen = source(tmp_path), list[int]()
    index, copy = Path(one.index.location), tmp_path / "copy"

    def look() -> None:
        seen.append(one.observe(("p:x",)).assigned["p:x"])

    def give(name: str) -> None:
        land(tmp_path, name)
        one.observe(("p:x",), ASSIGN)

    give("x/1.json")
    look()
    shutil.copytree(index, copy)
    give("x/2.json")
    look()
    shutil.rmtree(index)
    shutil.copytree(copy, index)
    look()
    give("x/3.json")  # and x/2.json again
    look()
    shutil.rmtree(index)
    look()
    assert (seen == [1, 2, 1, 3, 0]) == guarded, seen


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda index: next(index.glob("*.parquet")).unlink(), "No such file"),
        (lambda index: next(index.glob("*.parquet")).write_bytes(b""), "file size is 0"),
        (lambda index: DeltaTable(index).delete("ordinal = 0"), "has lost rows of p:x"),
    ],
    ids=["gone", "empty", "rows deleted"],
)
def test_a_damaged_index_is_one_line_with_the_way_on(
    tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    one = source(tmp_path)
    for name in ("x/1.json", "x/2.json"):
        land(tmp_path, name)
        one.observe(("p:x",), ASSIGN)
    damage(Path(one.index.location))
    one = source(tmp_path)
    for query in (ENDS, ASSIGN):
        with pytest.raises(EnvironmentFailed, match=rf"{said}.*: move {tmp_path}/table away, then rota adopt"):
            one.observe(("p:x",), query)
