"""A run that serves its worker, on the whole line: many batches in one run, and every reason to end it. One that a person
cancels while Spark works for it: Spark stops, nothing is committed, nothing is lost."""

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rota.coordination import overrides
from rota.ids import worker_of
from tests.face.line import Line
from tests.waiting import wait_until

REPORT = 6.0
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


@pytest.fixture(scope="module")
def feed(line: Line) -> "Feed":
    """Pipeline `b` of group `day`; each test has keys of its own, all new at once: one epoch takes them in."""
    feed = Feed(line)
    feed.land("a", "b", "c", "d")
    feed.wait_consumed()
    return feed


class Feed:
    """Files of one record in the partitions of pipeline `b`, a number a file."""

    def __init__(self, line: Line) -> None:
        self.line, self.numbers, self.landed = line, itertools.count(1), dict[str, list[int]]()
        self.earlier = {r["runId"] for r in line.dev.runs(rota__consume="b") if r["endTime"]}

    def land(self, *keys: str) -> None:
        for key in keys:
            number = next(self.numbers)
            self.line.land("b", key, number)
            self.landed.setdefault(key, []).append(number)

    def wait_consumed(self) -> None:
        self.line.holds("b", self.landed)

    def runs(self) -> dict[str, dict[str, Any]]:
        """The consuming runs by id, but for those that had ended before."""
        return {r["runId"]: r for r in self.line.dev.runs(rota__consume="b") if r["runId"] not in self.earlier}

    def list_told(self, key: str) -> list[dict[str, Any]]:
        """What was told of a partition, oldest first."""
        shown = self.line.dev.materializations("b", "records", limit=200)
        return [one for one in reversed(shown) if one["partition"] == f"b:{key}"]

    def find_owner(self, key: str) -> str:
        with self.line.tree("day") as tree:
            own = tree.owned((f"b:{key}",)).get(f"b:{key}")
        return own.incarnation or "" if own else ""

    def find_serving(self, incarnation: str) -> str:
        """The run that serves the incarnation now; empty without one."""
        runs = self.runs().values()
        mine = (r for r in runs if {"key": "rota/incarnation", "value": incarnation} in r["tags"])
        return next((r["runId"] for r in mine if r["status"] == "STARTED"), "")


def cancel_at_work(line: Line, folder: Path) -> None:
    """The batches of pipeline `c` wait until there is a gate in the folder, and touch a file a process meanwhile."""
    with line.change("c", "transform", WAITS.format(gate=str(folder / "gate"), beat=str(folder / "beat-"))):

        def find_beating() -> set[Path]:
            return {beat for beat in folder.glob("beat-*") if time.time() - beat.stat().st_mtime < 3}

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
        (folder / "gate").touch()
        line.holds("c", {"held": [1, 2]})


@pytest.fixture(scope="module")
def cancelled(line: Line, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[None]]:
    """It is played in group `night` while the tests of group `day` go on."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(cancel_at_work, line, tmp_path_factory.mktemp("gate"))


@pytest.mark.usefixtures("cancelled")
def test_one_run_consumes_what_comes_tells_sums_hands_over_and_ends_when_nothing_comes(feed: Feed) -> None:
    feed.land("a", "b")
    feed.wait_consumed()
    incarnation = wait_until(lambda: feed.find_owner("a"))
    run = wait_until(lambda: feed.find_serving(incarnation))
    for _ in range(8):
        feed.land("a")
        feed.wait_consumed()
    assert run in {one["runId"] for one in feed.list_told("a")}
    assert feed.find_serving(incarnation) == run, "no launch for what came"

    taker = "w1" if worker_of(incarnation) == "w2" else "w2"
    with feed.line.tree("day") as tree:
        overrides.pin(tree, "b:a", taker)

        def has_handed_over() -> bool:
            feed.land("b") if feed.find_owner("b") == incarnation else feed.land("a")  # the run does not end meanwhile
            return worker_of(feed.find_owner("a")) == taker

        wait_until(has_handed_over, pause=2)
        assert feed.runs()[run]["status"] == "STARTED", "a hand-over waits for no run"
        overrides.unpin(tree, ["b:a"])
    feed.land("a")
    feed.wait_consumed()
    wait_until(lambda: feed.runs()[run]["status"] == "SUCCESS", pause=1)
    wait_until(lambda: all(r["status"] == "SUCCESS" for r in feed.runs().values()), pause=1)
    assert "the run ends: nothing came for " in feed.line.dev.messages(run)
    for key, numbers in feed.landed.items():
        told = feed.list_told(key)
        assert sum(one["metadata"]["rows"] for one in told) == len(numbers), "a sum of what it covers"
        ranges = [tuple(map(int, one["metadata"]["offsets"][1:-1].split(", "))) for one in told]
        assert ranges[0][0] == 0
        assert ranges[-1][1] == len(numbers), "and always the last"
        assert [start for start, _ in ranges[1:]] == [end for _, end in ranges[:-1]]
    mine = [one for one in feed.list_told("a") if one["runId"] == run]
    lasted = feed.runs()[run]["endTime"] - feed.runs()[run]["startTime"]
    assert len(mine) <= 2 + lasted / REPORT, "one in so many seconds, and the last"


def test_a_run_that_is_cancelled_between_two_batches_ends_and_tells_what_it_has_to_tell(feed: Feed) -> None:
    feed.land("c")
    feed.wait_consumed()
    incarnation = feed.find_owner("c")
    run = wait_until(lambda: feed.find_serving(incarnation))
    feed.land("c", "c")
    feed.wait_consumed()
    feed.line.dev.cancel(run)
    wait_until(lambda: feed.runs()[run]["status"] == "CANCELED", pause=1)
    landed = len(feed.landed["c"])
    wait_until(lambda: sum(one["metadata"]["rows"] for one in feed.list_told("c")) == landed, pause=1)
    feed.land("c")
    feed.wait_consumed()


def test_a_run_whose_pipeline_file_changes_ends_and_the_next_one_has_the_new_one(feed: Feed) -> None:
    feed.land("d")
    feed.wait_consumed()
    run = wait_until(lambda: feed.find_serving(feed.find_owner("d")))
    with feed.line.change("b", "lambda df: df.withColumn('n', df.n + 1000)"):
        feed.land("d")
        wait_until(lambda: feed.runs()[run]["status"] == "SUCCESS", pause=1)
        assert "the run ends: the file of pipeline b changed" in feed.line.dev.messages(run)
        feed.landed["d"][-1] += 1000
        feed.wait_consumed()


def test_a_cancelled_run_stops_spark_commits_nothing_and_loses_nothing(cancelled: Future[None]) -> None:
    cancelled.result()
