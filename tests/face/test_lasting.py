"""A run that serves its worker, on the whole line: many batches in one run, and every reason to end it. No other run is
launched meanwhile: on a slow machine it waits in the queue so long that a run makes room for it."""

import itertools
from typing import Any

import pytest

from rota.coordination import overrides
from rota.ids import worker_of
from tests.face.line import Line
from tests.waiting import wait_until

REPORT = 6.0


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

    def list_reported(self, key: str) -> list[dict[str, Any]]:
        """The materializations of a partition, oldest first."""
        shown = self.line.dev.materializations("b", "records", limit=200)
        return [one for one in reversed(shown) if one["partition"] == f"b:{key}"]

    def find_owner(self, key: str) -> str:
        with self.line.tree("day") as tree:
            own = tree.owned((f"b:{key}",)).get(f"b:{key}")
        return own.incarnation or "" if own else ""

    def find_serving(self, incarnation: str) -> str:
        """The run that serves the incarnation now; empty without one."""
        runs = self.runs().values()
        mine = (r for r in runs if {"key": "rota/worker", "value": worker_of(incarnation)} in r["tags"])
        return next((r["runId"] for r in mine if r["status"] == "STARTED"), "")


def test_one_run_consumes_what_comes_reports_sums_hands_over_and_ends_when_nothing_comes(feed: Feed) -> None:
    feed.land("a", "b")
    feed.wait_consumed()
    incarnation = wait_until(lambda: feed.find_owner("a"))
    run = wait_until(lambda: feed.find_serving(incarnation))
    for _ in range(8):
        feed.land("a")
        feed.wait_consumed()
    assert run in {one["runId"] for one in feed.list_reported("a")}
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
        reported = feed.list_reported(key)
        assert sum(one["metadata"]["rows"] for one in reported) == len(numbers), "a sum of what it covers"
        ranges = [tuple(map(int, one["metadata"]["offsets"][1:-1].split(", "))) for one in reported]
        assert ranges[0][0] == 0
        assert ranges[-1][1] == len(numbers), "and always the last"
        assert [start for start, _ in ranges[1:]] == [end for _, end in ranges[:-1]]
    mine = [one for one in feed.list_reported("a") if one["runId"] == run]
    lasted = feed.runs()[run]["endTime"] - feed.runs()[run]["startTime"]
    assert len(mine) <= 2 + lasted / REPORT, "one in so many seconds, and the last"


def test_a_run_that_is_cancelled_between_two_batches_ends_and_reports_the_rest(feed: Feed) -> None:
    feed.land("c")
    feed.wait_consumed()
    incarnation = feed.find_owner("c")
    run = wait_until(lambda: feed.find_serving(incarnation))
    feed.land("c", "c")
    feed.wait_consumed()
    feed.line.dev.cancel(run)
    wait_until(lambda: feed.runs()[run]["status"] == "CANCELED", pause=1)
    landed = len(feed.landed["c"])
    wait_until(lambda: sum(one["metadata"]["rows"] for one in feed.list_reported("c")) == landed, pause=1)
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


def test_under_a_trickle_all_is_materialized_and_a_reload_ends_no_run(feed: Feed) -> None:
    """It is the last test: a click repeats the last numbers of partitions without new data, which other tests add up."""
    feed.land("a", "b")
    feed.wait_consumed()
    run = wait_until(lambda: feed.find_serving(feed.find_owner("a")))
    over = {one for one, reported in feed.runs().items() if reported["endTime"]}
    backfill = feed.line.dev.backfill([["b", kind] for kind in ("ownership", "records", "checkpoints")], None)
    feed.line.dev.reload()

    def how_it_ended() -> str:
        feed.land("a", "b")
        feed.wait_consumed()
        status = feed.line.dev.backfill_status(backfill)
        return "" if status == "REQUESTED" else status

    assert wait_until(how_it_ended, pause=1) == "COMPLETED_SUCCESS"
    assert feed.runs()[run]["status"] in ("STARTED", "SUCCESS")
    feed.land("a")
    feed.wait_consumed()
    assert {reported["status"] for one, reported in feed.runs().items() if one not in over} <= {"STARTED", "SUCCESS"}
