"""The user's hour: one file copied, one line changed, and there is a pipeline; no other file is touched."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.face.dagster_dev import ROOT
from tests.face.line import Line
from tests.waiting import wait_until

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour\n"
)
FLIGHT = "2013,1,1,517,515,{delay},830,819,11,{carrier},1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n"


@pytest.fixture
def mine(line: Line) -> Iterator[Path]:
    """The user's file, with a worker for it; the next reload takes it away."""
    line.join("u1", "default")
    yield line.pipelines / "mine.py"
    (line.pipelines / "mine.py").unlink()
    line.kill("u1")


def test_a_copy_of_flights_with_a_folder_of_its_own_is_a_pipeline(line: Line, mine: Path) -> None:
    text = (ROOT / "pipelines" / "flights.py").read_text()
    mine.write_text(text.replace("${ROTA_LANDING}/flights", "${ROTA_LANDING}/mine"))
    line.dev.reload()
    for carrier, delays in (("UA", (2, 4)), ("AA", (10, "NA"))):
        folder = line.landing / "mine" / carrier
        folder.mkdir(parents=True)
        lines = "".join(FLIGHT.format(delay=delay, carrier=carrier) for delay in delays)
        (folder / "2013-01.csv").write_text(HEADER + lines)
    late = wait_until(
        lambda: [m for m in line.dev.materializations("mine", "delays") if m["metadata"]["flights"] == 4], 120, pause=1
    )
    assert "| AA" in late[0]["metadata"]["minutes late"]
    assert sorted({partition for partition, _ in line.rows("mine", "carrier")}) == ["mine:AA", "mine:UA"]
