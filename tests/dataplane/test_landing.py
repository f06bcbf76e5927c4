"""Landing folders without Spark: which files a source lists, and that an assigned offset never changes its meaning."""

import gzip
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

import rota
from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.files import listing
from rota.dataplane.formats import lines
from rota.dataplane.ports import ASSIGN, INSPECT, Query
from rota.errors import ConfigError
from rota.pipeline import Pipeline
from tests.dataplane.landing_folders import land, open_files, source
from tests.waiting import wait_until


def test_late_and_out_of_order_names_get_the_next_offsets(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/2.json", "x/3.json")
    assert one.observe(("p:x",), ASSIGN).ends == {"p:x": 2}
    land(tmp_path, "x/1.json")
    assert one.observe(("p:x",)).ends == {"p:x": 3}
    assert one.observe(("p:x",), ASSIGN).ends == {"p:x": 3}
    assert [one.locate("p:x", i) for i in range(3)] == ["x/2.json", "x/3.json", "x/1.json"]
    assert source(tmp_path).locate("p:x", 2) == "x/1.json"


def test_looking_writes_nothing(tmp_path: Path) -> None:
    one = source(tmp_path)
    assert one.list_keys() == ()
    land(tmp_path, "x/1.json")
    assert one.list_keys() == ("x",)
    assert one.observe(("p:x", "p:none")).ends == {"p:x": 1, "p:none": 0}
    assert not (tmp_path / "table").exists()


def test_hidden_and_unrested_files_wait(tmp_path: Path) -> None:
    land(tmp_path, "x/1.json", "x/_tmp.json", "x/.2.json.part", "x/_temporary/3.json", "_x/1.json")
    now = (tmp_path / "land/x/1.json").stat().st_ctime
    waiting = replace(source(tmp_path, settle=2.0), clock=lambda: now + 1.9)
    assert waiting.list_keys() == ("x",)
    assert waiting.observe(("p:x",), ASSIGN).ends == {"p:x": 0}
    assert source(tmp_path).observe(("p:x",), ASSIGN).ends == {"p:x": 1}


def test_a_listing_returns_when_the_files_that_it_left_are_ready(tmp_path: Path) -> None:
    land(tmp_path, "x/1.json")
    rested = (tmp_path / "land/x/1.json").stat().st_ctime + 2.0
    now = [rested - 0.4]
    one = replace(source(tmp_path, settle=2.0), clock=lambda: now[0])
    seen = one.observe(("p:x",))
    assert (seen.ends, seen.ready_in) == ({"p:x": 0}, (pytest.approx(0.4, abs=1e-5),))
    assert one.observe(("p:x",), Query(ahead=0.3)).ends == {"p:x": 0}
    assert one.observe(("p:x",), Query(ahead=0.41)).ends == {"p:x": 1}
    now[0] = rested + 0.1
    seen = one.observe(("p:x",))
    assert (seen.ends, seen.ready_in) == ({"p:x": 1}, ())


def test_what_is_renamed_into_place_needs_no_rest_and_is_read_whole(tmp_path: Path) -> None:
    """With `settle=0` each poll takes all files. A file that is written in place is then taken before it is complete, and
    its partition stops once the change is detected: so rename."""
    one = source(tmp_path, settle=0.0)
    folder = tmp_path / "land" / "x"
    folder.mkdir(parents=True)
    aside, whole = folder / ".1.json", '{"a": 1}\n' * 10
    with aside.open("w") as file:
        for line in whole.splitlines(keepends=True):
            file.write(line)
            assert one.observe(("p:x",), ASSIGN).ends == {"p:x": 0}
    aside.rename(folder / "1.json")
    assert one.observe(("p:x",), ASSIGN).ends == {"p:x": 1}
    (file,) = one.index.files(("p:x",))["p:x"][0:1]
    assert file.size == len(whole)
    assert not one.find_broken({"p:x": (0, 1)})
    with (folder / "2.json").open("w") as file_in_place:
        assert one.observe(("p:x",), ASSIGN).ends == {"p:x": 2}, "in place it is taken as it is"
        file_in_place.write(whole)
    assert "changed after it got its offset" in str(one.find_broken({"p:x": (1, 2)})["p:x"])


@pytest.mark.parametrize("at", [-(2**40), 10_000_000_000, 15_000_000_000])
def test_a_file_from_another_age_stops_no_partition(tmp_path: Path, at: int) -> None:
    """Its time did not fit into 64 bits of nanoseconds, and every sensor and run of the pipeline failed."""
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "y/1.json")
    os.utime(tmp_path / "land/x/1.json", (at, at))
    assert one.observe(("p:x", "p:y"), ASSIGN).ends == {"p:x": 1, "p:y": 1}
    assert not one.find_broken({"p:x": (0, 1), "p:y": (0, 1)})
    land(tmp_path, "x/1.json")
    assert set(one.find_broken({"p:x": (0, 1)})) == {"p:x"}


def test_an_old_modification_time_does_not_make_a_file_rest(tmp_path: Path) -> None:
    land(tmp_path, "x/1.json")
    os.utime(tmp_path / "land/x/1.json", (1, 1))
    now = (tmp_path / "land/x/1.json").stat().st_ctime
    assert replace(source(tmp_path, settle=2.0), clock=lambda: now + 1).observe(("p:x",), ASSIGN).ends == {"p:x": 0}


def test_a_modification_time_ahead_keeps_no_file_waiting(tmp_path: Path) -> None:
    """From a client's clock, `cp -p` or `tar x`: the file was not read until that time, and nothing reported it."""
    land(tmp_path, "x/1.json", "x/2.json")
    os.utime(tmp_path / "land/x/1.json", (4e9, 4e9))
    os.utime(tmp_path / "land/x/2.json", (time.time() + 7200,) * 2)
    rested = max(path.stat().st_ctime for path in (tmp_path / "land/x").iterdir()) + 2.0
    one = replace(source(tmp_path, settle=2.0), clock=lambda: rested)
    assert one.observe(("p:x",)).ends == one.observe(("p:x",), ASSIGN).ends == {"p:x": 2}
    assert [file.state for file in one.list_files({"p:x": [(0, 2)]}, compare=True)] == ["same", "same"]
    assert not one.find_broken({"p:x": (0, 2)})


def test_a_clock_that_is_behind_the_file_servers_holds_back_no_file_for_long(tmp_path: Path) -> None:
    """All files waited until the clock of the run's machine reached their time: an hour without a report."""
    land(tmp_path, "x/1.json")
    rested = (tmp_path / "land/x/1.json").stat().st_ctime
    late = replace(source(tmp_path, settle=0.01), clock=lambda: rested - 3600)
    assert late.observe(("p:x",), ASSIGN).ends == {"p:x": 0}
    wait_until(lambda: time.time() > rested + 0.05)
    land(tmp_path, "x/2.json")
    assert late.observe(("p:x",), ASSIGN).ends == {"p:x": 1}


def test_hive_style_names_and_folders_in_folders(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "carrier=AA/month=01/a.json", "carrier=AA/month=02/a.json", "a b*[1]/x.json")
    assert one.list_keys() == ("a b*%5B1%5D", "carrier=AA")
    assert one.observe(("p:carrier=AA", "p:a b*%5B1%5D"), ASSIGN).ends == {"p:carrier=AA": 2, "p:a b*%5B1%5D": 1}


def test_a_name_too_long_for_an_id_is_left_out_and_reported(tmp_path: Path) -> None:
    land(tmp_path, "x" * 130 + "/1.json", "y/1.json")
    one = source(tmp_path)
    assert one.list_keys() == ("y",)
    assert one.observe((), INSPECT).ignored == {"x" * 130: listing.TOO_LONG}


def test_only_regular_files_below_the_root_are_read_and_the_rest_is_reported(tmp_path: Path) -> None:
    """A pipe would block the run that opens it; a link would add a file that never landed, such as /etc/passwd."""
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
    assert one.observe(("p:x", "p:key")).ends == {"p:x": 2, "p:key": 0}
    assert one.observe(("p:x",), ASSIGN).ends == {"p:x": 2}
    assert [one.locate("p:x", i) for i in range(2)] == ["x/1.json", "x/deep/2.json"]
    assert one.observe((), INSPECT).ignored == {
        "lone.json": listing.ASIDE,
        "key": listing.LINK,
        "x/link.json": listing.LINK,
        "x/inner.json": listing.LINK,
        "x/folder": listing.LINK,
        "x/pipe.json": listing.NO_FILE,
        os.fsdecode(b"x/caf\xe9.json"): listing.NO_TEXT,
    }


def open_all(place: str, table: str) -> None:
    declared = Pipeline(source=rota.files(place, format="json", schema="a int"), table=rota.delta(table), name="p")
    open_files(declared)
    PipelineTables.of(declared, "g", "0" * 32)


@pytest.mark.parametrize("address", ["s3a://b", "hdfs:/x", "file:///tmp/x", "${PLACE}/a"])
def test_a_scheme_that_is_not_served_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """A folder named `s3:` was made in the working directory, and the objects of the bucket were never read."""
    monkeypatch.setenv("PLACE", "abfss://c@account")
    monkeypatch.chdir(tmp_path)
    for place, table in ((address, "table"), ("land", address)):
        with pytest.raises(
            ConfigError, match=r"is an address of (s3a|hdfs|file|abfss):.* s3://bucket/prefix|s3://bucket/prefix"
        ):
            open_all(place, table)
    assert not list(tmp_path.iterdir())


def test_both_caps_and_at_least_one(tmp_path: Path) -> None:
    land(tmp_path, *(f"x/{i}.json" for i in range(5)), text="0123456789")
    source(tmp_path).observe(("p:x",), ASSIGN)
    for caps, end in (
        ({}, 5),
        ({"max_files": 2}, 2),
        ({"max_bytes": 39}, 3),
        ({"max_bytes": 1}, 1),
        ({"max_job_files": 2}, 2),
    ):
        assert source(tmp_path, **caps).plan_jobs({"p:x": 0}, {"p:x": 5}) == ({"p:x": (0, end)},)
    assert source(tmp_path).plan_jobs({"p:x": 5}, {"p:x": 5}) == ()


def test_of_two_missing_settings_the_source_names_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_LANDING", raising=False)
    monkeypatch.delenv("ROTA_TABLES", raising=False)
    declared = rota.files("${ROTA_LANDING}/p", format="json", schema="a int")
    with pytest.raises(ConfigError, match="ROTA_LANDING"):
        open_files(Pipeline(source=declared, table=rota.delta("${ROTA_TABLES}/p"), name="p"))


def test_records_for_the_place_of_a_bad_one(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", text='{"a": 1}\r\n{"a"\n')
    with gzip.open(tmp_path / "land/x/2.json.gz", "wt") as file:
        file.write("one\ntwo")
    land(tmp_path, "x/3.json", text='\ufeff{"a"\n')
    one.observe(("p:x",), ASSIGN)
    assert list(one.list_raw("p:x", 0)) == ['{"a": 1}', '{"a"']
    assert list(one.list_raw("p:x", 1)) == ["one", "two"]
    assert list(one.list_raw("p:x", 2)) == ['{"a"']
    assert lines.explain_bad("json", '{"a"', []).startswith("no JSON: ")
    assert lines.explain_bad("json", '{"a": "x", "b": null}', [("a",), ("b",), ("c",)]) == "not of the declared type: a"


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
