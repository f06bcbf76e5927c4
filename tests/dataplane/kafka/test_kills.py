"""A worker is killed in the middle of a batch, or resumes late: its successor consumes, and no record is lost or doubled."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.kafka import reading
from rota.dataplane.spark import session
from rota.errors import EnvironmentFailed
from rota.ledger.ledger import Ledger
from rota.run.consume import CommittedBatch, DroppedPartition
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.slow import make_slowly
from tests.dataplane.kafka.topics import UNHURT, Worlds, commit, count_damage, number
from tests.dataplane.world import World, kill, start_spark
from tests.waiting import wait_until

KEYS = ("0", "1")


def test_a_worker_whose_spark_is_killed_in_a_batch_is_followed_by_another(
    tmp_path: Path, endpoint: str, spark: SparkSession, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, mortal = start_spark(tmp_path / "spark", 1)
    try:
        worlds = Worlds(tmp_path, mortal, session.open_session(mortal), broker, topic)
        world, expected = worlds.make(2), {p: list(range(5_000)) for p in ("p:0", "p:1")}
        for n in (0, 1):
            broker.produce(topic, n, number(5_000))
        world.give(*KEYS)
        mark = tmp_path / "reading"
        with monkeypatch.context() as patched:
            patched.setattr(reading, "MAX_RECORDS", 20)
            patched.setattr(reading, "make_batch", make_slowly(mark))
            killer = threading.Thread(target=lambda: (wait_until(mark.exists), kill(server)))
            killer.start()
            with pytest.raises(EnvironmentFailed):
                world.run(*KEYS)
            killer.join()
        assert not world.tree.parked(), "no partition is at fault"
        assert not (world.table / "main" / "data").exists() or count_damage(world, {"p:0": [], "p:1": []}) == UNHURT
        world.endpoint, world.spark = endpoint, spark
        world.give(*KEYS, incarnation=world.join("w2"))
        world.until_idle(*KEYS)
        assert count_damage(world, expected) == UNHURT
    finally:
        if server.poll() is None:
            kill(server)


def overtake(world: World, fence: Callable[[Ledger, Any], Any], patch: pytest.MonkeyPatch) -> list[Any]:
    """Return the result of a run that commits its batch after another worker has claimed its partitions and consumed."""
    real, asleep = Ledger.commit, threading.Event()

    def commit_late(self: Ledger, claimed: Any, batch: Any) -> Any:
        if asleep.is_set():
            return real(self, claimed, batch)
        asleep.set()
        taker = world.join("w2")
        world.give(*KEYS, incarnation=taker)
        later = world.run(*KEYS, incarnation=taker)
        assert all(isinstance(e, CommittedBatch) for e in later), later
        return real(self, fence(self, claimed), batch)

    zombie = world.incarnation
    patch.setattr(Ledger, "commit", commit_late)
    return world.run(*KEYS, incarnation=zombie)


@pytest.mark.parametrize("fenced", [True, False])
def test_the_late_commit_of_a_zombie_is_refused_and_on_a_fresh_handle_it_doubles_its_records(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    world = worlds.make(2)
    world.give(*KEYS)
    for first, count in ((0, 1), (1, 300)):  # the table exists, with its columns
        for n in (0, 1):
            worlds.broker.produce(worlds.topic, n, number(count, 1000 * n + first))
        if not first:
            commit(world, *KEYS)
    expected = {f"p:{n}": list(range(1000 * n, 1000 * n + 301)) for n in (0, 1)}

    def keep(_: Ledger, claimed: Any) -> Any:
        return claimed

    def renew(table: Ledger, claimed: Any) -> Any:
        return replace(claimed, snapshot=table.open())

    events = overtake(world, keep if fenced else renew, monkeypatch)
    found = count_damage(world, expected)
    if fenced:
        assert {type(e) for e in events} == {DroppedPartition}, events
        assert found == UNHURT
    else:
        assert found["beyond"] == 600, found
