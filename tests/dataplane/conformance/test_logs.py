"""The log of a Delta table, by a path and by a URL, and the log in memory keep what every log promises."""

from functools import cache
from pathlib import Path

from rota.ledger.delta_log import DeltaLog
from rota.ledger.memory_log import MemoryLog
from tests.dataplane.conformance.log_suite import LogSuite


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
