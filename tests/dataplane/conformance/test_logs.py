"""The log of a Delta table, by a path and by a URL, and the log in memory keep what every log promises."""

from functools import cache
from pathlib import Path

from rota.ledger.delta_log import DeltaLog
from rota.ledger.memory_log import MemoryLog
from tests.dataplane.conformance.log_suite import LogSuite, append


class TestDeltaLog(LogSuite):
    @staticmethod
    def log(folder: Path) -> DeltaLog:
        return DeltaLog(str(folder))


class TestDeltaLogByUrl(LogSuite):
    @staticmethod
    def log(folder: Path) -> DeltaLog:
        folder.mkdir(exist_ok=True)
        return DeltaLog(folder.as_uri())


class TestMemoryLog(LogSuite):
    @staticmethod
    @cache
    def log(_: Path) -> MemoryLog:
        return MemoryLog()


def test_a_stamp_is_another_one_after_each_commit(tmp_path: Path) -> None:
    """By a path and by a URL. The stamp of a version is none once there is a newer one."""
    for log in (DeltaLog(str(tmp_path / "main")), DeltaLog((tmp_path / "main").as_uri())):
        seen = [log.stamp_folder()]
        for _ in range(3):
            newest = append(log, sets={"a": 1})
            seen.append(log.stamp_folder())
            assert log.stamp(newest.number)
            assert log.stamp(newest.number - 1) is None
        assert len(set(seen)) == 4
