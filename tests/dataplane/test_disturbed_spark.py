"""What no test may do to a Spark that others share: records on which the transform hangs, all slots taken, a full disk, and
at last the end of its process. The run ends or goes on without them, and parks whom it should."""

import random
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from rota.consume import CommittedBatch, ParkedPartition
from rota.dataplane.spark import failures, session
from rota.errors import EnvironmentFailed
from rota.replay import RefusedReplay, ReplayedRange, replay
from rota.skip import skip
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.world import World, kill, start_spark
from tests.waiting import wait_until

SLOTS = 4
DEADLINE = 8.0  # a warm Spark is done with these rows in one


@dataclass(frozen=True)
class OwnSpark:
    """A server that these tests alone use."""

    process: "subprocess.Popen[bytes]"
    endpoint: str
    sessions: list[SparkSession] = field(default_factory=list)

    def open_world(self, folder: Path) -> World:
        """With a session of its own."""
        self.sessions.append(session.open_session(self.endpoint))
        return World(folder, self.endpoint, spark=self.sessions[-1])

    def end(self) -> None:
        """Its sessions first: each would look for it for seconds, as this process ends."""
        while self.sessions:
            self.sessions.pop().stop()
        kill(self.process)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnSpark]:
    spark = OwnSpark(*start_spark(tmp_path_factory.mktemp("own"), SLOTS))
    yield spark
    if spark.process.poll() is None:
        spark.end()


@pytest.fixture
def world(own: OwnSpark, tmp_path: Path) -> World:
    return own.open_world(tmp_path)


# --- what hangs -----------------------------------------------------------------------------------------------------

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
    """b hangs on a record."""
    world.write(SLEEPING.format(seconds=seconds, deadline=deadline))
    world.rows("a", "0", 5)
    world.give("a", "b")
    return world


def land_poison(world: World) -> None:
    world.land("b", "0", ['{"n": 1, "word": "w"}', '{"n": 1, "word": "poison"}'])


@dataclass(frozen=True)
class Hung:
    """Two worlds in which `b` hung, in a run and in a replay, and what became of each partition."""

    run: World
    events: Mapping[str, object]
    replay: World
    replies: Mapping[str, object]


@pytest.fixture(scope="module")
def hung(own: OwnSpark, tmp_path_factory: pytest.TempPathFactory) -> Hung:
    """Both at once: they wait for the same clock."""
    of_run, of_replay = (own.open_world(tmp_path_factory.mktemp(name)) for name in ("run", "replay"))

    def run() -> Mapping[str, object]:
        hang_on_a_record(of_run, deadline=60.0)
        assert isinstance(of_run.run("a")[0], CommittedBatch), "Spark is warm"
        hang_on_a_record(of_run)
        of_run.rows("a", "1", 5)
        land_poison(of_run)
        return {e.partition: e for e in of_run.run("a", "b")}

    def run_again() -> Mapping[str, object]:
        hang_on_a_record(of_replay, deadline=60.0)
        of_replay.rows("b", "0", 5)
        assert {type(e) for e in of_replay.run("a", "b")} == {CommittedBatch}
        hang_on_a_record(of_replay)
        land_poison(of_replay)
        ranges = {"p:a": (0, 1), "p:b": (0, 1)}
        return {e.partition: e for e in replay(of_replay.tree, of_replay.ports, ranges, "again")}

    with ThreadPoolExecutor(2) as pool:
        events, replies = pool.submit(run), pool.submit(run_again)
        return Hung(of_run, events.result(), of_replay, replies.result())


def test_what_hangs_alone_is_parked_and_the_others_are_committed(hung: Hung) -> None:
    parked, world = hung.events["p:b"], hung.run
    assert isinstance(parked, ParkedPartition), parked
    assert parked.retry_at is None
    assert parked.reason == (
        "p:b alone hangs: it was not done after 8 s in offset 0 (b/0.json), while others were. Mend its data or the "
        "transform, or give the pipeline a longer deadline, then: rota retry p:b; or: rota skip p:b"
    )
    assert isinstance(hung.events["p:a"], CommittedBatch)
    assert damage(world.table / "main", {"p:a": {0: 5, 1: 5}}) == NO_DAMAGE
    assert failures.is_alive(world.connect(None)), "its slot was given back"
    assert skip(world.tree, world.ports, "p:b") == (0, 1), "the advice"


def test_what_hangs_in_a_replay_is_ended_and_the_others_are_replaced(hung: Hung) -> None:
    """It took a slot of Spark for ever."""
    refused, world = hung.replies["p:b"], hung.replay
    assert isinstance(refused, RefusedReplay), refused
    assert refused.reason == (
        "p:b alone hangs: it was not done after 8 s in offset 0 (b/0.json), while others were. Mend its data or the "
        "transform, or give the pipeline a longer deadline, then: replay it again"
    )
    assert isinstance(hung.replies["p:a"], ReplayedRange)
    assert damage(world.table / "main", {"p:a": {0: 5}, "p:b": {0: 5}}) == NO_DAMAGE, "its rows are those of before"
    assert not world.tree.parked()
    assert failures.is_alive(world.connect(None)), "its slot was given back"


def test_without_an_interrupt_all_wait_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it comes to an end, some day."""
    monkeypatch.setattr(type(world.connect(None)), "interruptTag", lambda *_: [])
    land_poison(hang_on_a_record(world, seconds=4.0, deadline=2.0))
    events = world.run("a", "b")
    assert len({e.commit_id for e in events if isinstance(e, CommittedBatch)}) == 1, events
    assert not world.tree.parked()


def test_a_spark_whose_slots_are_all_taken_is_not_alive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It speaks, and takes queries, and nothing comes of them."""
    from pyspark.sql.functions import udf

    monkeypatch.setattr(failures, "SLOT", 2.0)
    spark = world.connect(None)
    slow = udf(lambda _: time.sleep(1e6), "long")

    def take() -> None:
        spark.addTag("taken")
        with pytest.raises(Exception, match="OPERATION_CANCELED"):
            spark.range(0, SLOTS, 1, SLOTS).select(slow("id")).collect()

    taker = threading.Thread(target=take)
    taker.start()
    while failures.is_alive(spark):
        assert taker.is_alive()

    def is_ended() -> bool:
        spark.interruptTag("taken")
        return not taker.is_alive()

    wait_until(is_ended, 60, 0.5)
    monkeypatch.setattr(failures, "SLOT", 60.0)
    assert failures.is_alive(spark)


# --- a full disk, and the end of its process ------------------------------------------------------------------------


def test_a_disk_that_takes_no_more_ends_the_run_parks_nobody_and_loses_nothing(world: World, own: OwnSpark) -> None:
    """A limit to the size of a file stands for the full disk: Spark gets the same error for the same write. (What the
    run itself writes is in without_spark/test_environment_faults.)"""
    draw = random.Random(5)
    world.give("a")
    for name in range(3):
        world.land("a", str(name), (f'{{"n": {i}, "word": "{draw.randbytes(40).hex()}"}}' for i in range(8000)))
    server = psutil.Process(own.process.pid)
    before = server.rlimit(psutil.RLIMIT_FSIZE)
    server.rlimit(psutil.RLIMIT_FSIZE, (300 << 10, before[1]))
    try:
        with pytest.raises(EnvironmentFailed, match="File too large"):
            world.run("a")
    finally:
        server.rlimit(psutil.RLIMIT_FSIZE, before)
    assert not world.tree.parked()
    assert {type(e) for e in world.run("a")} == {CommittedBatch}
    assert damage(world.table / "main", {"p:a": dict.fromkeys(range(3), 8000)}) == NO_DAMAGE


def test_a_server_killed_in_the_middle_ends_the_run_and_parks_nobody(
    own: OwnSpark, tmp_path: Path, endpoint: str, spark: SparkSession
) -> None:
    """The last of these tests: nobody asks this Spark any more."""
    world, doomed = World(tmp_path, endpoint, spark=spark), session.open_session(own.endpoint)
    plain = world.pipeline

    def transform(frame: object) -> object:
        own.end()
        return frame

    world.give("a", "b")
    world.rows("a", "0", 1)
    world.rows("b", "0", 1)
    world.pipeline = replace(plain, transform=transform)
    with pytest.warns(UserWarning, match="RETRIES_EXCEEDED"), pytest.raises(EnvironmentFailed, match="next run"):
        world.run("a", "b", connect=lambda _: doomed)
    assert not world.tree.parked()
    assert not world.tree.runs()
    world.pipeline = plain
    assert {type(e) for e in world.run("a", "b")} == {CommittedBatch}
    assert damage(world.table / "main", {"p:a": {0: 1}, "p:b": {0: 1}}) == NO_DAMAGE
