"""A record on which the transform hangs, on a real Spark: the record is found and parked, and the others continue."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rota.dataplane.spark import deadline, failures, session
from rota.dataplane.spark.deadline import limit
from rota.errors import EnvironmentFailed
from rota.people.skip import skip
from rota.run.consume import CommittedBatch, ParkedPartition
from rota.run.replay import RefusedReplay, ReplayedRange, replay
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.shared_spark import SLOTS
from tests.dataplane.world import World
from tests.waiting import wait_until

DEADLINE = 10.0  # seconds
SLEEPING = """
def transform(frame):
    from pyspark.sql.functions import udf
    @udf("string")
    def slow(word):
        import time
        if word == "poison":
            time.sleep({seconds})
        return word
    return frame.withColumn("word", slow("word"))
pipeline = Pipeline(source=source(), table=delta({{table!r}}), transform=transform, deadline={deadline})
"""


def hang_on_a_record(world: World, seconds: float = 1e6, deadline: float = DEADLINE) -> World:
    """Land a record in b on which the transform hangs."""
    world.write(SLEEPING.format(seconds=seconds, deadline=deadline))
    world.rows("a", "0", 5)
    world.give("a", "b")
    return world


def choose_deadline(run: Callable[[], object]) -> float:
    """Return a time that is long compared with this run on this machine. It warms Spark first: a cold one is too slow."""
    began = time.monotonic()
    run()
    return min(6 * DEADLINE, max(2 * DEADLINE, float(ceil(5 * (time.monotonic() - began)))))


def land_poison(world: World) -> None:
    world.land("b", "0", ['{"n": 1, "word": "w"}', '{"n": 1, "word": "poison"}'])


@dataclass(frozen=True)
class Hung:
    """Two worlds in which `b` hung, in a run and in a replay, and the result of each partition."""

    run: World
    events: Mapping[str, object]
    replay: World
    replies: Mapping[str, object]


@pytest.fixture(scope="module")
def hung(endpoint: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    """Both at once, because both wait for the deadline; each in its own session, which reports its own tasks."""
    other = session.open_session(endpoint)
    of_run, of_replay = (World(tmp_path_factory.mktemp("hung"), endpoint, spark=one) for one in (spark, other))

    def run() -> Mapping[str, object]:
        hang_on_a_record(of_run, deadline=600.0)
        hang_on_a_record(of_run, deadline=choose_deadline(lambda: of_run.run("a")))
        of_run.rows("a", "1", 5)
        land_poison(of_run)
        return {e.partition: e for e in of_run.run("a", "b")}

    def run_again() -> Mapping[str, object]:
        hang_on_a_record(of_replay, deadline=600.0)
        of_replay.rows("b", "0", 5)
        hang_on_a_record(of_replay, deadline=choose_deadline(lambda: of_replay.run("a", "b")))
        land_poison(of_replay)
        ranges = {"p:a": (0, 1), "p:b": (0, 1)}
        return {e.partition: e for e in replay(of_replay.tree, of_replay.ports, ranges, "again")}

    with ThreadPoolExecutor(2) as pool:
        events, replies = pool.submit(run), pool.submit(run_again)
        yield Hung(of_run, events.result(), of_replay, replies.result())
    other.stop()


def test_what_hangs_alone_is_parked_and_the_others_are_committed(hung: Hung) -> None:
    parked, world = hung.events["p:b"], hung.run
    assert isinstance(parked, ParkedPartition), parked
    assert parked.retry_at is None
    assert parked.reason == (
        f"p:b alone hangs: it was not done after {world.pipeline.deadline:g} s in offset 0 (b/0.json), while others were. "
        "Mend its data or the transform, or give the pipeline a longer deadline, then: rota retry p:b; or: rota skip p:b"
    )
    assert isinstance(hung.events["p:a"], CommittedBatch)
    assert damage(world.table / "main", {"p:a": {0: 5, 1: 5}}) == NO_DAMAGE
    assert failures.is_alive(world.connect(None)), "its slot was given back"
    assert skip(world.tree, world.ports, "p:b") == (0, 1), "the advice"


def test_what_hangs_in_a_replay_is_ended_and_the_others_are_replaced(hung: Hung) -> None:
    """It occupied a slot of Spark for ever."""
    refused, world = hung.replies["p:b"], hung.replay
    assert isinstance(refused, RefusedReplay), refused
    assert refused.reason == (
        f"p:b alone hangs: it was not done after {world.pipeline.deadline:g} s in offset 0 (b/0.json), while others were. "
        "Mend its data or the transform, or give the pipeline a longer deadline, then: replay it again"
    )
    assert isinstance(hung.replies["p:a"], ReplayedRange)
    assert damage(world.table / "main", {"p:a": {0: 5}, "p:b": {0: 5}}) == NO_DAMAGE, "its rows are those of before"
    assert not world.tree.parked()
    assert failures.is_alive(world.connect(None)), "its slot was given back"


WAITING = """
import socket, time
def transform(frame):
    if FLAG.exists():
        ask()
    return frame
def ask():
    here, there = socket.socketpair()
    with here, there:
        here.recv(1)
from pathlib import Path
FLAG = Path({flag!r})
pipeline = Pipeline(source=source(), table=delta({{table!r}}), transform=transform, deadline={deadline})
"""


def test_a_transform_that_hangs_before_spark_is_asked_is_ended_and_goes_on_by_itself(
    world: World, tmp_path: Path
) -> None:
    """A run hung for an hour without a need of the group: Spark had no job to end."""
    flag = tmp_path / "the service does not answer"
    flag.touch()
    world.write(WAITING.format(flag=str(flag), deadline=1.0))
    for key in "ab":
        world.rows(key, "0", 5)
    world.give("a", "b")
    events = {e.partition: e for e in world.run("a", "b")}
    for partition, event in events.items():
        assert isinstance(event, ParkedPartition), event
        assert event.retry_at is not None
        assert event.reason == (
            "The transform did not return within 1 s: it is at p.py, line 14. What it calls there needs a timeout, or the "
            f"pipeline a longer deadline. Mend the transform or the data, then: rota retry {partition}"
        )
    assert set(events) == {"p:a", "p:b"}
    flag.unlink()
    world.write(WAITING.format(flag=str(flag), deadline=600.0))
    wait_until(lambda: all(isinstance(e, CommittedBatch) for e in world.run("a", "b")))
    assert damage(world.table / "main", {"p:a": {0: 5}, "p:b": {0: 5}}) == NO_DAMAGE


def test_without_an_interrupt_all_wait_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this test the transform ends by itself."""
    monkeypatch.setattr(type(world.connect(None)), "interruptTag", lambda *_: [])
    land_poison(hang_on_a_record(world, seconds=4.0, deadline=2.0))
    events = world.run("a", "b")
    assert len({e.commit_id for e in events if isinstance(e, CommittedBatch)}) == 1, events
    assert not world.tree.parked()


def test_a_spark_whose_slots_are_all_taken_is_not_alive(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers and accepts queries, but none completes. Each task reports that it has its slot: a query that is
    interrupted earlier may never end."""
    from pyspark.sql.functions import udf

    monkeypatch.setattr(failures, "SLOT", 2.0)
    spark = world.connect(None)
    begun = tmp_path / "begun"
    begun.mkdir()
    slow = udf(lambda task: ((begun / str(task)).touch(), time.sleep(1e6)), "long")

    def take() -> None:
        spark.addTag("taken")
        with pytest.raises(Exception, match="OPERATION_CANCELED"):
            spark.range(0, SLOTS, 1, SLOTS).select(slow("id")).collect()

    taker = threading.Thread(target=take)
    taker.start()
    wait_until(lambda: len(list(begun.iterdir())) == SLOTS)
    assert not failures.is_alive(spark)

    def is_ended() -> bool:
        spark.interruptTag("taken")
        return not taker.is_alive()

    wait_until(is_ended, pause=0.5)
    monkeypatch.setattr(failures, "SLOT", 60.0)
    assert failures.is_alive(spark)


class Planning:
    """Replaces a thin client's query: it accepts one interrupt, but none in its planning, which exceeds the deadline."""

    __module__ = "pyspark.sql.connect"

    def __init__(self, patience: float = 60.0) -> None:
        self.patience = patience
        self.planned, self.heard = False, 0
        self.ended, self.called = threading.Event(), threading.Event()

    def registerProgressHandler(self, handler: Callable[..., None]) -> None:
        self.handler = handler

    def removeProgressHandler(self, _: Callable[..., None]) -> None:
        pass

    addTag = removeTag = removeProgressHandler  # noqa: N815

    def interruptTag(self, _: str) -> None:
        self.heard += 1
        if self.heard == 1 and self.planned:
            self.ended.set()
        self.called.set()

    def ask(self, planning: float) -> None:
        self.called.wait(planning)
        self.planned = True
        self.handler(stages=[SimpleNamespace(done=False)], inflight_tasks=1, operation_id="1", done=False)
        if not self.ended.wait(self.patience):
            raise AssertionError("it runs for ever")
        raise RuntimeError("OPERATION_CANCELED")


@pytest.mark.parametrize("guarded", [True, False])
def test_a_query_is_not_interrupted_while_it_is_planned(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Planning ends at the interrupt; with the guard, after a second without one."""
    spark: Any = Planning() if guarded else Planning(patience=2.0)
    if not guarded:
        monkeypatch.setattr(deadline, "PLANNING", 0.0)
    wanted = pytest.raises(EnvironmentFailed, match="was not done")
    with wanted as raised, limit(spark, 0.1):
        spark.ask(1.0 if guarded else 60.0)
    assert isinstance(raised.value.__cause__, RuntimeError if guarded else AssertionError)


def test_what_a_cancelled_run_asked_is_ended() -> None:
    spark: Any = Planning()
    with pytest.raises(KeyboardInterrupt), limit(spark, 600.0):
        raise KeyboardInterrupt
    assert spark.heard == 1
