"""The job port on Spark: a session for the run, and the search for what fails."""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from rota.dataplane.ports import FailedPartition, Holds, Replays, WrittenFiles
from rota.dataplane.spark import writing
from rota.dataplane.spark.bisection import Bisection
from rota.dataplane.spark.deadline import limit
from rota.dataplane.spark.session import join_session, take_first_line
from rota.dataplane.spark.spark_source import SparkSource
from rota.dataplane.spark.warming import TASKS, read_messages
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline
from rota.stores import join

if TYPE_CHECKING:
    from rota.dataplane.spark.session import Connect

log = logging.getLogger(__name__)
REHEARSAL = 10.0  # seconds of a rehearsal at most: the worker's partitions wait for it at most 20 s


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
        longest range."""
        spark = join_session(self.connect, endpoint, self.pipeline.module)
        deadline = self.pipeline.deadline * (max(map(self._count_batches, jobs), default=1) if whole else 1)
        search = Bisection(
            self.pipeline, self.source, self.location, spark, schema, run_id, deadline, shorten=not whole
        )
        yield from search.run(*jobs, still=recheck)

    def rehearse(self, *, endpoint: str | None, run_id: str) -> None:
        """Write data that were consumed before as an attempt of the run, and remove its files.

        The first job of a session takes 1.5 s longer than the next ones. After a rehearsal it does not. A failure is
        logged: a run that has something to do reports its own.
        """
        spark = join_session(self.connect, endpoint, self.pipeline.module)
        attempt, main = f"{run_id}-{uuid.uuid4().hex[:12]}", join(self.location, "main")
        search = Bisection(self.pipeline, self.source, self.location, spark, None)
        try:
            with limit(spark, REHEARSAL):
                if not self._write_newest(search, attempt):
                    writing.write(read_messages(spark), main, f"data/{attempt}")
        except Exception as error:  # of the source, of Spark, of the transform, or of the store
            log.warning("rehearsal=failed reason=%s", take_first_line(error))
        finally:
            search.remove(attempt)

    def _write_newest(self, search: Bisection, attempt: str) -> bool:
        """Write the newest offset of the first partitions again, one for each task of Spark. Return False if none can be
        read again."""
        if not isinstance(self.source, Replays):
            return False
        seen = self.source.observe(tuple(map(self.pipeline.partition, self.source.list_keys()[:TASKS])))
        newest = {p: (end - 1, end) for p, end in seen.assigned.items() if end > 0}
        if not newest:
            return False
        again = self.source.reread(newest)
        try:
            broken = again.find_broken(newest)
            if ranges := {p: of for p, of in newest.items() if p not in broken}:
                replace(search, source=again).write_together(ranges, attempt)
            return bool(ranges)
        finally:
            if isinstance(again, Holds):
                again.close()

    def _count_batches(self, ranges: Ranges) -> int:
        """Return how many batches a run would need for the longest range, if all were as long as the first."""
        starts, ends = ({p: r[at] for p, r in ranges.items()} for at in (0, 1))
        first = {p: r for job in self.source.plan_jobs(starts, ends) for p, r in job.items()}
        return max((ceil((ends[p] - start) / (end - start)) for p, (start, end) in first.items()), default=1)
