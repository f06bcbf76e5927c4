"""The job on Spark has the laws of every job."""

import pytest

from rota.dataplane.ports import ASSIGN, Job
from tests.dataplane.conformance.job_suite import JobBench, JobSuite
from tests.dataplane.world import World

POISONED = """
from pyspark.sql import functions as F
def transform(frame):
    failing = F.when(frame["_partition"] == "p:poison", F.raise_error(F.lit("poison"))).otherwise(frame["n"])
    return frame.withColumn("n", failing.cast("int"))
pipeline = Pipeline(source=source(), table=delta({table!r}), transform=transform)
"""


class SparkBench:
    """Files of one record each, read by the Spark of the tests."""

    def __init__(self, world: World) -> None:
        self.world, self.endpoint = world, world.endpoint
        world.write(POISONED)

    def open(self, counts: dict[str, int]) -> Job:
        for partition, count in counts.items():
            for n in range(count):
                self.world.rows(partition.removeprefix("p:"), f"{n:03}", 1)
        ports = self.world.ports
        assert ports.source.observe(tuple(counts), ASSIGN).ends == counts
        return ports.job


class TestSparkJob(JobSuite):
    @pytest.fixture
    def place(self, world: World) -> JobBench:
        return SparkBench(world)
