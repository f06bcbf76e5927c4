"""One Spark job for all ranges of a run: read, transform, write plain Parquet split by partition. Nothing is visible yet.

Law: what a job wrote is named by its attempt and seen by nobody until a commit names its files. A job that fails on data
or transform is bisected over its partitions, so that the poison one is found and the others go on. So is one that failed
like the environment while Spark lives: what fails alone while others go through is its own fault; what nobody gets
through, of all or of the first `ALONE`, is everybody's, and parks nobody. Which are the first is another draw in each run:
else those that fail would come first for ever, and none of the others would have its turn.

Law: no job goes on beyond the `deadline`. One that does not end is searched like one that failed like the environment, each
time with less time, as with less to do; before an offset is blamed, it had the whole deadline for itself alone.

Law: what a run has to do comes as jobs, in order; each is bounded, and looked at anew before it begins. After one in
which nobody gets through another is tried, which is a draw: if somebody does there, the others failed by their own fault.

Law: who may `shorten` ranges fails a partition only for its first offset, which nobody else gets through either: what
stands before a broken file or a poison record is written first, and the rest is left to the next run.
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
from rota.dataplane.ports import FailedPartition, WrittenFiles
from rota.dataplane.spark import failures, origins, parsing, plans, quarantine, transforming, writing
from rota.dataplane.spark.deadline import limit
from rota.dataplane.spark.spark_source import Explain, Records, SparkSource, Translates
from rota.errors import BadTransform, DataError, EnvironmentFailed, RotaError, TooSlow
from rota.ids import quote
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline
from rota.stores import delete_folder, join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)
LEAST = 60.0  # seconds that a job has in a search, if the deadline is not shorter
ALONE = 4  # so many partitions that fail one by one, and none that went through: no need to try the others
LATE = 2  # the same of those that hang: time is dear
WIDE: set[str] = set()  # tables of which this process met a row that is too wide to be counted


@dataclass(frozen=True, slots=True)
class Bisection:
    """How a run of `pipeline` turns ranges of `source` into files below `location` (`main/`, `quarantine/`)."""

    pipeline: Pipeline
    source: SparkSource
    location: str
    spark: "SparkSession"
    schema: str | None  # of the table, JSON
    run_id: str = "run"  # its attempts begin with it, so that a folder on disk says whose it is
    deadline: float = inf  # seconds
    shorten: bool = False  # whether a range may come out shorter; else it does as a whole or not at all

    def run(self, *jobs: Ranges, still: Callable[[Ranges], Ranges] = dict) -> Iterator[WrittenFiles | FailedPartition]:
        """Every partition of the jobs that is `still` to be worked on, as its job begins, comes out once, written or failed.
        Raises EnvironmentFailed.

        Pieces come as they are done; O(bad x log n) jobs of Spark's for one of these.
        """
        left, worked, hopeless = list(jobs), False, False
        waiting: list[FailedPartition] = []  # they failed like the environment, and nobody got through yet
        while left:
            ranges, *left = left
            broken, intact = self._part(still(ranges))
            yield from broken
            out = {one.partition for one in broken}
            alone: list[FailedPartition] = []
            whole = {p: (start, end) for p, (start, end) in intact.items() if start < end}
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
                yield from (FailedPartition(one.partition, self._own(one.partition, one.error)) for one in waiting)
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
        its_own = isinstance(result, DataError)
        if not its_own and not (isinstance(result, EnvironmentFailed) and failures.is_alive(self.spark)):
            raise result
        if result.facts.get("late"):
            log.warning("late=%s seconds=%g: searched by halves", ",".join(ranges), seconds)
            seconds = max(min(self.deadline, LEAST), seconds / sqrt(2))  # n halvings: 3.4 times the deadline, not n
        broken, intact = self._part(ranges)
        if intact != ranges:  # a file changed under the job: nobody else's fault
            yield from broken
            if intact:
                yield from self._bisect(intact, seconds)
        elif result.facts.get("everywhere") or self._is_smallest(ranges):
            if result.facts.get("counts"):
                again = self._try(ranges, seconds, partial(self._recount, result))
                result = again if isinstance(again, RotaError) else result
            yield from (FailedPartition(p, _addressed(result, p)) for p in ranges)
        elif len(ranges) == 1:
            yield from self._bisect(self._shorten(ranges), seconds)
        else:
            names = sorted(ranges, key=self.draw)
            for half in (names[: len(names) // 2], names[len(names) // 2 :]):
                yield from self._bisect({p: ranges[p] for p in half}, seconds)

    def _is_smallest(self, ranges: Ranges) -> bool:
        """Whether nothing smaller can be tried."""
        return len(ranges) == 1 and not self._shorten(ranges)

    def draw(self, partition: str) -> bytes:
        """The partition's place in the order in which a run tries them: another one in each run."""
        return sha256(f"{self.run_id} {partition}".encode()).digest()

    def _accept(self, result: WrittenFiles, seconds: float) -> Iterator[WrittenFiles | FailedPartition]:
        """What was written, and what a refused partition comes to without its second half."""
        again = self._shorten({p: result.ranges[p] for p in result.refused})
        if kept := {p: r for p, r in result.ranges.items() if p not in again}:
            files = tuple(f for f in result.files if f.partition in kept)
            refused = {p: error for p, error in result.refused.items() if p in kept}
            yield replace(result, ranges=kept, files=files, refused=refused)
        for p, half in again.items():
            yield from self._bisect({p: half}, seconds)

    def _shorten(self, ranges: Ranges) -> Ranges:
        """The first half of each range that may be shortened and has two offsets or more."""
        return {p: (a, a + (b - a) // 2) for p, (a, b) in ranges.items() if self.shorten and b - a > 1}

    def _part(self, ranges: Ranges) -> tuple[list[FailedPartition], Ranges]:
        """The partitions whose source changed or cannot be looked at, and the ranges that can be read: where that may
        be, up to there."""
        broken = self.source.find_broken(ranges)
        intact = {p: (a, self._find_unbroken(p, a, b) if p in broken else b) for p, (a, b) in ranges.items()}
        failed = [FailedPartition(p, error) for p, error in broken.items() if intact[p][0] == intact[p][1]]
        out = {one.partition for one in failed}
        return failed, {p: r for p, r in intact.items() if p not in out}

    def _find_unbroken(self, partition: str, start: int, end: int) -> int:
        """The first broken offset, of which there is one."""
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
        except writing.WideRow:
            self.remove(attempt)
            WIDE.add(self.location)
            return self._try(ranges, seconds)  # an NFS has what was deleted under this name as gone for a while
        except Exception as error:
            self.remove(attempt)
            one = next(iter(ranges)) if len(ranges) == 1 else None
            place = self._describe_place(one, *ranges[one]) if one else ""
            if isinstance(error, RotaError) and error.facts.get("late"):
                return self._late(seconds, place)
            told = self.source.translate if isinstance(self.source, Translates) else str
            return failures.judge_failure(error, self.spark, one, told, place, self.pipeline.module)

    def _describe_place(self, partition: str, start: int, end: int) -> str:
        """Where a failed job read: what a person looks for, and what `rota skip` would skip."""
        if end - start > 1:
            return f" in offsets {start} to {end - 1}"
        return f" in offset {start} ({self.source.locate(partition, start)})"

    def write_together(self, ranges: Ranges, attempt: str) -> WrittenFiles:
        """One Spark job reads, transforms and writes all of these ranges."""
        began = time.monotonic()
        with self.source.read(self.spark, ranges, attempt) as records:
            corruptible = records.explain is not None
            bare = records.mark is not None and self.pipeline.transform is None
            parsed = parsing.parse(records.frame, corruptible, records.identify, counted=bare)
            result, plan, shown = self._transform(parsed)
            told = corruptible or records.count is not None  # also where nobody watches what the transform is handed
            kept = shown and told and parsed.keeps_each_row(plan)
            if not kept:
                parsed = parsing.watch(records.frame, corruptible, records.identify)
                result, _, shown = self._transform(parsed)
            whole = plans.explain(result) if plan or records.named or not kept else ""
            sure = kept or parsed.is_read_once(whole)
            counted = self.location not in WIDE and not (plan and plans.calls_python(whole))
            rows = None
            if not shown:
                result, rows = parsing.observe(result, *origins.sum_origins())
            elif not kept:
                result, rows = parsing.count_rows(result)
            known = ranges if shown else None
            named = records.named if shown and plans.goes_row_by_row(whole) else None
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
            bad = self._set_aside(records, records.explain, tally, done, done.count_rows() if kept else None)
            if kept:
                bad.tally.require_good(written)
        seconds = time.monotonic() - began
        return replace(done, seconds=seconds, bad=bad.counts, bad_files=bad.files, refused=bad.refused)

    def _recount(self, found: RotaError, ranges: Ranges, attempt: str) -> NoReturn:
        """Raise the error of the offset whose data do not hold what the source states, or else `found`."""
        with self.source.read(self.spark, ranges, attempt) as records:
            if records.recount:
                records.recount()
        raise found

    def _set_aside(
        self,
        records: Records,
        explain: Explain,
        tally: parsing.Tally | None,
        done: WrittenFiles,
        good: Mapping[str, int] | None,
    ) -> quarantine.BadRecords:
        """Writes the bad records, which are read again, beside the `good` ones of each partition. Raises EnvironmentFailed
        where the counts differ."""
        left_out, table = records.mark is not None, join(self.location, "quarantine")
        frame, identify = (records.mark(), columns.keep_ids) if records.mark else (records.frame, records.identify)
        parsed = parsing.parse(frame, True, identify)
        before = None if left_out else tally
        bad = quarantine.set_aside(
            parsed, before, self.source, explain, self.pipeline, table, done.attempt, done.ranges, good
        )
        if left_out and tally:
            bad.tally.require_good(tally.records)
        return bad

    def look_again(self, ranges: Ranges) -> None:
        """Raises the error of a range that changed while it was read."""
        if broken := self.source.find_broken(ranges):
            raise next(iter(broken.values()))

    def _count(self, parsed: parsing.Parsed, records: Records) -> parsing.Tally | None:
        """What was read, by what Spark counted, or else by what the source holds, of which none can be bad. Raises
        EnvironmentFailed where the two differ."""
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
        """The error of what failed alone, while others went through."""
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
        """Removes what an attempt wrote, if it can; nobody sees it anyway."""
        for table in ("main", "quarantine"):
            delete_folder(join(self.location, table), f"data/{attempt}")


def _addressed(error: RotaError, partition: str) -> RotaError:
    """The error of several partitions as that of one: its next step names it."""
    if not (isinstance(error, BadTransform) and error.step and error.partition is None):
        return error
    person = bool(error.facts.get("person"))
    step = failures.name_step(person, partition)
    return BadTransform(error.what, step=step, partition=partition, person=person)
