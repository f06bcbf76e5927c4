"""Ten writers on one table in a bucket, by the shipped ledger: each commit is there once, whatever the store does."""

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.dataplane import footers, names
from rota.dataplane.delta.tables import open_table
from rota.errors import EnvironmentFailed, Fenced, OffsetGap
from rota.ledger.ledger import Ledger
from rota.ledger.values import Batch, TableClaim
from rota.local.bucket import CREDENTIALS, BucketServer, serve_buckets
from rota.stores import open_files
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.delta_tables import META, SCHEMA, expect_rows
from tests.faulty_bucket import LOST, FaultyStore, choose_at_random, serve_faults

WRITERS, COMMITS = 10, 3
PUT = re.compile(r" s3_PutObject \S*/_delta_log/(\d{20})\.json \S+ 200 ")  # one that went through


@dataclass
class Race:
    """What writers tell of what they did."""

    location: str
    tokens: Any = field(default_factory=lambda: iter(range(1, 10**6)))
    told: list[tuple[str, str]] = field(default_factory=list)  # partition and id of commits that the ledger said are in
    refused: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def write(self, writer: int) -> None:
        """In turn a partition that another wants, too, once, and its own, until that is in."""
        table = open_table(self.location, "g", META)
        for _ in range(COMMITS):
            self.consume(table, f"of two {writer // 2}", next(self.tokens))
            while not self.consume(table, f"own {writer}", 1):
                assert len(self.errors) < 500, self.errors[-3:]

    def consume(self, table: Ledger, partition: str, token: int) -> bool:
        """Whether it went in; after an error it begins anew, as a run does."""
        try:
            claimed = table.claim({partition: token}, {partition: 0})
            if not claimed.newer:
                self.told.append((partition, table.commit(claimed, make_batch(table, claimed)).commit))
                return True
            self.refused["claim"] += 1
        except (Fenced, OffsetGap) as error:
            self.refused[type(error).__name__] += 1
        except (EnvironmentFailed, OSError) as error:  # the second by the writing of a file
            self.errors.append(str(error))
        return False

    def run(self) -> None:
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(self.write, range(WRITERS)))


def make_batch(table: Ledger, claimed: TableClaim) -> Batch:
    """Two offsets of each partition, a row each."""
    attempt, ranges = uuid.uuid4().hex, {p: (at, at + 2) for p, at in claimed.offsets.items()}
    files = []
    for p, (start, end) in ranges.items():
        path = f"data/{attempt}/{names.split(p)}/f.parquet"
        rows = pa.table({"_partition": [p] * (end - start), "_offset": list(range(start, end))})
        pq.write_table(rows.replace_schema_metadata(SCHEMA), path, filesystem=open_files(table.location))
        files.append(footers.read_footer(table.location, path))
    counts = {p: end - start for p, (start, end) in ranges.items()}
    return Batch(uuid.uuid4().hex, "run", "w@0", attempt, 3, ranges, tuple(files), counts)


def count(race: Race, table: Path, server: BucketServer) -> dict[str, int]:
    """By the server's log and the files of its disk. All 0: each commit is there once."""
    puts = Counter(PUT.findall(server.log.read_text()))
    there = sorted((table / "_delta_log").glob("*.json"))
    said = [json.loads(line) for one in there for line in one.read_text().splitlines()]
    found = Counter(one["commitInfo"].get("rota.commit") for one in said if "commitInfo" in one)
    assert len(puts) > COMMITS, "the server's log is read as it is written"
    return {
        "put twice": sum(many - 1 for many in puts.values()),
        "put and not there": len(puts.keys() - {one.stem for one in there}),
        "told and not there": sum(not found[one] for _, one in race.told),
        "there twice": sum(found[one] > 1 for _, one in race.told),
    }


@dataclass(frozen=True)
class Place:
    url: str
    table: Path
    faulty: FaultyStore


@pytest.fixture
def place(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bucket of a server whose log nobody else writes."""
    with serve_buckets(tmp_path / "s3") as server, serve_faults(server) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.server.endpoint)
        name = server.make_bucket()
        yield Place(f"s3://{name}/main", server.data / name / "main", faulty)


def lose_answers_of_commits() -> Callable[[str, str], str]:
    """The first answer to a put of each version."""
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
    ends: dict[str, int] = {}
    for said in log(place.table).said("commit"):
        ends |= {p: end for p, (_, end) in json.loads(str(said["rota.ranges"])).items()}
    assert min(ends[f"own {writer}"] for writer in range(WRITERS)) >= 2 * COMMITS
    assert not any(count(race, place.table, place.faulty.server).values())
    assert damage(place.table, expect_rows(**ends)) == NO_DAMAGE
    assert sum(race.refused.values()) > 0, "they did race"
    assert not [one for one in race.errors if "\n" in one or any(secret in one for secret in CREDENTIALS.values())]
    if day != "a good day":
        assert place.faulty.struck[LOST] > 0, place.faulty.struck


def test_on_a_store_that_overwrites_the_same_count_finds_the_damage(place: Place) -> None:
    """It takes a put of what is there for one of what is not, as a store does that does not know `If-None-Match`."""

    def forget(method: str, target: str) -> None:
        if method == "PUT" and target.endswith(".json"):
            place.table.with_name("main").parent.joinpath(target.split("/", 2)[2]).unlink(missing_ok=True)

    place.faulty.before = forget
    race = Race(place.url)
    with suppress(Exception):  # a table whose log was overwritten is no table any more
        race.run()
    found = count(race, place.table, place.faulty.server)
    assert found["put twice"] > 0, found
    assert any("the commit is not in the log" in one for one in race.errors), "whoever was overwritten is told"
