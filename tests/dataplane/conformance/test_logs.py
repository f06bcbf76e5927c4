"""The log of a Delta table, on a disk and in a bucket, and the log in memory have the laws of every log."""

from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.deltalog.delta_log import DeltaLog
from rota.local.bucket import BucketServer
from simulator.memory_log import MemoryLog
from tests.dataplane.conformance.histories import BY, IDS, OTHERS, SETS, History, Step, play
from tests.dataplane.conformance.log_suite import LogSuite

ONE = {IDS[0]: 0}


class TestDeltaLog(LogSuite):
    @staticmethod
    def log(folder: Path) -> DeltaLog:
        return DeltaLog(str(folder))


class TestDeltaLogInABucket(LogSuite):
    @pytest.fixture
    def one(self, bucket: str) -> DeltaLog:  # type: ignore[override]
        return DeltaLog(f"{bucket}/main")


class TestMemoryLog(LogSuite):
    @staticmethod
    @cache
    def log(_: Path) -> MemoryLog:
        return MemoryLog()


@settings(max_examples=40)
@given(st.lists(st.one_of(st.tuples(st.sampled_from(BY), SETS), st.sampled_from(OTHERS)), max_size=20))
@example([(BY[2], ONE), (BY[3], ONE), History.checkpoint, History.checkpoint_in_parts])  # its checkpoint is deleted
def test_whatever_becomes_of_a_log_all_readers_report_the_same(steps: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        play(History(f"{folder}/main", Path(folder) / "main"), steps)


@pytest.mark.parametrize("seed", range(2))
def test_so_they_do_in_a_bucket(bucket: str, bucket_server: BucketServer, seed: int) -> None:
    random = Random(seed)
    sets = [(random.choice(BY), {random.choice(IDS): number}) for number in range(6)]
    steps = [*sets, *random.choices(OTHERS, k=6)]
    random.shuffle(steps)
    play(History(f"{bucket}/main", bucket_server.data / bucket.removeprefix("s3://") / "main"), steps)
