"""The job of the simulations has the laws of every job."""

import pytest

from rota.dataplane.ports import Job
from rota.ledger.values import Ranges
from simulator.job import TimedJob
from tests.dataplane.conformance.job_suite import JobBench, JobSuite


class TimedBench:
    """A bench in which each offset is a record, without data to read."""

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
