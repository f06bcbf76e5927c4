"""Every folder has a key, no two share one, and back again."""

from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane import names
from rota.settings import ID

FOLDERS = st.text(min_size=1, max_size=20).filter(lambda t: "/" not in t and "\0" not in t and not _surrogate(t))


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
