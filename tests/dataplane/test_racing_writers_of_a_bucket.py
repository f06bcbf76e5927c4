"""Ten writers on one table in a bucket, by the shipped ledger: the log has each commit once, whatever the store does."""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rota.local.bucket import CREDENTIALS, BucketServer, serve_buckets
from tests.dataplane.racing_writers import COMMITS, Race
from tests.faulty_bucket import LOST, FaultyStore, choose_at_random, serve_faults

PUT = re.compile(r" s3_PutObject \S*/_delta_log/(\d{20})\.json \S+ 200 ")  # one that went through


def count(race: Race, table: Path, server: BucketServer) -> dict[str, int]:
    """Count faults in the server's log and the files of its disk. All 0: the log has each commit once."""
    puts = Counter(PUT.findall(server.log.read_text()))
    there = {one.stem for one in (table / "_delta_log").glob("*.json")}
    assert len(puts) > COMMITS, "the server's log is read as it is written"
    return {
        "put twice": sum(many - 1 for many in puts.values()),
        "put and not there": len(puts.keys() - there),
        **race.count(table),
    }


@dataclass(frozen=True)
class Place:
    url: str
    table: Path
    faulty: FaultyStore


@pytest.fixture
def place(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bucket of a server whose log no other program writes."""
    with serve_buckets(tmp_path / "s3") as server, serve_faults(server) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.server.endpoint)
        name = server.make_bucket()
        yield Place(f"s3://{name}/main", server.data / name / "main", faulty)


def lose_answers_of_commits() -> Callable[[str, str], str]:
    """Return the first answer to a put of each version."""
    lost = set[str]()

    def choose(method: str, target: str) -> str:
        if method != "PUT" or not target.endswith(".json") or target in lost:
            return ""
        lost.add(target)
        return LOST

    return choose


DAYS = {
    "a good day": lambda: lambda *_: "",
    "faults of each kind": lambda: choose_at_random(1, 0.05),
    "each first answer to a commit is lost": lose_answers_of_commits,
}


@pytest.mark.parametrize("day", DAYS)
def test_ten_writers_lose_and_double_nothing(place: Place, day: str) -> None:
    place.faulty.choose = DAYS[day]()
    race = Race(place.url)
    race.run()
    race.check(place.table)
    assert not any(count(race, place.table, place.faulty.server).values())
    assert not [one for one in race.errors if "\n" in one or any(secret in one for secret in CREDENTIALS.values())]
    if day != "a good day":
        assert place.faulty.struck[LOST] > 0, place.faulty.struck


def test_on_a_store_that_overwrites_the_same_count_finds_the_damage(place: Place) -> None:
    """It accepts a put of an existing object, like a store that does not support `If-None-Match`."""

    def forget(method: str, target: str) -> None:
        if method == "PUT" and target.endswith(".json"):
            place.table.with_name("main").parent.joinpath(target.split("/", 2)[2]).unlink(missing_ok=True)

    place.faulty.before = forget
    race = Race(place.url)
    with suppress(Exception):  # a table whose log was overwritten may be unreadable
        race.run()
    found = count(race, place.table, place.faulty.server)
    assert found["put twice"] > 0, found
    assert any("the commit is not in the log" in one for one in race.errors), "an overwritten writer gets an error"
