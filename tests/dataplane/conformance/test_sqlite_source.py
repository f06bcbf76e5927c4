"""The worked example of docs/sources.md has the laws of every source, also on a real Spark."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from rota import registry
from rota.dataplane.ports import ASSIGN, Job, Ports
from rota.pipeline import Pipeline, delta
from rota.run.consume import CommittedBatch
from rota.run.replay import RefusedReplay, ReplayedRange, replay
from tests.dataplane.conformance.job_suite import JobBench, JobSuite
from tests.dataplane.conformance.source_suite import (
    LosingSuite,
    ReplayingSuite,
    SharingSuite,
    SourceSuite,
    StartingSuite,
)
from tests.dataplane.conftest import log
from tests.dataplane.sqlite_source import Rows, SqliteSource
from tests.dataplane.world import World

ROOT = Path(__file__).parents[3]
TEXT = """
from pyspark.sql import functions as F
from tests.dataplane.sqlite_source import Rows
def transform(frame):
    failing = F.when(frame["_partition"] == "p:poison", F.raise_error(F.lit("poison"))).otherwise(frame["n"])
    return frame.withColumn("n", failing.cast("int"))
pipeline = Pipeline({source}, delta({{table!r}}), transform=transform, group="g", max_bad_ratio=0.5)
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the one line in `rota/registry.py`."""
    monkeypatch.setattr(registry, "SOURCES", {**registry.SOURCES, Rows: SqliteSource.of})


def insert(database: Path, table: str, bodies: Iterable[str]) -> None:
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute(f'create table if not exists "{table}" (id integer primary key autoincrement, body)')
        opened.executemany(f'insert into "{table}" (body) values (?)', [(body,) for body in bodies])


class RowsBench:
    """A database, in which a row is one offset."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.database = folder, folder / "rows.db"
        insert(self.database, "gone", ())
        with closing(sqlite3.connect(self.database)) as opened, opened:
            opened.execute("drop table gone")

    def open(self, start: str | int = "earliest", most: int = 1000) -> Ports:
        source = Rows(str(self.database), "n int", start=start, max_rows=most)  # type: ignore[arg-type]
        return registry.open_ports(Pipeline(source, delta(str(self.folder / "table")), name="p"), "g", "0" * 32)

    def land(self, key: str, count: int = 1) -> None:
        insert(self.database, key, ['{"n": 1}'] * count)


class TestSqliteSource(SourceSuite, SharingSuite, StartingSuite, LosingSuite, ReplayingSuite):
    bench = RowsBench


class RowsOnSpark:
    """Rows of one record each, read by the Spark of the tests."""

    def __init__(self, world: World) -> None:
        self.world, self.endpoint, self.database = world, world.endpoint, world.folder / "rows.db"
        insert(self.database, "first", ())
        world.write(TEXT.format(source=f"Rows({str(self.database)!r}, 'n int, word string')"))

    def open(self, counts: dict[str, int]) -> Job:
        for partition, count in counts.items():
            insert(self.database, partition.removeprefix("p:"), ['{"n": 1}'] * count)
        assert self.world.ports.source.observe(tuple(counts), ASSIGN).ends == counts
        return self.world.ports.job


class TestRowsOnSpark(JobSuite):
    @pytest.fixture
    def place(self, world: World) -> JobBench:
        return RowsOnSpark(world)


def test_rows_are_in_the_table_once_and_bad_ones_aside_and_are_read_again(world: World) -> None:
    bench = RowsOnSpark(world)
    insert(bench.database, "a", ['{"n": 1, "word": "x"}', '{"n": "no"}', '{"n": 3}{"n": 4}', '{"n": 5}', '{"n": 6}'])
    with closing(sqlite3.connect(bench.database)) as opened, opened:
        opened.execute("delete from a where id = 4")  # a hole
    world.give("a")
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch), event
    assert (event.start, event.end, event.rows, event.bad_rows) == (0, 5, 2, 2)
    assert sorted((r["n"], r["_offset"]) for r in log(world.table / "main").rows()) == [(1, 0), (6, 4)]
    aside = {r["_offset"]: (r["_file"], r["_position"], r["_reason"]) for r in log(world.table / "quarantine").rows()}
    assert aside[1] == ("row 2 of a", None, "not of the declared type: n")
    assert aside[2][:2] == ("row 3 of a", None)
    again, refused = (list(replay(world.tree, world.ports, {"p:a": r}, "again")) for r in ((4, 5), (0, 9)))
    assert isinstance(again[0], ReplayedRange)
    assert again[0].rows == 1
    assert isinstance(refused[0], RefusedReplay)


def test_bytes_are_in_the_table_as_they_are_whatever_they_are(world: World) -> None:
    database = world.folder / "rows.db"
    insert(database, "a", ["", '{"n": 1}{"n": 2}', "no JSON \0"])
    source = f"Rows({str(database)!r}, 'body binary', format='bytes')"
    world.write(TEXT.format(source=source).replace(", transform=transform", ""))
    world.give("a")
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch), event
    assert (event.end, event.rows, event.bad_rows) == (3, 3, 0)
    found = {r["_offset"]: bytes(r["body"]) for r in log(world.table / "main").rows()}
    assert found == {0: b"", 1: b'{"n": 1}{"n": 2}', 2: b"no JSON \0"}


def test_the_page_shows_the_file_and_it_fits_in_150_lines() -> None:
    text = (ROOT / "tests/dataplane/sqlite_source.py").read_text()
    page = (ROOT / "docs/sources.md").read_text()
    assert f"```python\n{text}```\n" in page
    assert len(text.splitlines()) <= 150
