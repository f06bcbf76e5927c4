"""The broker dies or stops answering in the middle of a batch: the run ends at rota's deadline, and nothing is lost."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from rota.dataplane.kafka import reading
from rota.dataplane.kafka import topic as looking
from rota.dataplane.kafka.kafka_source import KafkaSource
from rota.errors import EnvironmentFailed
from rota.ledger.ledger import Ledger
from rota.run.consume import CommittedBatch
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.topics import UNHURT, Worlds, catch_up, count_damage, number
from tests.waiting import wait_until

MOMENTS: dict[str, tuple[Any, str, int]] = {
    "planning": (KafkaSource, "plan_jobs", 1),
    "reading": (KafkaSource, "read_directly", 1),  # Spark's tasks find no broker
    "looking again": (KafkaSource, "find_broken", 2),  # the job is done, and its ranges are checked
    "committing": (Ledger, "commit", 1),
}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "PATIENCE", 3.0)
    monkeypatch.setattr(reading, "SILENCE", 3.0)


def strike_before(
    real: Callable[..., Any], calls: list[int], last: int, strike: Callable[[], None]
) -> Callable[..., Any]:
    """Inject the fault once, before the `last` of these calls."""

    def call(*args: Any, **more: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == last:
            strike()
        return real(*args, **more)

    return call


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_every_record_is_in_the_table_once(
    tmp_path: Path, endpoint: str, spark: SparkSession, mortal: Broker, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    worlds = Worlds(tmp_path, endpoint, spark, mortal, "orders")
    world = worlds.make(2)
    world.give("0", "1")
    expected: dict[str, list[int]] = {"p:0": [], "p:1": []}
    for round_, (moment, (owner, name, last)) in enumerate(MOMENTS.items()):
        for n in (0, 1):
            numbers = range(100 * round_ + 50 * n, 100 * round_ + 50 * n + 40)
            mortal.produce("orders", n, number(40, numbers[0]))
            expected[f"p:{n}"] += numbers
        calls: list[int] = []
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, strike_before(getattr(owner, name), calls, last, getattr(mortal, how)))
            if moment == "committing":
                assert all(isinstance(e, CommittedBatch) for e in world.run("0", "1"))
            else:
                with pytest.raises(EnvironmentFailed, match="Kafka"):
                    world.run("0", "1")
        assert len(calls) >= last, moment
        (mortal.start if how == "kill" else mortal.thaw)()
        wait_until(lambda: catch_up(world, "0", "1"))
        assert count_damage(world, expected) == UNHURT, moment
    assert not world.tree.parked(), "no partition is at fault"


def test_what_dies_while_it_gives_records_ends_the_batch(
    tmp_path: Path, endpoint: str, spark: SparkSession, mortal: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault comes while a slow reader is in the middle of its range."""
    worlds = Worlds(tmp_path, endpoint, spark, mortal, "orders")
    world = worlds.make()
    world.give("0")
    mortal.produce("orders", 0, (b'{"n": %d, "pad": "%s"}' % (n, b"x" * 2_000) for n in range(20_000)))
    monkeypatch.setattr(reading, "MAX_RECORDS", 50)
    monkeypatch.setattr(reading, "ROOM", 1 << 16)
    real = reading.make_batch
    mark = tmp_path / "reading"

    def make_slowly(*of: Any) -> Any:
        mark.touch()
        threading.Event().wait(0.02)
        return real(*of)

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(reading, "make_batch", make_slowly)
    killer = threading.Thread(target=lambda: (wait_until(mark.exists), mortal.kill()))
    killer.start()
    with pytest.raises(EnvironmentFailed, match="Kafka"):
        world.run("0")
    killer.join()
    monkeypatch.setattr(reading, "make_batch", real)
    mortal.start()
    wait_until(lambda: catch_up(world, "0"))
    assert count_damage(world, {"p:0": list(range(20_000))}) == UNHURT
