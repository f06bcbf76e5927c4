"""The job port on Spark: a session for the run, and the search for what fails."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from rota.dataplane.ports import FailedPartition, Ranges, WrittenFiles
from rota.dataplane.spark.bisection import Bisection
from rota.dataplane.spark.session import join_session
from rota.dataplane.spark.spark_source import SparkSource
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.dataplane.spark.session import Connect


@dataclass(frozen=True, slots=True)
class SparkJob:
    """How ranges of `source` become files below `folder` (`main/`, `quarantine/`): see `ports.Job`."""

    pipeline: Pipeline
    source: SparkSource
    folder: Path
    connect: "Connect"
    settings: Mapping[str, str]

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
        """See `Job.run`. A range that is written as a whole has no deadline."""
        spark = join_session(self.connect, endpoint, self.pipeline.module, self.settings)
        deadline = inf if whole else self.pipeline.deadline
        search = Bisection(self.pipeline, self.source, self.folder, spark, schema, run_id, deadline, shorten=not whole)
        yield from search.run(*jobs, still=recheck)
