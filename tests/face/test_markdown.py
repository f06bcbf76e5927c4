"""Descriptions are Markdown to the page: what they name is shown as it is."""

import re

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.dagster.assets import checks
from rota.dagster.assets.markdown import as_code


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rota/__init__.py: it raised", "`rota/__init__.py`: it raised"),
        ("p:a_b and p:c_d (`rota why p:a_b`)", "`p:a_b` and `p:c_d` (`rota why p:a_b`)"),
        ("nothing to see.", "nothing to see."),
    ],
)
def test_a_path_is_shown_as_it_is(text: str, shown: str) -> None:
    assert as_code(text) == shown


@given(st.text("ab_*<[~ `.\n", max_size=30))
def test_nothing_is_lost_and_no_mark_is_outside_code(text: str) -> None:
    shown = as_code(text)
    assert shown.replace("`", "") == text.replace("`", "")
    if "`" not in text:
        assert not re.search(r"[_*~<\[]", re.sub(r"`[^`]*`", "", shown))


def test_a_check_names_a_file_as_it_is() -> None:
    said = checks.check_files(dg.AssetKey(["g", "membership"]), {"__p__.py": "/x/__p__.py: it raised"})
    assert said.description == "`/x/__p__.py`: it raised"
    spec = dg.AssetCheckSpec("c", asset=["p", "records"])
    assert checks.evaluate(spec, {"p:a_b": "a_b_c is no column"}, 1).description == "`p:a_b`: `a_b_c` is no column"
