"""A pipeline whose tables are in a bucket: the same laws as on a disk, with real Spark."""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from rota.dagster.sensors import checks, membership, polling
from rota.dataplane.spark import writing
from rota.deltalog import delta_log
from rota.errors import EnvironmentFailed
from rota.face.health import HealthReader
from rota.local.bucket import CREDENTIALS, BucketServer
from rota.registry import find_interval, open_source
from rota.run.consume import CommittedBatch
from rota.run.maintain import maintain
from rota.run.replay import ReplayedRange, replay
from rota.run.work import WorkWatcher
from rota.stores import choose_options, put_new
from tests.dataplane.world import World
from tests.faulty_bucket import choose_at_random, serve_faults

ROWS = 50
BATCH, FIRST_OF_A_RUN, WITH_CHECKPOINT = 40, 150, 150  # requests of a batch of one partition
PARTITIONS = 20
LOOK = {"check": 10, "backlog": 2, "membership": 1}  # requests of a poll while nothing lands, for any partitions
AN_HOUR = 3_600  # and of an hour of them


@pytest.fixture
def one(landed: World, bucket: str) -> World:
    """Files land on a disk, or in the bucket of the tables."""
    landed.text = f"pipeline = Pipeline(source=source(), table=delta('{bucket}/tables/p'), max_bad_ratio=1.0)\n"
    landed.write(landed.text)
    return landed


def read(world: World, name: str) -> list[dict[str, object]]:
    place = f"{world.pipeline.table.path}/{name}"
    return DeltaTable(place, storage_options=choose_options(place)).to_pyarrow_table().to_pylist()


def count(rows: list[dict[str, object]]) -> Counter[tuple[object, object]]:
    return Counter((row["_partition"], row["_offset"]) for row in rows)


def test_each_record_is_there_once_and_bad_ones_are_set_aside(one: World) -> None:
    one.give("a", "ü b")
    for number in range(3):
        one.rows("a", str(number), ROWS)
        one.rows("ü b", str(number), ROWS + number)
    one.land("a", "bad", ['{"n": 1, "word": "x"}', '{"n": "no", "word": "x"}'])
    events = one.until_idle("a", "ü b")
    assert sum(e.bad_rows for e in events if isinstance(e, CommittedBatch)) == 1, events
    names = {one.pipeline.partition("a"): [ROWS] * 3 + [1], one.pipeline.partition("ü b"): [ROWS, ROWS + 1, ROWS + 2]}
    assert count(read(one, "main")) == {(p, o): rows for p, many in names.items() for o, rows in enumerate(many)}
    (bad,) = read(one, "quarantine")
    assert (bad["_raw"], bad["_position"]) == ('{"n": "no", "word": "x"}', 2)


def test_a_replay_reads_again_and_a_maintenance_changes_no_row(one: World, bucket_server: BucketServer) -> None:
    one.give("a")
    for number in range(9):
        one.rows("a", str(number), 3)
        one.run("a")
    wanted = {("p:a", offset): 3 for offset in range(9)}
    one.rows("a", "2", 5)
    assert [type(e) for e in replay(one.tree, one.ports, {"p:a": (2, 3)}, "again")] == [ReplayedRange]
    wanted["p:a", 2] = 5
    assert count(read(one, "main")) == wanted
    orphan = leave_orphan(one, bucket_server)
    done = maintain(one.pipeline)
    assert (done.failed, done.main.after, done.vacuumed >= 1) == ((), 1, True), done
    assert not orphan.exists()
    assert count(read(one, "main")) == wanted
    one.rows("a", "9", 3)
    one.run("a")
    assert count(read(one, "main")) == {**wanted, ("p:a", 9): 3}


def leave_orphan(world: World, server: BucketServer) -> Path:
    """Write the files of an attempt that died eight days ago."""
    table = server.data / world.pipeline.table.path.removeprefix("s3://") / "main"
    orphan = table / "data" / "run-died" / "703A61" / "f.parquet"
    url = f"{world.pipeline.table.path}/main"
    put_new(url, str(orphan.relative_to(table)), b"half")
    long_ago = time.time() - 8 * 86_400
    os.utime(orphan, (long_ago, long_ago))
    return orphan


@pytest.mark.parametrize("landed", ["bucket"], indirect=True)
def test_a_batch_costs_as_many_requests_whatever_is_in_the_table(
    one: World, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts are for a later batch of a run, its first batch, and the batch whose commit makes a checkpoint."""
    monkeypatch.setattr(delta_log, "OFTEN", 10)
    one.give("a")
    ports = one.ports

    def cost(number: int) -> int:
        one.rows("a", str(number), 3)
        before = bucket_server.count_requests()
        one.run("a", ports=ports)
        return bucket_server.count_requests() - before

    costs = [cost(number) for number in range(13)]
    ports = one.ports
    first = cost(13)
    assert max(sorted(costs[1:])[:8]) <= BATCH, sorted(costs)
    assert max(costs) <= WITH_CHECKPOINT, costs
    assert first <= FIRST_OF_A_RUN, first


@pytest.mark.parametrize("landed", ["bucket"], indirect=True)
def test_what_looks_while_nothing_lands_asks_a_bounded_number_of_requests(
    one: World, bucket_server: BucketServer
) -> None:
    keys = [f"{number:02}" for number in range(PARTITIONS)]
    one.give(*keys)
    for number in range(60):
        one.rows(keys[number % PARTITIONS], str(number), 1)
    one.until_idle(*keys)
    reader, watcher = HealthReader(), WorkWatcher(one.tree, one.pipeline)
    looks: dict[str, Callable[[], object]] = {
        "check": lambda: reader.read(one.tree, [one.pipeline]),
        "backlog": lambda: (watcher.poll(), watcher.find_work()),
        "membership": lambda: open_source(one.pipeline).list_keys(),
    }
    costs = {name: [count_one(bucket_server, look) for _ in range(3)] for name, look in looks.items()}
    assert {name: max(of[1:]) <= LOOK[name] for name, of in costs.items()} == dict.fromkeys(LOOK, True), costs
    each = find_interval([one.pipeline])
    every = {"check": checks.MIN_PAUSE, "backlog": max(polling.PAUSE, each), "membership": max(membership.PAUSE, each)}
    assert sum(3600 / every[name] * LOOK[name] for name in LOOK) <= AN_HOUR


def count_one(server: BucketServer, what: Callable[[], object]) -> int:
    before = server.count_requests()
    what()
    return server.count_requests() - before


def test_a_bucket_that_goes_away_before_the_commit_parks_no_partition_and_nothing_is_lost(
    one: World, bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.give("a")
    for number in range(2):
        one.rows("a", str(number), ROWS)
        one.run("a") if not number else None
    write, place = writing.write, bucket_server.data / bucket.removeprefix("s3://")

    def lose(*args: Any, **more: Any) -> Any:
        files = write(*args, **more)
        place.rename(place.with_name("aside"))
        return files

    with monkeypatch.context() as patched:
        patched.setattr(writing, "write", lose)
        with pytest.raises(EnvironmentFailed) as failed:
            one.run("a")
    place.with_name("aside").rename(place)
    assert not one.tree.parked()
    assert not any(secret in str(failed.value) for secret in CREDENTIALS.values())
    one.until_idle("a")
    assert count(read(one, "main")) == {("p:a", offset): ROWS for offset in range(2)}


@pytest.mark.parametrize("landed", ["bucket"], indirect=True)
def test_on_a_bad_day_of_the_store_each_record_goes_in_once_and_no_partition_is_parked(
    one: World, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are refused, slow, late or lost: for rota, for Spark's reads and for the writes of its tasks."""
    one.give("a")
    failed: list[str] = []
    with serve_faults(bucket_server) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.server.endpoint)
        faulty.choose = choose_at_random(3, 0.05)
        for number in range(3):
            one.rows("a", str(number), ROWS)
            try:
                one.run("a")
            except EnvironmentFailed as error:
                failed.append(str(error))
        faulty.choose = lambda *_: ""
        assert sum(many for fault, many in faulty.struck.items() if fault) > 5, faulty.struck
        assert not one.tree.parked()
        one.until_idle("a")
        assert count(read(one, "main")) == {("p:a", offset): ROWS for offset in range(3)}
    assert not [one for one in failed if "\n" in one or any(secret in one for secret in CREDENTIALS.values())]
