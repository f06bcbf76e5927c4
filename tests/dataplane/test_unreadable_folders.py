"""An unreadable folder or file stops its own partition or range only."""

import errno
import os
from pathlib import Path

import pytest

from rota.dataplane.ports import ASSIGN, ENDS
from rota.errors import EnvironmentFailed
from rota.run.rewritten import explain_rewritten
from tests.dataplane.landing_folders import land, make_entry, make_unreadable, source


def test_a_folder_that_cannot_be_listed_is_left_out_and_no_other(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(
        tmp_path, "x/1.json", "y/1.json", "z"
    )  # a file in place of a folder fails for root, too, like a folder of mode 0700 for others
    assert one.observe(("p:x", "p:z")).ends == {"p:x": 1}
    assert one.observe(("p:x", "p:y", "p:z"), ASSIGN).ends == {"p:x": 1, "p:y": 1}
    assert one.observe(("p:x", "p:z"), ASSIGN).ends == {"p:x": 1}
    assert one.list_keys() == ("x", "y")
    assert "land/z cannot be looked at (Not a directory). Mend its rights" in one.observe(("p:z",)).unreadable["p:z"]
    assert not one.observe(("p:x",)).unreadable


def test_a_known_file_that_cannot_be_looked_at_breaks_its_range_only(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json", "x/2.json", "y/1.json")
    one.observe(("p:x", "p:y"), ASSIGN)
    make_unreadable(tmp_path / "land/x/2.json")
    (error,) = one.find_broken({"p:x": (0, 2), "p:y": (0, 1)}).values()
    assert isinstance(error, EnvironmentFailed)
    assert str(error).startswith(f"{tmp_path}/land/x/2.json cannot be looked at (Too many levels")
    assert str(error).endswith("Mend its rights")
    assert not one.find_broken({"p:x": (0, 1)})
    again = one.reread({"p:x": (0, 2), "p:y": (0, 1)})
    assert set(again.find_broken({"p:x": (0, 2), "p:y": (0, 1)})) == {"p:x"}
    assert not explain_rewritten(one, [make_entry(2, x=(0, 2), y=(0, 1))])


def test_a_landing_folder_that_cannot_be_listed_is_the_environments_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = source(tmp_path)
    land(tmp_path, "x/1.json")

    def stale(path: Path) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    monkeypatch.setattr(os, "scandir", stale)
    for query in (ENDS, ASSIGN):
        with pytest.raises(EnvironmentFailed, match="Stale file handle"):
            one.observe(("p:x",), query)
    monkeypatch.undo()
    one.observe(("p:x",), ASSIGN)
    monkeypatch.setattr(os, "scandir", stale)
    make_unreadable(tmp_path / "land/x/1.json")
    with pytest.raises(EnvironmentFailed, match="Stale file handle"):
        one.find_broken({"p:x": (0, 1)})
