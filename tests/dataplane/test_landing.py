"""The conformance suite of a source without Spark, on landing folders: an offset, once given, means the same for ever."""

import errno
import gzip
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import rota
from rota.dataplane.delta.delta_io import open_table
from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.files import file_index, listing
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.ports import LogEntry
from rota.errors import ConfigError, EnvironmentFailed
from rota.pipeline import Pipeline
from rota.rewritten import explain_rewritten
from tests.dataplane.conftest import log
from tests.dataplane.landing_folders import land, source, unlooked
from tests.waiting import wait_until


def test_late_and_out_of_order_names_get_the_next_offsets(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/2.json", "x/3.json")
    assert one.assign_offsets(("p:x",)) == {"p:x": 2}
    land(tmp_path, "x/1.json")
    assert one.read_ends(("p:x",)) == {"p:x": 3}
    assert one.assign_offsets(("p:x",)) == {"p:x": 3}
    assert [one.locate("p:x", i) for i in range(3)] == ["x/2.json", "x/3.json", "x/1.json"]
    assert source(tmp_path).locate("p:x", 2) == "x/1.json"


def test_looking_writes_nothing(tmp_path: Path) -> None:
    one = source(tmp_path)
    assert one.list_keys() == ()
    land(tmp_path, "x/1.json")
    assert one.list_keys() == ("x",)
    assert one.read_ends(("p:x", "p:none")) == {"p:x": 1, "p:none": 0}
    assert not (tmp_path / "table").exists()


def test_hidden_and_unrested_files_wait(tmp_path: Path) -> None:
    land(tmp_path, "x/1.json", "x/_tmp.json", "x/.2.json.part", "x/_temporary/3.json", "_x/1.json")
    now = (tmp_path / "land/x/1.json").stat().st_ctime
    waiting = FilesSource(**{**fields(source(tmp_path, settle=2.0)), "clock": lambda: now + 1.9})
    assert waiting.list_keys() == ("x",)
    assert waiting.assign_offsets(("p:x",)) == {"p:x": 0}
    assert source(tmp_path).assign_offsets(("p:x",)) == {"p:x": 1}


def fields(one: FilesSource) -> dict[str, object]:
    return {name: getattr(one, name) for name in ("name", "root", "declared", "index", "stage")}


def test_an_old_modification_time_does_not_make_a_file_rest(tmp_path: Path) -> None:
    land(tmp_path, "x/1.json")
    os.utime(tmp_path / "land/x/1.json", (1, 1))
    now = (tmp_path / "land/x/1.json").stat().st_ctime
    assert FilesSource(**{**fields(source(tmp_path, settle=2.0)), "clock": lambda: now + 1}).assign_offsets(
        ("p:x",)
    ) == {"p:x": 0}


def test_a_clock_that_is_behind_the_file_servers_holds_back_no_file_for_long(tmp_path: Path) -> None:
    """All files waited until the clock of the run's machine had caught up: an hour of silence."""
    land(tmp_path, "x/1.json")
    rested = (tmp_path / "land/x/1.json").stat().st_ctime
    late = FilesSource(**{**fields(source(tmp_path, settle=0.01)), "clock": lambda: rested - 3600})
    assert late.assign_offsets(("p:x",)) == {"p:x": 0}
    wait_until(lambda: time.time() > rested + 0.05, 5)
    land(tmp_path, "x/2.json")
    assert late.assign_offsets(("p:x",)) == {"p:x": 1}


def test_hive_style_names_and_folders_in_folders(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "carrier=AA/month=01/a.json", "carrier=AA/month=02/a.json", "a b*[1]/x.json")
    assert one.list_keys() == ("a b*%5B1%5D", "carrier=AA")
    assert one.assign_offsets(("p:carrier=AA", "p:a b*%5B1%5D")) == {"p:carrier=AA": 2, "p:a b*%5B1%5D": 1}


def test_a_name_too_long_for_an_id_is_left_out_and_told(tmp_path: Path) -> None:
    land(tmp_path, "x" * 130 + "/1.json", "y/1.json")
    one = source(tmp_path)
    assert one.list_keys() == ("y",)
    assert one.list_ignored() == {"x" * 130: listing.TOO_LONG}


def test_only_regular_files_below_the_root_are_read_and_the_rest_is_told(tmp_path: Path) -> None:
    """A pipe would block the run that opens it; a link would read what nobody landed, such as /etc/passwd."""
    land(tmp_path, "x/1.json", "x/deep/2.json", "lone.json", "x/_hidden", "x/.hidden", "_y/1.json")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.json").write_text('{"a": 7}\n')
    (tmp_path / "land/x/link.json").symlink_to(tmp_path / "outside/secret.json")
    (tmp_path / "land/x/inner.json").symlink_to("1.json")
    (tmp_path / "land/x/folder").symlink_to(tmp_path / "outside")
    (tmp_path / "land/key").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "land/x/pipe.json")
    (tmp_path / os.fsdecode(b"land/x/caf\xe9.json")).write_text("{}")
    one = source(tmp_path)
    assert one.list_keys() == ("x",)
    assert one.read_ends(("p:x", "p:key")) == {"p:x": 2, "p:key": 0}
    assert one.assign_offsets(("p:x",)) == {"p:x": 2}
    assert [one.locate("p:x", i) for i in range(2)] == ["x/1.json", "x/deep/2.json"]
    assert one.list_ignored() == {
        "lone.json": listing.ASIDE,
        "key": listing.LINK,
        "x/link.json": listing.LINK,
        "x/inner.json": listing.LINK,
        "x/folder": listing.LINK,
        "x/pipe.json": listing.NO_FILE,
        os.fsdecode(b"x/caf\xe9.json"): listing.NO_TEXT,
    }


def test_a_link_in_place_of_a_file_that_has_its_offset_is_not_followed(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "y/1.json")
    one.assign_offsets(("p:x",))
    (tmp_path / "land/x/1.json").rename(tmp_path / "land/y/2.json")
    (tmp_path / "land/x/1.json").symlink_to(tmp_path / "land/y/2.json")
    assert "is no regular file any more" in str(one.find_broken({"p:x": (0, 1)})["p:x"])


def opened_all(place: str, table: str) -> None:
    declared = Pipeline(source=rota.files(place, format="json", schema="a int"), table=rota.delta(table), name="p")
    FilesSource.of(declared)
    PipelineTables.of(declared, "g", "0" * 32)


@pytest.mark.parametrize("address", ["s3://bucket/a", "s3a://b", "hdfs:/x", "file:///tmp/x", "${PLACE}/a"])
def test_a_scheme_that_is_not_served_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """A folder named `s3:` was made beside the process, and what lay in the bucket was never read."""
    monkeypatch.setenv("PLACE", "abfss://c@account")
    monkeypatch.chdir(tmp_path)
    for place, table in ((address, "table"), ("land", address)):
        with pytest.raises(ConfigError, match=r"rota serves folders, not (s3|s3a|hdfs|file|abfss): addresses"):
            opened_all(place, table)
    assert not list(tmp_path.iterdir())


def test_where_a_partition_starts(tmp_path: Path) -> None:
    for start, first, later in (("earliest", 0, 0), ("latest", 7, 0), (3, 3, 3)):
        starts = source(tmp_path, start=start).choose_starts({"p-a": 7, "p-b": 7}, later=("p-b",))
        assert starts == {"p-a": first, "p-b": later}


def test_both_caps_and_at_least_one(tmp_path: Path) -> None:
    land(tmp_path, *(f"x/{i}.json" for i in range(5)), text="0123456789")
    source(tmp_path).assign_offsets(("p:x",))
    for caps, end in (
        ({}, 5),
        ({"max_files": 2}, 2),
        ({"max_bytes": 39}, 3),
        ({"max_bytes": 1}, 1),
        ({"max_job_files": 2}, 2),
    ):
        assert source(tmp_path, **caps).plan_jobs({"p:x": 0}, {"p:x": 5}) == ({"p:x": (0, end)},)
    assert source(tmp_path).plan_jobs({"p:x": 5}, {"p:x": 5}) == ()


def test_a_file_that_changed_or_vanished_breaks_its_range_only(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "x/2.json", "y/1.json", "z/1.json")
    one.assign_offsets(("p:x", "p:y", "p:z"))
    land(tmp_path, "x/2.json", text='{"a": 2}{"a": 3}\n')
    (tmp_path / "land/y/1.json").unlink()
    broken = one.find_broken({"p:x": (0, 2), "p:y": (0, 1), "p:z": (0, 1)})
    assert set(broken) == {"p:x", "p:y"}
    assert "changed" in str(broken["p:x"])
    assert "vanished" in str(broken["p:y"])
    assert not one.find_broken({"p:x": (0, 1)})
    assert "asked for" in str(one.find_broken({"p:z": (0, 2)})["p:z"])


def test_what_is_read_again_is_kept_as_it_is_then_under_the_offset_it_has(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "x/2.json", "x/3.json", "y/1.json")
    one.assign_offsets(("p:x", "p:y"))
    land(tmp_path, "x/2.json", "x/3.json", "y/1.json", text='{"a": 2}{"a": 3}\n')
    now = one.as_now({"p:x": (1, 2), "p:y": (0, 1)})
    assert not now.find_broken({"p:x": (0, 2), "p:y": (0, 1)})
    assert set(one.find_broken({"p:x": (1, 2), "p:y": (0, 1)})) == {"p:x", "p:y"}, "only the reader sees them so"
    now.index.keep(("p:x",))
    assert set(one.find_broken({"p:x": (0, 2), "p:y": (0, 1)})) == {"p:y"}
    assert "x/3.json (offset 2) changed" in str(one.find_broken({"p:x": (0, 3)})["p:x"]), "it was not read again"
    version = open_table(one.index.path).version()
    now.index.keep(("p:x",))
    assert open_table(one.index.path).version() == version, "nothing new is written"
    assert [one.locate("p:x", i) for i in range(3)] == ["x/1.json", "x/2.json", "x/3.json"]
    assert one.assign_offsets(("p:x", "p:y")) == {"p:x": 3, "p:y": 1}


def test_what_changes_while_it_is_read_again_or_is_gone_breaks_its_range(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "y/1.json")
    one.assign_offsets(("p:x", "p:y"))
    (tmp_path / "land/y/1.json").unlink()
    now = one.as_now({"p:x": (0, 1), "p:y": (0, 1)})
    land(tmp_path, "x/1.json", text='{"a": 2}{"a": 3}\n')
    broken = now.find_broken({"p:x": (0, 1), "p:y": (0, 1)})
    assert str(broken["p:x"]).startswith("x/1.json (offset 0) changed while it was read again")
    assert str(broken["p:y"]).startswith("y/1.json (offset 0) vanished. Bring it back, or give a range without it")


@pytest.mark.parametrize("other", ["compaction", "new files"])
def test_what_is_kept_beside_other_writers_of_the_index_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    one = source(tmp_path)
    for name in "123":
        land(tmp_path, f"x/{name}.json")
        one.assign_offsets(("p:x",))
    land(tmp_path, "x/2.json", text='{"a": 2}{"a": 3}\n')
    real, armed = file_index.FileIndex._rewrite_renewed, [True]

    def meanwhile(*args: object) -> object:
        found = real(*args)  # type: ignore[arg-type]
        if armed and armed.pop():
            if other == "compaction":
                open_table(one.index.path).optimize.compact()
            else:
                land(tmp_path, "x/4.json")
                one.assign_offsets(("p:x",))
        return found

    monkeypatch.setattr(file_index.FileIndex, "_rewrite_renewed", meanwhile)
    one.as_now({"p:x": (0, 3)}).index.keep(("p:x",))
    assert not one.find_broken({"p:x": (0, 3)})
    files = open_table(one.index.path).file_uris()
    rows = sorted((r["ordinal"], r["path"]) for uri in files for r in pq.read_table(uri).to_pylist())
    assert rows == [(i, f"x/{i + 1}.json") for i in range(3 if other == "compaction" else 4)]


def grown(folder: Path, name: str) -> None:
    """The writer comes back to a file that rested."""
    with (folder / "land" / name).open("a") as file:
        file.write('{"a": 2}\n')


def commit(version: int, op: str = "commit", **ranges: tuple[int, int]) -> LogEntry:
    spans = {f"p:{key}": span for key, span in ranges.items()}
    return LogEntry(version, 0.0, op, "g", "", "", "", 0, {}, spans, {}, {}, 0.0)


def test_a_file_written_in_two_parts_around_settle_is_stopped_or_told(tmp_path: Path) -> None:
    """Before it is read it parks its partition; after that a look finds it, and a replay takes all of it."""
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "y/1.json", "z/1.json")
    one.assign_offsets(("p:x", "p:y", "p:z"))
    grown(tmp_path, "x/1.json")
    assert "changed after it got its offset" in str(one.find_broken({"p:x": (0, 1)})["p:x"])
    log = [commit(2, y=(0, 1), z=(0, 1))]
    assert not explain_rewritten(one, log)
    grown(tmp_path, "y/1.json")
    (tmp_path / "land/z/1.json").unlink()
    assert one.read_ends(("p:y",)) == {"p:y": 1}, "it is not new"
    assert explain_rewritten(one, log) == {
        "p:y": "y/1.json (offset 0) changed after being consumed: what is in there now is not in the table. A replay "
        "takes it: from 0 to 1"
    }
    one.as_now({"p:y": (0, 1)}).index.keep(("p:y",))  # as a replay does
    assert not explain_rewritten(one, log)


def test_only_what_was_consumed_counts_as_rewritten_and_the_newest_alone_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = source(tmp_path)
    names = [f"x/{i}.json" for i in range(8)]
    land(tmp_path, *names)
    one.assign_offsets(("p:x",))
    for name in names:
        grown(tmp_path, name)
    log = [commit(4, x=(4, 8)), commit(3, "skip", x=(3, 4)), commit(2, x=(2, 3)), commit(1, "claim")]
    said = explain_rewritten(one, log)["p:x"]
    assert said.startswith("x/2.json (offset 2) and 4 more changed")
    assert said.endswith("A replay takes it: from 2 to 3, from 4 to 8"), "what was skipped stays out"
    looked: list[LandedFile] = []
    real = FilesSource._read_state
    monkeypatch.setattr(FilesSource, "_read_state", lambda self, file: looked.append(file) or real(self, file))
    assert explain_rewritten(one, log, most=2)["p:x"].startswith("x/6.json (offset 6) and 1 more changed")
    assert len(looked) == 2


def test_of_two_missing_settings_the_source_names_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_LANDING", raising=False)
    monkeypatch.delenv("ROTA_TABLES", raising=False)
    declared = rota.files("${ROTA_LANDING}/p", format="json", schema="a int")
    with pytest.raises(ConfigError, match="ROTA_LANDING"):
        FilesSource.of(Pipeline(source=declared, table=rota.delta("${ROTA_TABLES}/p"), name="p"))


def test_two_runs_that_see_the_same_files_give_each_one_ordinal(tmp_path: Path) -> None:
    land(tmp_path, *(f"x/{i:03}.json" for i in range(30)), *(f"y/{i:03}.json" for i in range(30)))
    both = threading.Barrier(4)

    def look(partitions: tuple[str, ...]) -> None:
        both.wait()
        source(tmp_path).assign_offsets(partitions)

    threads = [threading.Thread(target=look, args=(ps,)) for ps in 2 * [("p:x", "p:y"), ("p:y",)]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert source(tmp_path).assign_offsets(("p:x", "p:y")) == {"p:x": 30, "p:y": 30}
    assert len({source(tmp_path).locate("p:x", i) for i in range(30)}) == 30


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the transaction"])
def test_a_run_that_was_slow_to_look_gives_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Two files of one ordinal: one of them is read, and the other is never, or a second time under the next one."""
    if not guarded:
        monkeypatch.setattr(file_index.FileIndex, "_moves", lambda *_: [])
    slow = source(tmp_path)
    land(tmp_path, "x/2.json")
    real, armed = FilesSource._find_new, [True]

    def meanwhile(self: FilesSource, partition: str, known: frozenset[str]) -> list[LandedFile] | None:
        found = real(self, partition, known)
        if armed and armed.pop():
            land(tmp_path, "x/1.json")
            assert source(tmp_path).assign_offsets(("p:x",)) == {"p:x": 2}
        return found

    monkeypatch.setattr(FilesSource, "_find_new", meanwhile)
    slow.assign_offsets(("p:x",))
    rows = log(slow.index.path).rows()
    given, paths = (Counter(row[name] for row in rows) for name in ("ordinal", "path"))
    assert (given[0], paths["x/2.json"]) == ((1, 1) if guarded else (2, 2))
    assert sorted(paths) == ["x/1.json", "x/2.json"]


def test_a_long_index_is_put_together_and_says_the_same(tmp_path: Path) -> None:
    one = source(tmp_path)
    for i in range(45):
        land(tmp_path, f"x/{i:03}.json")
        one.assign_offsets(("p:x",))
    assert len(open_table(one.index.path).file_uris()) < 10
    assert [one.locate("p:x", i) for i in range(45)] == [f"x/{i:03}.json" for i in range(45)]


def test_a_process_reads_no_file_of_an_index_twice_and_keeps_none_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, seen, real = source(tmp_path), list[Path](), file_index.read_file
    monkeypatch.setattr(file_index, "read_file", lambda file: seen.append(file) or real(file))
    for i in range(90):  # put together twice
        land(tmp_path, f"x/{i:03}.json")
        one.assign_offsets(("p:x",))
    assert one.read_assigned_ends(("p:x",)) == {"p:x": 90}
    assert sum(file.rows for file in file_index._READ[one.index.path].values()) == 90
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda index: next(index.glob("*.parquet")).unlink(), "No such file"),
        (lambda index: next(index.glob("*.parquet")).write_bytes(b""), "file size is 0"),
        (lambda index: open_table(index).delete("ordinal = 0"), "has lost rows of p:x"),
    ],
    ids=["gone", "empty", "rows deleted"],
)
def test_a_damaged_index_is_one_line_with_the_way_on(
    tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    one = source(tmp_path)
    for name in ("x/1.json", "x/2.json"):
        land(tmp_path, name)
        one.assign_offsets(("p:x",))
    damage(one.index.path)
    file_index._READ.clear()
    for look in (one.read_ends, one.assign_offsets):
        with pytest.raises(EnvironmentFailed, match=rf"{said}.*: move {tmp_path}/table away, then rota adopt"):
            look(("p:x",))


def test_records_for_the_place_of_a_bad_one(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", text='{"a": 1}\r\n{"a"\n')
    with gzip.open(tmp_path / "land/x/2.json.gz", "wt") as file:
        file.write("one\ntwo")
    one.assign_offsets(("p:x",))
    assert list(one.read_records("p:x", 0)) == ['{"a": 1}', '{"a"']
    assert list(one.read_records("p:x", 1)) == ["one", "two"]
    assert one.explain_bad('{"a"').startswith("no JSON: ")
    assert one.explain_bad('{"a": "x"}') == "a field is not of its declared type"


def test_options_that_are_ours_are_refused(tmp_path: Path) -> None:
    for name in (
        "mode",
        "ignoreCorruptFiles",
        "ignoreMissingFiles",
        "modifiedBefore",
        "modifiedAfter",
        "path",
        "paths",
    ):
        with pytest.raises(ConfigError, match=name):
            source(tmp_path, options={name: "x"})


def test_a_folder_that_cannot_be_listed_is_left_out_and_no_other(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(
        tmp_path, "x/1.json", "y/1.json", "z"
    )  # a file where a folder was fails for root too, as a folder of 0700 does
    assert one.read_ends(("p:x", "p:z")) == {"p:x": 1}
    assert one.assign_offsets(("p:x", "p:y", "p:z")) == {"p:x": 1, "p:y": 1}
    assert one.assign_offsets(("p:x", "p:z")) == {"p:x": 1}
    assert one.list_keys() == ("x", "y")
    assert (
        "land/z cannot be looked at (Not a directory). Mend its rights, then: rota retry p:z"
        in one.explain_unreadable("p:z")
    )
    assert not one.explain_unreadable("p:x")


def test_a_known_file_that_cannot_be_looked_at_breaks_its_range_only(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "x/2.json", "y/1.json")
    one.assign_offsets(("p:x", "p:y"))
    unlooked(tmp_path / "land/x/2.json")
    (error,) = one.find_broken({"p:x": (0, 2), "p:y": (0, 1)}).values()
    assert isinstance(error, EnvironmentFailed)
    assert str(error).startswith(f"{tmp_path}/land/x/2.json cannot be looked at (Too many levels")
    assert str(error).endswith("Mend its rights, then: rota retry p:x")
    assert not one.find_broken({"p:x": (0, 1)})
    again = one.as_now({"p:x": (0, 2), "p:y": (0, 1)})
    assert set(again.find_broken({"p:x": (0, 2), "p:y": (0, 1)})) == {"p:x"}
    assert not explain_rewritten(one, [commit(2, x=(0, 2), y=(0, 1))])


def test_a_landing_folder_that_cannot_be_listed_is_the_environments_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json")

    def stale(path: Path) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    monkeypatch.setattr(os, "scandir", stale)
    for look in (one.read_ends, one.assign_offsets):
        with pytest.raises(EnvironmentFailed, match="Stale file handle"):
            look(("p:x",))
    monkeypatch.undo()
    one.assign_offsets(("p:x",))
    monkeypatch.setattr(os, "scandir", stale)
    unlooked(tmp_path / "land/x/1.json")
    with pytest.raises(EnvironmentFailed, match="Stale file handle"):
        one.find_broken({"p:x": (0, 1)})


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_took_the_place_of_a_consumed_file_is_not_read_again(tmp_path: Path, kind: str) -> None:
    """A replay takes a file as it is now: it followed a link out of the landing folder, and waited for a pipe for ever."""
    one = source(tmp_path)
    land(tmp_path, "x/0.json")
    one.assign_offsets(("p:x",))
    file = tmp_path / "land" / "x" / "0.json"
    file.unlink()
    if kind == "link":
        (tmp_path / "secret").write_text('{"n": 1}')
        file.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    for look, way in ((one, "then: rota retry"), (one.as_now({"p:x": (0, 1)}), "then replay")):
        said = str(look.find_broken({"p:x": (0, 1)})["p:x"])
        assert said == f"x/0.json (offset 0) is no regular file any more. Bring the file back, {way}"
    assert not one.explain_unsettled("p:x", one.find_rewritten({"p:x": (0,)})["p:x"]), (
        "a retry would wait for it for ever"
    )
