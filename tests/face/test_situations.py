"""A sample of `python -m tests.situations`: what needs a person is said on the command line, on the page and by one alert,
and its end is reported; healthy parts are not reported."""

import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.situations.__main__ import list_situations
from tests.situations.play import Play
from tests.situations.row import Row
from tests.situations.stage import Stage

CHOSEN = (
    "typo",
    "own-garbage",
    "overrides-garbage",
    "all-drained",
    "sensor-off",
    "rests",
    "new-partition",
    "worker-joins",
)
QUIET = 60.0  # seconds for which the healthy are watched at least: as long as the others take


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Row]]:
    """All of them at once, on one stage."""
    chosen = [one for one in list_situations() if one.name in CHOSEN]
    stage = Stage(tmp_path_factory.mktemp("situations"), chosen, hurried=True)
    with patch.dict(os.environ):
        try:
            stage.start()
            yield {row.of.name: row for row in Play(stage, chosen, quiet=QUIET).play()}
        finally:
            stage.stop()


@pytest.mark.parametrize("name", CHOSEN)
def test_what_needs_an_operator_is_reported_and_nothing_else(rows: dict[str, Row], name: str) -> None:
    assert rows[name].judge(float("inf")) == "right"  # how late is measured by the command, on a machine of its own


def test_names_of_situations_are_not_taken_for_each_other() -> None:
    """What is said is found by the name in it."""
    names = sorted(one.name for one in list_situations())
    assert len(set(names)) == len(names)
    assert not [(one, other) for one in names for other in names if other.startswith(f"{one}-")]
