"""Every folder has a key, no two share one, and back again."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane import names
from rota.dataplane.landing import Landing
from rota.pipeline import Delta, Files, Pipeline
from rota.settings import ID

FOLDERS = st.text(min_size=1, max_size=20).filter(
    lambda t: "/" not in t and "\0" not in t and t[0] not in "_." and not _surrogate(t)
)
KEYS = st.from_regex(r"[A-Za-z0-9](_[0-9a-f]{2}|[A-Za-z0-9._-]){0,12}", fullmatch=True)


def _surrogate(text: str) -> bool:
    return any(0xD800 <= ord(c) <= 0xDFFF for c in text)


@given(FOLDERS)
def test_a_key_leads_back_to_its_folder_and_is_an_id(folder: str) -> None:
    assert names.folder(names.key(folder)) == folder
    assert len(names.key(folder)) > 40 or ID.fullmatch(names.key(folder))


def test_the_names_people_see() -> None:
    shown = {
        "AA": "AA",
        "carrier=AA": "carrier_3dAA",
        "my_folder": "my_folder",
        "a_3d": "a_5f3d",
        "ö b": "z_00_c3_b6_20b",
    }
    assert {folder: names.key(folder) for folder in shown} == shown
    assert names.folder(names.key("bad\udce9")) == "bad\udce9"  # a name that is no UTF-8


@given(KEYS | KEYS.map(lambda k: f"z_00{k}"))
def test_a_key_that_leads_anywhere_leads_back_and_to_a_folder_of_the_landing_folder(key: str) -> None:
    try:
        folder = names.folder(key)
    except OSError:
        return
    assert names.key(folder) == key
    assert not {"/", "\0"} & set(folder)
    assert folder[0] not in "_."


NOWHERE = "z_00_2e_2e_2fsecret z_00.. z_00. z_00 a_2fb a_2f.. a_00b z_00AA a_41 z_00_tmp z_00.x _41 . .. a/b ä a\0"


@pytest.mark.parametrize(
    "key", ["", *NOWHERE.split(" "), "a\udce9", "z_00z_00", "z_00_2e", "_2fetc", "z_00_2fetc_2fpasswd"]
)
def test_a_key_that_no_folder_has_leads_nowhere(key: str) -> None:
    with pytest.raises(OSError, match="no folder has this key"):
        names.folder(key)


@pytest.mark.parametrize("guarded", [True, False])
def test_nothing_outside_the_landing_folder_gets_an_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A key that somebody wrote into ZooKeeper waits, and no other; without the guard it reads what it names."""
    for folder in ("land/good", "secret"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "0.json").write_text('{"n": 1}\n')
    if not guarded:

        def decoded(key: str) -> str:
            return names.ESCAPED.sub(lambda m: bytes([int(m[1], 16)]), key.removeprefix(names.FRONT).encode()).decode()

        monkeypatch.setattr(names, "folder", decoded)
    source = Files(str(tmp_path / "land"), "json", "n int", settle=0.0)
    landing = Landing.of(replace(Pipeline(source, Delta(str(tmp_path / "table"))), name="p"))
    hostile = "p-z_00_2e_2e_2fsecret"
    given = landing.assign_offsets((hostile, "p-good"))
    assert given.get(hostile, 0) == (0 if guarded else 1), "files outside that got an offset"
    assert given["p-good"] == 1
    if guarded:
        assert "rota forget --pipeline" in landing.explain_unreadable(hostile)
        assert landing.read_ends((hostile,)) == {}
