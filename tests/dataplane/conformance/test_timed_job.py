"""The job of the simulations keeps what every job promises."""

import pytest

from rota.dataplane.ports import Job
from rota.ledger.values import Ranges
from simulator.job import TimedJob
from tests.dataplane.conformance.job_suite import JobBench, JobSuite


class TimedBench:
    """Each offset is a record; there is nothing to read."""

    endpoint = None

    def open(self, counts: dict[str, int]) -> Job:
        def poisoned(ranges: Ranges) -> str | None:
            return next((p for p in ranges if p == "p:poison"), None)

        assert all(counts.values())
        return TimedJob(lambda _: None, poisoned)


class TestTimedJob(JobSuite):
    @pytest.fixture
    def place(self) -> JobBench:
        return TimedBench()
