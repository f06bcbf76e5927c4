"""The job of the chaos runs keeps what every job promises."""

from pathlib import Path

import pytest

from rota.dataplane.ports import ASSIGN, Job
from rota.pipeline import Pipeline, delta, files
from rota.registry import open_ports
from tests.chaos.plain_job import PlainJob
from tests.dataplane.conformance.job_suite import JobBench, JobSuite


class PlainBench:
    """Files of one record each."""

    endpoint = None

    def __init__(self, folder: Path) -> None:
        self.landing, self.table = folder / "land", folder / "table"

    def open(self, counts: dict[str, int]) -> Job:
        for partition, count in counts.items():
            key = self.landing / partition.removeprefix("p:")
            key.mkdir(parents=True)
            for n in range(count):
                (key / f"{n}.json").write_text('{"n": 1}\n')
        source = files(str(self.landing), format="json", schema="n int", settle=0.0)
        ports = open_ports(Pipeline(source, delta(str(self.table)), name="p"), "g", "0" * 32)
        assert ports.source.observe(tuple(counts), ASSIGN).ends == counts
        return PlainJob(ports.source, self.landing, self.table / "main", lambda partition: partition == "p:poison")


class TestPlainJob(JobSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> JobBench:
        return PlainBench(tmp_path)
