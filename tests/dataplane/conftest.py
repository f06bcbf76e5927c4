"""Landing folders, tables and their checker; the checker shares no code with what it checks."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rota.dataplane.spark import session
from rota.java import list_jars
from tests.dataplane.world import World


@dataclass(frozen=True)
class Seen:
    """A table as its log's JSON and its files state it."""

    commits: list[dict[str, object]]
    files: list[Path]
    transactions: dict[str, int]

    def rows(self) -> list[dict[str, object]]:
        return [row for f in self.files for row in pq.ParquetFile(f).read().to_pylist()]

    def said(self, op: str) -> list[dict[str, object]]:
        return [c for c in self.commits if c.get("rota.op") == op]


def log(table: Path) -> Seen:
    """Read the log as plain JSON, from version 0, without a Delta library."""
    commits, files, transactions = [], {}, {}
    versions = sorted((table / "_delta_log").glob("*.json"))
    assert [int(v.stem) for v in versions] == list(range(len(versions)))
    for version in versions:
        for line in version.read_text().splitlines():
            action = json.loads(line)
            if "commitInfo" in action:
                commits.append({**action["commitInfo"], "version": int(version.stem)})
            elif "add" in action:
                files[action["add"]["path"]] = table / action["add"]["path"]
            elif "remove" in action:
                del files[action["remove"]["path"]]
            elif "txn" in action:
                transactions[action["txn"]["appId"]] = action["txn"]["version"]
    return Seen(commits, list(files.values()), transactions)


def damage(table: Path, expected: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
    """Count rows lost and doubled against `expected` (partition -> offset -> rows), gaps and overlaps of ranges, tokens
    that decrease. All 0: nothing is wrong."""
    seen = log(table)
    found = Counter((r["_partition"], r["_offset"]) for r in seen.rows())
    wanted = Counter({(p, o): n for p, offsets in expected.items() for o, n in offsets.items()})
    ends: dict[str, int] = {}
    tokens: dict[str, int] = {}
    gaps = overlaps = backwards = 0
    for commit in seen.said("commit"):
        for p, (start, end) in json.loads(str(commit["rota.ranges"])).items():
            gaps += max(0, start - ends.get(p, 0))
            overlaps += max(0, ends.get(p, 0) - start)
            ends[p] = max(end, ends.get(p, 0))
        for p, token in json.loads(str(commit["rota.tokens"])).items():
            backwards += token < tokens.get(p, 0)
            tokens[p] = token
    return {
        "lost": sum((wanted - found).values()),
        "doubled": sum((found - wanted).values()),
        "gaps": gaps,
        "overlaps": overlaps,
        "backwards": backwards,
    }


NO_DAMAGE = {"lost": 0, "doubled": 0, "gaps": 0, "overlaps": 0, "backwards": 0}


@pytest.fixture(scope="session")
def spark(endpoint: str) -> Iterator[SparkSession]:
    """A thin client of the shared Spark."""
    client = session.open_session(endpoint)
    yield client
    client.stop()


@pytest.fixture(autouse=True)
def _active(request: pytest.FixtureRequest) -> None:
    """Otherwise functions of PySpark may use the session of a server that an earlier test killed."""
    if "spark" in request.fixturenames:
        session.make_active(request.getfixturevalue("spark"))


@pytest.fixture
def world(tmp_path: Path, endpoint: str, spark: SparkSession) -> World:
    return World(tmp_path, endpoint, spark=spark)


@pytest.fixture(params=["disk", "bucket"])
def landed(request: pytest.FixtureRequest, tmp_path: Path, endpoint: str, spark: SparkSession) -> World:
    """A world whose files land on a disk, and one whose files land in a bucket."""
    if request.param == "disk":
        return World(tmp_path, endpoint, spark=spark)
    assert list_jars(), "Spark has no jars for buckets. Type: make s3a"
    return World(tmp_path, endpoint, spark=spark, landing=f"{request.getfixturevalue('bucket')}/land")
