"""A file that changed after it got its offset breaks its range only; a replay reads its new content."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rota.dataplane.files import file_index
from rota.dataplane.files.disk import DiskLanding
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.ports import ASSIGN
from rota.run.rewritten import explain_rewritten
from tests.dataplane.landing_folders import land, make_entry, source


def test_a_link_in_place_of_a_file_that_has_its_offset_is_not_followed(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "y/1.json")
    one.observe(("p:x",), ASSIGN)
    (tmp_path / "land/x/1.json").rename(tmp_path / "land/y/2.json")
    (tmp_path / "land/x/1.json").symlink_to(tmp_path / "land/y/2.json")
    assert "is no regular file any more" in str(one.find_broken({"p:x": (0, 1)})["p:x"])


def test_a_file_that_changed_or_vanished_breaks_its_range_only(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "x/2.json", "y/1.json", "z/1.json")
    one.observe(("p:x", "p:y", "p:z"), ASSIGN)
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
    one.observe(("p:x", "p:y"), ASSIGN)
    land(tmp_path, "x/2.json", "x/3.json", "y/1.json", text='{"a": 2}{"a": 3}\n')
    now = one.reread({"p:x": (1, 2), "p:y": (0, 1)})
    assert not now.find_broken({"p:x": (0, 2), "p:y": (0, 1)})
    assert set(one.find_broken({"p:x": (1, 2), "p:y": (0, 1)})) == {"p:x", "p:y"}, "only the reader sees them so"
    now.index.keep(("p:x",))
    assert set(one.find_broken({"p:x": (0, 2), "p:y": (0, 1)})) == {"p:y"}
    assert "x/3.json (offset 2) changed" in str(one.find_broken({"p:x": (0, 3)})["p:x"]), "it was not read again"
    version = DeltaTable(one.index.location).version()
    now.index.keep(("p:x",))
    assert DeltaTable(one.index.location).version() == version, "nothing new is written"
    assert [one.locate("p:x", i) for i in range(3)] == ["x/1.json", "x/2.json", "x/3.json"]
    assert one.observe(("p:x", "p:y"), ASSIGN).ends == {"p:x": 3, "p:y": 1}


def test_what_changes_while_it_is_read_again_or_is_gone_breaks_its_range(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "y/1.json")
    one.observe(("p:x", "p:y"), ASSIGN)
    (tmp_path / "land/y/1.json").unlink()
    now = one.reread({"p:x": (0, 1), "p:y": (0, 1)})
    land(tmp_path, "x/1.json", text='{"a": 2}{"a": 3}\n')
    broken = now.find_broken({"p:x": (0, 1), "p:y": (0, 1)})
    assert str(broken["p:x"]).startswith("p:x: x/1.json (offset 0) changed while it was read again")
    assert str(broken["p:y"]).startswith("p:y: y/1.json (offset 0) vanished. Bring it back, or give a range without it")


@pytest.mark.parametrize("other", ["compaction", "new files"])
def test_what_is_kept_beside_other_writers_of_the_index_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    one = source(tmp_path)
    for name in "123":
        land(tmp_path, f"x/{name}.json")
        one.observe(("p:x",), ASSIGN)
    land(tmp_path, "x/2.json", text='{"a": 2}{"a": 3}\n')
    real, armed = file_index.FileIndex.rewrite_renewed, [True]

    def meanwhile(*args: object) -> object:
        found = real(*args)  # type: ignore[arg-type]
        if armed and armed.pop():
            if other == "compaction":
                DeltaTable(one.index.location).optimize.compact()
            else:
                land(tmp_path, "x/4.json")
                one.observe(("p:x",), ASSIGN)
        return found

    monkeypatch.setattr(file_index.FileIndex, "rewrite_renewed", meanwhile)
    one.reread({"p:x": (0, 3)}).index.keep(("p:x",))
    assert not one.find_broken({"p:x": (0, 3)})
    files = DeltaTable(one.index.location).file_uris()
    rows = sorted((r["ordinal"], r["path"]) for uri in files for r in pq.read_table(uri).to_pylist())
    assert rows == [(i, f"x/{i + 1}.json") for i in range(3 if other == "compaction" else 4)]


def append_record(folder: Path, name: str) -> None:
    """The writer appends to a file after a pause."""
    with (folder / "land" / name).open("a") as file:
        file.write('{"a": 2}\n')


def test_a_file_written_in_two_parts_around_settle_is_stopped_or_reported(tmp_path: Path) -> None:
    """If it is not read yet, it parks its partition; otherwise a check finds it, and a replay reads all of it."""
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "y/1.json", "z/1.json")
    one.observe(("p:x", "p:y", "p:z"), ASSIGN)
    append_record(tmp_path, "x/1.json")
    assert "changed after it got its offset" in str(one.find_broken({"p:x": (0, 1)})["p:x"])
    log = [make_entry(2, y=(0, 1), z=(0, 1))]
    assert not explain_rewritten(one, log)
    append_record(tmp_path, "y/1.json")
    (tmp_path / "land/z/1.json").unlink()
    assert one.observe(("p:y",)).ends == {"p:y": 1}, "it is not new"
    assert explain_rewritten(one, log) == {
        "p:y": "y/1.json (offset 0) changed after being consumed: what is in there now is not in the table. A replay "
        "takes it: from 0 to 1"
    }
    one.reread({"p:y": (0, 1)}).index.keep(("p:y",))  # as a replay does
    assert not explain_rewritten(one, log)


def test_only_what_was_consumed_counts_as_rewritten_and_the_newest_alone_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = source(tmp_path)
    names = [f"x/{i}.json" for i in range(8)]
    land(tmp_path, *names)
    one.observe(("p:x",), ASSIGN)
    for name in names:
        append_record(tmp_path, name)
    log = [make_entry(4, x=(4, 8)), make_entry(3, "skip", x=(3, 4)), make_entry(2, x=(2, 3)), make_entry(1, "claim")]
    said = explain_rewritten(one, log)["p:x"]
    assert said.startswith("x/2.json (offset 2) and 4 more changed")
    assert said.endswith("A replay takes it: from 2 to 3, from 4 to 8"), "what was skipped stays out"
    looked: list[LandedFile] = []
    real = DiskLanding.read_state
    monkeypatch.setattr(DiskLanding, "read_state", lambda self, file: looked.append(file) or real(self, file))
    assert explain_rewritten(one, log, most=2)["p:x"].startswith("x/6.json (offset 6) and 1 more changed")
    assert len(looked) == 2


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_took_the_place_of_a_consumed_file_is_not_read_again(tmp_path: Path, kind: str) -> None:
    """A replay reads the present file: it followed a link out of the landing folder, and waited for a pipe for ever."""
    one = source(tmp_path)
    land(tmp_path, "x/0.json")
    one.observe(("p:x",), ASSIGN)
    file = tmp_path / "land" / "x" / "0.json"
    file.unlink()
    if kind == "link":
        (tmp_path / "secret").write_text('{"n": 1}')
        file.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    for look, way in ((one, "then: rota retry p:x"), (one.reread({"p:x": (0, 1)}), "then replay p:x")):
        said = str(look.find_broken({"p:x": (0, 1)})["p:x"])
        assert said == f"p:x: x/0.json (offset 0) is no regular file any more. Bring the file back, {way}"
    (found,) = one.list_files({"p:x": [(0, 1)]}, compare=True)
    assert found.state != "changing", "a retry would wait for it for ever"
