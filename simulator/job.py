"""A job that takes virtual time and writes only the number of its rows."""

import itertools
from collections.abc import Callable, Iterator, Sequence

from rota.dataplane.ports import FailedPartition, WrittenFiles
from rota.errors import BadTransform
from rota.ledger.values import Ranges
from simulator.memory_log import make_file


class TimedJob:
    """`work(ranges)` lets the job's time pass; `poison(ranges)` returns the partition that fails on its data, or None."""

    def __init__(self, work: Callable[[Ranges], None], poison: Callable[[Ranges], str | None] = lambda _: None) -> None:
        self.work, self.poison = work, poison
        self.attempts = itertools.count()

    def rehearse(self, *, endpoint: str | None, run_id: str) -> None:
        """See `Job.rehearse`: it takes no time."""

    def run(
        self,
        jobs: Sequence[Ranges],
        *,
        endpoint: str | None,  # noqa: ARG002
        run_id: str,
        schema: str | None,  # noqa: ARG002
        whole: bool = False,  # noqa: ARG002
        recheck: Callable[[Ranges], Ranges] = dict,
    ) -> Iterator[WrittenFiles | FailedPartition]:
        """See `Job.run`."""
        for job in jobs:
            ranges = dict(recheck(job))
            if not ranges:
                continue
            self.work(ranges)
            if (bad := self.poison(ranges)) is not None:
                del ranges[bad]
                yield FailedPartition(bad, BadTransform(f"run {run_id} fails on {bad}", partition=bad))
            if ranges:
                attempt = f"{run_id}-{next(self.attempts)}"
                files = tuple(make_file(f"data/{attempt}", p, start, end) for p, (start, end) in ranges.items())
                yield WrittenFiles(attempt, ranges, files, 0.0)
