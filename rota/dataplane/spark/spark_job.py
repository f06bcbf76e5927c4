"""The job port on Spark: a session for the run, and the search for what fails."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from rota.dataplane.ports import FailedPartition, WrittenFiles
from rota.dataplane.spark.bisection import Bisection
from rota.dataplane.spark.session import join_session
from rota.dataplane.spark.spark_source import SparkSource
from rota.dataplane.spark.warming import rehearse
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline
from rota.stores import join

if TYPE_CHECKING:
    from rota.dataplane.spark.session import Connect


@dataclass(frozen=True, slots=True)
class SparkJob:
    """How ranges of `source` become files below `location` (`main/`, `quarantine/`): see `ports.Job`."""

    pipeline: Pipeline
    source: SparkSource
    location: str
    connect: "Connect"

    def run(
        self,
        jobs: Sequence[Ranges],
        *,
        endpoint: str | None,
        run_id: str,
        schema: str | None,
        whole: bool = False,
        recheck: Callable[[Ranges], Ranges] = dict,
    ) -> Iterator[WrittenFiles | FailedPartition]:
        """See `Job.run`. Ranges that are written as a whole get one deadline for each batch that a run would need for the
        longest range. Without jobs, a rehearsal makes the first batch as fast as later ones."""
        spark = join_session(self.connect, endpoint, self.pipeline.module)
        if not jobs:
            rehearse(spark, join(self.location, "main"), f"{run_id}-{uuid.uuid4().hex[:12]}")
        deadline = self.pipeline.deadline * (max(map(self._count_batches, jobs), default=1) if whole else 1)
        search = Bisection(
            self.pipeline, self.source, self.location, spark, schema, run_id, deadline, shorten=not whole
        )
        yield from search.run(*jobs, still=recheck)

    def _count_batches(self, ranges: Ranges) -> int:
        """Return how many batches a run would need for the longest range, if all were as long as the first."""
        starts, ends = ({p: r[at] for p, r in ranges.items()} for at in (0, 1))
        first = {p: r for job in self.source.plan_jobs(starts, ends) for p, r in job.items()}
        return max((ceil((ends[p] - start) / (end - start)) for p, (start, end) in first.items()), default=1)
