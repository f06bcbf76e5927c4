"""The log of a Delta table, on a disk and in a bucket, and the log in memory keep what every log promises."""

from functools import cache
from pathlib import Path

import pytest

from rota.deltalog.delta_log import DeltaLog
from simulator.memory_log import MemoryLog
from tests.dataplane.conformance.log_suite import LogSuite, append


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


def test_a_stamp_is_another_one_after_each_commit(tmp_path: Path, bucket: str) -> None:
    """The stamp of a version is none once there is a newer one."""
    for log in (DeltaLog(str(tmp_path / "main")), DeltaLog(f"{bucket}/main")):
        seen = [log.stamp_newest()]
        for _ in range(3):
            newest = append(log, sets={"a": 1})
            seen.append(log.stamp_newest())
            assert log.stamp(newest.number)
            assert log.stamp(newest.number - 1) is None
        assert len(set(seen)) == 4
