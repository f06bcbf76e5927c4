"""The user's hour: one file copied, one line changed, a reload, and there is a pipeline; no other file is touched."""

import pytest

from rota.settings import Settings
from tests.face.line import Line
from tests.face.reload import Reload
from tests.waiting import wait_until


def test_a_reload_ends_the_ticks_of_the_code_before_it(reload: Reload) -> None:
    """The tick of a new pipeline's group used the old code for up to its window, and did not see the new folder."""
    assert reload.ended - reload.began < Settings().tick.total_seconds() - 1, "not by itself"


@pytest.mark.usefixtures("reload")
def test_a_copy_of_flights_with_a_folder_of_its_own_is_a_pipeline(line: Line) -> None:
    late = wait_until(
        lambda: [m for m in line.dev.materializations("mine", "delays") if m["metadata"]["flights"] == 4], pause=1
    )
    assert "| AA" in late[0]["metadata"]["minutes late"]
    assert sorted({partition for partition, _ in line.rows("mine", "carrier")}) == ["mine:AA", "mine:UA"]
