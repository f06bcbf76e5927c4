"""Run the Spark jobs of a run: each reads, transforms and writes plain Parquet files. Find the partitions that fail.

Law: a job's files are below its attempt. They are invisible until a commit names them.

Law: a job that fails on data or in the transform is bisected over its partitions, so that the failing partition is found
and the others are written. So is a job that failed like the environment while Spark is alive. If some partitions succeed,
the ones that fail alone are at fault. If every partition fails, or the first `ALONE` that are tried, the environment is at
fault and no partition fails. Each run draws a new order: otherwise partitions that fail could always come first.

Law: a range that may be shortened (`shorten`) fails only for its first offset. The records before a bad one are written
first, and the rest is left to the next run. An offset is blamed only if it failed twice when it was read alone, each time
with the whole deadline.

Law: no job runs longer than the `deadline`. A job that is late is bisected like one that failed like the environment; each
half gets less time.

Law: jobs have a bounded size and run in order. Before each job, `still` returns what is still to do. If no partition of a
job succeeds, another job is drawn and runs next. If that job succeeds, the earlier partitions failed by their own fault.
"""

import logging
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from math import inf, sqrt
from typing import TYPE_CHECKING, NoReturn

from rota.dataplane import columns, footers
from rota.dataplane.formats.plain_json import NotPlain
from rota.dataplane.ports import FailedPartition, WrittenFiles
from rota.dataplane.spark import failures, origins, parsing, plans, quarantine, transforming, writing
from rota.dataplane.spark.deadline import limit
from rota.dataplane.spark.spark_source import ReadsDirectly, Records, SparkSource, Translates
from rota.errors import BadTransform, DataError, EnvironmentFailed, RotaError, TooSlow
from rota.ids import quote
from rota.ledger.values import DataFile, Ranges
from rota.pipeline import Pipeline
from rota.stores import delete_folder, join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)
LEAST = 60.0  # seconds that a job of a bisection has at least, unless the deadline is shorter
ALONE = 4  # partitions that failed alone before any succeeded: the others are not tried
LATE = 2  # the same for partitions that are late: each takes a whole deadline
WIDE: set[str] = set()  # tables for which this process met a row that is too wide to be counted
NOT_PLAIN: set[str] = set()  # tables for which it met a record, or a format, that needs Spark's parser


@dataclass(frozen=True, slots=True)
class Bisection:
    """How a run of `pipeline` writes ranges of `source` to files below `location` (`main/`, `quarantine/`)."""

    pipeline: Pipeline
    source: SparkSource
    location: str
    spark: "SparkSession"
    schema: str | None  # of the table, JSON
    run_id: str = "run"  # prefix of its attempts, so that a folder on disk names its run
    deadline: float = inf  # seconds
    shorten: bool = False  # whether a range may be written in part; else it is written as a whole or fails

    def run(self, *jobs: Ranges, still: Callable[[Ranges], Ranges] = dict) -> Iterator[WrittenFiles | FailedPartition]:
        """Run the jobs in order; yield each piece as soon as it is written or has failed.

        A job takes O(bad x log n) Spark jobs for n offsets of which `bad` fail.

        Args:
            jobs: the ranges of each job.
            still: returns which of a job's ranges are still to do; called before the job begins.

        Yields: each partition that is still to do, once.
        Raises: EnvironmentFailed.
        """
        left, worked, hopeless = list(jobs), False, False
        waiting: list[FailedPartition] = []  # failed like the environment, and no partition succeeded yet
        tried: dict[str, tuple[int, int]] = {}
        while left:
            ranges, *left = left
            broken, intact = self._part(still(ranges))
            yield from broken
            out = {one.partition for one in broken}
            alone: list[FailedPartition] = []
            whole = {p: (start, end) for p, (start, end) in intact.items() if start < end}
            tried |= whole
            for piece in self._bisect(whole, self.deadline) if whole else ():
                out |= {piece.partition} if isinstance(piece, FailedPartition) else set(piece.ranges)
                if isinstance(piece, FailedPartition) and isinstance(piece.error, EnvironmentFailed):
                    alone.append(piece)
                    if not worked and len(alone) >= (LATE if piece.error.facts.get("late") else ALONE):
                        break
                    continue
                worked = worked or isinstance(piece, WrittenFiles)
                yield piece
            waiting += alone
            if worked:
                yield from (self._blame(one, tried[one.partition][0]) for one in waiting)
                waiting = []
            elif alone and (hopeless or not left):
                break
            elif alone:
                hopeless = True
                drawn = min(left, key=lambda job: self.draw(next(iter(job))))
                left = [drawn, *(job for job in left if job is not drawn)]
                left.append({p: r for p, r in ranges.items() if p not in out})
        if waiting:
            raise waiting[0].error

    def _bisect(self, ranges: Ranges, seconds: float) -> Iterator[WrittenFiles | FailedPartition]:
        seconds = self.deadline if self._is_smallest(ranges) else seconds
        result = self._try(ranges, seconds)
        if isinstance(result, WrittenFiles):
            yield from self._accept(result, seconds)
            return
        self._require_alive(result)
        if result.facts.get("late"):
            log.warning("late=%s seconds=%g: bisected", ",".join(ranges), seconds)
            seconds = max(min(self.deadline, LEAST), seconds / sqrt(2))  # n halvings: 3.4 times the deadline, not n
        broken, intact = self._part(ranges)
        if intact != ranges:  # the source changed under the job: the other partitions are not at fault
            yield from broken
            if intact:
                yield from self._bisect(intact, seconds)
        elif result.facts.get("everywhere"):
            yield from (FailedPartition(p, _addressed(result, p)) for p in ranges)
        elif self._is_smallest(ranges):
            ((p, (start, _)),) = ranges.items()
            if result.facts.get("counts"):
                again = self._try(ranges, seconds, partial(self._recount, result))
                yield FailedPartition(p, _addressed(again if isinstance(again, RotaError) else result, p))
                return
            failed = FailedPartition(p, _addressed(result, p))
            yield self.read_again(failed, start) if isinstance(result, DataError) else failed
        elif len(ranges) == 1:
            yield from self._bisect(self._shorten(ranges), seconds)
        else:
            names = sorted(ranges, key=self.draw)
            for half in (names[: len(names) // 2], names[len(names) // 2 :]):
                yield from self._bisect({p: ranges[p] for p in half}, seconds)

    def _require_alive(self, result: RotaError) -> None:
        """Raise `result` if no bisection can explain it: Spark is gone, the source refuses this user, or no job raised
        it."""
        if isinstance(result, DataError):
            return
        if (
            not isinstance(result, EnvironmentFailed)
            or result.facts.get("refused")
            or not failures.is_alive(self.spark)
        ):
            raise result

    def read_again(self, failed: FailedPartition, offset: int) -> WrittenFiles | FailedPartition:
        """Read the blamed offset alone once more, since `rota skip` would drop it.

        A range that must be written as a whole names no offset, and is not read again.

        Returns: what the second reading wrote, or the failure with the error of the second reading.
        Raises: EnvironmentFailed, if Spark is gone.
        """
        if not self.shorten:
            return failed
        result = self._try({failed.partition: (offset, offset + 1)}, self.deadline)
        if isinstance(result, RotaError):
            self._require_alive(result)
            return FailedPartition(failed.partition, _addressed(result, failed.partition))
        log.warning("partition=%s offset=%s second_reading=passed first=%s", failed.partition, offset, failed.error)
        return result

    def _blame(self, failed: FailedPartition, offset: int) -> WrittenFiles | FailedPartition:
        """Decide about a partition that failed alone like the environment, while others succeeded."""
        result = self.read_again(failed, offset)
        if isinstance(result, FailedPartition) and isinstance(result.error, EnvironmentFailed):
            return FailedPartition(result.partition, self._own(result.partition, result.error))
        return result

    def _is_smallest(self, ranges: Ranges) -> bool:
        """Whether no smaller range can be tried."""
        return len(ranges) == 1 and not self._shorten(ranges)

    def draw(self, partition: str) -> bytes:
        """The partition's place in the order in which this run tries them."""
        return sha256(f"{self.run_id} {partition}".encode()).digest()

    def _accept(self, result: WrittenFiles, seconds: float) -> Iterator[WrittenFiles | FailedPartition]:
        """Yield what was written; a refused partition is tried again with the first half of its range."""
        again = self._shorten({p: result.ranges[p] for p in result.refused})
        if kept := {p: r for p, r in result.ranges.items() if p not in again}:
            files = tuple(f for f in result.files if f.partition in kept)
            refused = {p: error for p, error in result.refused.items() if p in kept}
            yield replace(result, ranges=kept, files=files, refused=refused)
        for p, half in again.items():
            yield from self._bisect({p: half}, seconds)

    def _shorten(self, ranges: Ranges) -> Ranges:
        """Return the first half of each range that may be shortened and has two offsets or more."""
        return {p: (a, a + (b - a) // 2) for p, (a, b) in ranges.items() if self.shorten and b - a > 1}

    def _part(self, ranges: Ranges) -> tuple[list[FailedPartition], Ranges]:
        """Return the partitions whose source changed or cannot be read, and the ranges that can be read. A range that may
        be shortened ends at its first broken offset."""
        broken = self.source.find_broken(ranges)
        intact = {p: (a, self._find_unbroken(p, a, b) if p in broken else b) for p, (a, b) in ranges.items()}
        failed = [FailedPartition(p, error) for p, error in broken.items() if intact[p][0] == intact[p][1]]
        out = {one.partition for one in failed}
        return failed, {p: r for p, r in intact.items() if p not in out}

    def _find_unbroken(self, partition: str, start: int, end: int) -> int:
        """Return the first broken offset of a range that has one."""
        if not self.shorten:
            return start
        ends = range(start + 1, end + 1)
        return start + bisect_left(
            ends, True, key=lambda e: partition in self.source.find_broken({partition: (start, e)})
        )

    def _try(
        self, ranges: Ranges, seconds: float, work: Callable[[Ranges, str], WrittenFiles] | None = None
    ) -> WrittenFiles | RotaError:
        attempt = f"{self.run_id}-{uuid.uuid4().hex[:12]}"
        try:
            with limit(self.spark, seconds):
                return (work or self.write_together)(ranges, attempt)
        except (writing.WideRow, NotPlain) as error:
            self.remove(attempt)
            (NOT_PLAIN if isinstance(error, NotPlain) else WIDE).add(self.location)
            return self._try(ranges, seconds)  # under a new name: an NFS caches for a while that the old one is gone
        except Exception as error:
            self.remove(attempt)
            one = next(iter(ranges)) if len(ranges) == 1 else None
            place = self._describe_place(one, *ranges[one]) if one else ""
            if isinstance(error, RotaError) and error.facts.get("late"):
                return self._late(seconds, place)
            translate = self.source.translate if isinstance(self.source, Translates) else str
            return failures.judge_failure(error, self.spark, one, translate, place, self.pipeline.module)

    def _describe_place(self, partition: str, start: int, end: int) -> str:
        """Return the offsets of a failed job, which `rota skip` would skip, and where an operator finds their data."""
        if end - start > 1:
            return f" in offsets {start} to {end - 1}"
        return f" in offset {start} ({self.source.locate(partition, start)})"

    def write_together(self, ranges: Ranges, attempt: str) -> WrittenFiles:
        """Read, transform and write all of these ranges in one Spark job."""
        began = time.monotonic()
        if (files := self._write_directly(ranges, attempt)) is not None:
            return WrittenFiles(attempt, ranges, files, time.monotonic() - began)
        with self.source.read(self.spark, ranges, attempt) as records:
            corruptible = records.explain is not None
            bare = records.mark is not None and self.pipeline.transform is None
            parsed = parsing.parse(records.frame, corruptible, records.identify, counted=bare)
            result, plan, shown = self._transform(parsed)
            countable = corruptible or records.count is not None  # known without observing the input of the transform
            kept = shown and countable and parsed.keeps_each_row(plan)
            if not kept:
                parsed = parsing.watch(records.frame, corruptible, records.identify)
                result, _, shown = self._transform(parsed)
            whole = plans.explain(result) if plan or not kept else ""
            sure = kept or parsed.is_read_once(whole)
            counted = self.location not in WIDE and not (plan and plans.calls_python(whole))
            rows = None
            if not shown:
                result, rows = parsing.observe(result, *origins.sum_origins())
            elif not kept:
                result, rows = parsing.count_rows(result)
            known = ranges if shown else None
            row_by_row = not plan or plans.goes_row_by_row(whole)  # without a transform, as the source reads
            named = records.named if shown and row_by_row else None
            main, folder = join(self.location, "main"), f"data/{attempt}"
            files = writing.write(result, main, folder, counted=counted, known=known, named=named)
            footers.check_ranges(files, ranges)
            written = sum(f.rows for f in files)
            if rows:
                spoken = parsing.read_counts(rows)
                parsing.require_same(spoken.get(parsing.ROWS, 0), written, "rows that Spark wrote", "its files hold")
                if not shown:
                    origins.require_same(parsed.good, spoken)
            self.look_again(ranges)
            tally = parsing.Tally(written, 0) if bare else self._count(parsed, records) if sure else None
            if kept and tally:
                tally.require_good(written)
            none_bad = tally and (tally.records == records.most if records.mark else not tally.bad)
            done = WrittenFiles(attempt, ranges, files, time.monotonic() - began)
            if records.explain is None or none_bad:
                return done
            bad = self._set_aside(records, tally, done, done.count_rows() if kept else None)
            if kept:
                bad.tally.require_good(written)
        seconds = time.monotonic() - began
        return replace(done, seconds=seconds, bad=bad.counts, bad_files=bad.files, refused=bad.refused)

    def _write_directly(self, ranges: Ranges, attempt: str) -> tuple[DataFile, ...] | None:
        """Write the ranges by tasks that decode the records in Python. Return None if the source or the pipeline needs
        expressions of Spark's. Raises: NotPlain, if a record does."""
        if self.pipeline.transform or self.location in NOT_PLAIN or not isinstance(self.source, ReadsDirectly):
            return None
        with self.source.read_directly(self.spark, ranges) as job:
            if job is None:
                NOT_PLAIN.add(self.location)  # the next jobs do not ask again
                return None
            transforming.require_columns(job.kind.json(), self.schema)
            files = writing.write_directly(job, join(self.location, "main"), f"data/{attempt}")
            footers.check_ranges(files, ranges)
            self.look_again(ranges)
            return files

    def _recount(self, found: RotaError, ranges: Ranges, attempt: str) -> NoReturn:
        """Raise the error of the offset whose data do not hold what the source states, or else `found`."""
        with self.source.read(self.spark, ranges, attempt) as records:
            if records.recount:
                records.recount()
        raise found

    def _set_aside(
        self,
        records: Records,
        tally: parsing.Tally | None,
        done: WrittenFiles,
        good: Mapping[str, int] | None,
    ) -> quarantine.BadRecords:
        """Read the bad records again and write them beside the `good` ones of each partition.
        Raises: EnvironmentFailed, if the counts differ."""
        left_out, table = records.mark is not None, join(self.location, "quarantine")
        frame, identify = (records.mark(), columns.keep_ids) if records.mark else (records.frame, records.identify)
        parsed = parsing.parse(frame, True, identify)
        before = None if left_out else tally
        bad = quarantine.set_aside(
            parsed, before, self.source, records, self.pipeline, table, done.attempt, done.ranges, good
        )
        if left_out and tally:
            bad.tally.require_good(tally.records)
        return bad

    def look_again(self, ranges: Ranges) -> None:
        """Raise the error of a range that changed while it was read."""
        if broken := self.source.find_broken(ranges):
            raise next(iter(broken.values()))

    def _count(self, parsed: parsing.Parsed, records: Records) -> parsing.Tally | None:
        """Return what was read, as Spark counted it, or else as the source counts it if none of its records can be bad.
        Raises: EnvironmentFailed, if the two counts differ."""
        tally, held = parsed.tally(), records.count() if records.count else None
        if tally and held is not None:
            parsing.require_same(tally.records, held, "records that Spark read", "the files of the source hold")
        if tally or held is None or records.explain:
            return tally
        return parsing.Tally(held, 0)

    def _late(self, seconds: float, place: str) -> EnvironmentFailed:
        why = f"it was not done after {seconds:g} s{place}"
        then = "No partition is parked; the next run tries again" if self.shorten else "Nothing of it was replaced"
        return EnvironmentFailed(
            f"A job of Spark was ended: {why}. {then}. See whether what it reads or calls hangs; if it only needs longer, "
            f"give the pipeline a longer deadline",
            why=why,
            late=seconds,
        )

    def _own(self, partition: str, error: RotaError) -> RotaError:
        """Return the error of a partition that failed alone while others succeeded."""
        again = f"rota retry {quote(partition)}" if self.shorten else "replay it again"
        if error.facts.get("late"):
            skip = f"; or: rota skip {quote(partition)}" if self.shorten else ""
            return TooSlow(
                f"{partition} alone hangs: {error.facts['why']}, while others were",
                step=f"Mend its data or the transform, or give the pipeline a longer deadline, then: {again}{skip}",
                partition=partition,
            )
        steps = f"It is tried again by itself; at once: {again}" if self.shorten else f"Then {again}"
        return EnvironmentFailed(
            f"Spark failed for {partition} alone ({error.facts.get('why', error)})",
            step=f"Mend its data or give Spark more room. {steps}",
        )

    def _transform(self, parsed: parsing.Parsed) -> "tuple[DataFrame, str, bool]":
        """See `transforming.apply`."""
        return transforming.apply(self.pipeline, parsed, self.spark, self.deadline, self.schema)

    def remove(self, attempt: str) -> None:
        """Remove what an attempt wrote, if possible; no commit names it."""
        for table in ("main", "quarantine"):
            delete_folder(join(self.location, table), f"data/{attempt}")


def _addressed(error: RotaError, partition: str) -> RotaError:
    """Return the error with a next step that names the partition."""
    if not (isinstance(error, BadTransform) and error.step and error.partition is None):
        return error
    person = bool(error.facts.get("person"))
    step = failures.name_step(person, partition)
    return BadTransform(error.what, step=step, partition=partition, person=person)
