"""Every folder has a key, no two share one, and back again; a partition's folder for Spark leads back to it."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane import names
from rota.dataplane.ports import ASSIGN
from rota.ids import MAX_PARTITION, is_key
from rota.pipeline import Pipeline, delta, files
from tests.dataplane.landing_folders import open_files

FOLDERS = st.text(min_size=1, max_size=20).filter(
    lambda t: "/" not in t and "\0" not in t and t[0] not in "_." and not _surrogate(t)
)
KEYS = st.from_regex(r"[A-Za-z0-9 .%](%[0-9A-Fa-f]{2}|[A-Za-z0-9 .%_-]){0,12}", fullmatch=True)


def _surrogate(text: str) -> bool:
    return any(0xD800 <= ord(c) <= 0xDFFF for c in text)


@given(FOLDERS)
def test_a_key_leads_back_to_its_folder_and_is_one(folder: str) -> None:
    assert names.folder(names.key(folder)) == folder
    assert is_key(names.key(folder))


def test_the_names_people_see() -> None:
    shown = {
        "AA": "AA",
        "shop=1": "shop=1",
        "my_folder": "my_folder",
        "a_3d": "a_3d",
        "Café Zürich": "Café Zürich",
        "100%": "100%25",
    }
    assert {folder: names.key(folder) for folder in shown} == shown
    assert names.folder(names.key("bad\udce9")) == "bad\udce9"  # a name that is no UTF-8


@given(KEYS | KEYS.map(lambda k: f"%2E%2E%2F{k}") | KEYS.map(lambda k: f"../{k}"))
def test_a_key_that_leads_anywhere_leads_back_and_to_a_folder_of_the_landing_folder(key: str) -> None:
    try:
        folder = names.folder(key)
    except OSError:
        return
    assert names.key(folder) == key
    assert not {"/", "\0"} & set(folder)
    assert folder[0] not in "_."


NOWHERE = (
    "..%2Fsecret %2E%2E%2Fsecret %2E%2E %2E a%2Fb a%2F.. a%00b %41A a%41 _tmp .x %5Ftmp . .. a/b a\0 % %4 %zz a%2fb a%c3%a9 "
    "a%C3%A9 %EF%BF%BD%80% a...b %2e%2e%2fsecret"
)


@pytest.mark.parametrize(
    "key",
    [
        "",
        " ",
        "a ",
        " a",
        "a  b",
        *NOWHERE.split(" "),
        "a\udce9",
        "\ud800",
        "a\n",
        "%2Fetc",
        "..%2Fetc%2Fpasswd",
        "a,b",
    ],
)
def test_a_key_that_no_folder_has_leads_nowhere(key: str) -> None:
    with pytest.raises(OSError, match="no folder has this key"):
        names.folder(key)


@pytest.mark.parametrize("guarded", [True, False])
def test_nothing_outside_the_landing_folder_gets_an_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A key that another program wrote into ZooKeeper waits, and no other; without the guard it reads what it names."""
    for folder in ("land/good", "secret"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "0.json").write_text('{"n": 1}\n')
    if not guarded:
        monkeypatch.setattr(names, "folder", unquote)
    source = files(str(tmp_path / "land"), format="json", schema="n int", settle=0.0)
    landing = open_files(replace(Pipeline(source, delta(str(tmp_path / "table"))), name="p"))
    hostile = "p:..%2Fsecret"
    given = landing.observe((hostile, "p:good"), ASSIGN).ends
    assert given.get(hostile, 0) == (0 if guarded else 1), "files outside that got an offset"
    assert given["p:good"] == 1
    if guarded:
        assert "rota forget --pipeline" in landing.observe((hostile,)).unreadable[hostile]
        assert landing.observe((hostile,)).ends == {}


@given(st.text(min_size=1, max_size=MAX_PARTITION // 4).filter(lambda t: not _surrogate(t)))
def test_a_folder_for_spark_leads_back_to_its_partition_and_fits_any_disk(text: str) -> None:
    partition = f"p:{text}"
    assert names.partition(names.split(partition)) == partition
    assert names.split(partition).isalnum()
    assert len(f"_partition={names.split('p:' + 'x' * (MAX_PARTITION - 2))}") <= 255
