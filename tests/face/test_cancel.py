"""A run that a person cancels on the page while Spark works for it: Spark stops, nothing is committed, nothing is lost."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.face.line import Line
from tests.waiting import wait_until

WAITS = """
def waits(n):
    \"\"\"At the gate, and shows that it does.\"\"\"
    import os
    import time

    while not os.path.exists({gate!r}):
        with open({beat!r} + str(os.getpid()), "w"):
            pass
        time.sleep(0.1)
    return n


def transform(df):
    from pyspark.sql.functions import udf

    return df.withColumn("n", udf(waits, "int")("n"))
"""


@pytest.fixture
def held(line: Line, tmp_path: Path) -> Iterator[Path]:
    """The gate of pipeline `c`, whose batches wait until it is there and touch a file a process meanwhile."""
    with line.change("c", "transform", WAITS.format(gate=str(tmp_path / "gate"), beat=str(tmp_path / "beat-"))):
        yield tmp_path / "gate"


def test_a_cancelled_run_stops_spark_commits_nothing_and_loses_nothing(line: Line, held: Path) -> None:
    def find_beating() -> set[Path]:
        return {beat for beat in held.parent.glob("beat-*") if time.time() - beat.stat().st_mtime < 3}

    line.land("c", "held", 1, 2)
    first = wait_until(find_beating)
    with line.tree("night") as tree:
        (run,) = {view.run_id for view in tree.runs() if "c:held" in view.partitions}
    line.dev.cancel(run)
    wait_until(lambda: line.dev.find_status(run) == "CANCELED", pause=1)
    wait_until(lambda: not find_beating() & first)
    wait_until(find_beating)  # the sensor found that the work is left and launched another
    assert not [row for row in line.rows("c") if row[0] == "c:held"]
    with line.tree("night") as tree:
        assert run not in {view.run_id for view in tree.runs()}
        assert not tree.parked()
    held.touch()
    line.holds("c", {"held": [1, 2]})
