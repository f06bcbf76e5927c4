"""Reads a little of a source through schema and transform, as a run does, into a folder that is deleted afterwards.

Law: it consumes nothing, and writes nothing outside the ports' own folder. Source, job, writer and commit are those of
a run, so a run accepts each record that a tryout accepts.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rota.dataplane import footers
from rota.dataplane.ports import FailedPartition, Holds, Job, Ports, Query, WrittenFiles
from rota.errors import DataError, TooManyBadRecords
from rota.ledger.values import Batch, DataFile, Ranges, TableClaim
from rota.record import OFFSET, PARTITION
from rota.stores import open_files

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TriedPartition:
    """The result for one partition.

    `rows` and `bad` count the records of the offsets [start, end). If the two offsets are equal, nothing was read.
    `error` is why a run would park the partition; empty if it would not.
    """

    partition: str
    start: int
    end: int
    rows: int = 0
    bad: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Tryout:
    """The result of a tryout.

    `columns`: name -> type, empty if no row was written. `rows` and `bad_records` have the first ones of each partition.
    A bad record has `partition`, `offset`, `position`, `file`, `reason` and `raw`.
    """

    columns: Mapping[str, str]
    partitions: tuple[TriedPartition, ...]
    rows: tuple[Mapping[str, Any], ...]
    bad_records: tuple[Mapping[str, Any], ...]

    @property
    def works(self) -> bool:
        """Return whether there was something to read and a run would park none of these partitions."""
        tried = [one for one in self.partitions if one.end > one.start or one.error]
        return bool(tried) and not any(one.error for one in tried)


def try_out(
    ports: Ports, lenient: Job, partitions: Sequence[str], endpoint: str, schema: str | None, most: int
) -> Tryout:
    """Try the first batch of each partition.

    Args:
        ports: source, tables and job of the pipeline, over a folder of the tryout's own.
        lenient: the same job without a limit on bad records. It reads the partitions again that `ports.job` refused for
            too many bad records, to list these records.
        partitions: the ids to try.
        endpoint: the Spark to use.
        schema: the columns of the pipeline's own table, JSON; None if there is no table.
        most: how many rows, and how many bad records, of each partition are returned.

    Returns:
        the result of each partition, with its first rows and bad records.

    Raises:
        EnvironmentFailed: the source or Spark does not answer.
    """
    try:
        return _Trying(ports, lenient, endpoint, schema, most).run(tuple(partitions))
    finally:
        if isinstance(ports.source, Holds):
            ports.source.close()


@dataclass(frozen=True, slots=True)
class _Trying:
    ports: Ports
    lenient: Job
    endpoint: str
    schema: str | None
    most: int

    def run(self, partitions: tuple[str, ...]) -> Tryout:
        source = self.ports.source
        seen = source.observe(partitions, Query(assign=True, starts=partitions))
        ends, starts = seen.ends, seen.starts
        why = {p: seen.unreadable.get(p) or "it cannot be read" for p in partitions if p not in ends}
        found = {p: TriedPartition(p, 0, 0, error=reason) for p, reason in why.items()}
        found |= {p: TriedPartition(p, starts[p], starts[p]) for p in ends}
        jobs = source.plan_jobs(starts, ends)
        last = {p: end for job in jobs for p, (_, end) in job.items()}
        claim = self.ports.main.claim(dict.fromkeys(ends, 1), starts) if jobs else None
        columns: dict[str, str] = {}
        rows: list[Mapping[str, Any]] = []
        bad: list[Mapping[str, Any]] = []
        while jobs and claim:
            refused: dict[str, tuple[int, int]] = {}
            for piece in self._work(self.ports.job, jobs):
                if isinstance(piece, FailedPartition):
                    found[piece.partition] = replace(found[piece.partition], error=piece.error.what)
                    continue
                many = [p for p, why in piece.refused.items() if isinstance(why, TooManyBadRecords)]
                refused |= {p: (piece.ranges[p][0], last[p]) for p in many}
                found |= {p: replace(found[p], error=why.what) for p, why in piece.refused.items()}
                found |= self._commit(piece, claim, found)
                columns |= self._read_columns(piece.files)
                rows += self._read_rows(piece.files)
                bad += self._read_bad(piece.bad_files)
            for piece in self._work(self.lenient, [refused]) if refused else ():
                if isinstance(piece, WrittenFiles):
                    bad += self._read_bad(piece.bad_files)
                    found |= {p: replace(found[p], bad=n) for p, n in piece.bad.items()}
            jobs = self._find_rest(jobs, found)
            claim = self.ports.main.claim(dict.fromkeys(ends, 1), starts) if jobs else None
        rows.sort(key=lambda row: (partitions.index(row[PARTITION]), row[OFFSET]))
        bad.sort(key=lambda one: partitions.index(one["partition"]))
        return Tryout(columns, tuple(found[p] for p in partitions), tuple(rows), tuple(bad))

    def _work(self, job: Job, jobs: Sequence[Ranges]) -> Iterator[WrittenFiles | FailedPartition]:
        return job.run(jobs, endpoint=self.endpoint, run_id="try", schema=self.schema)

    def _commit(
        self, piece: WrittenFiles, claim: TableClaim, found: Mapping[str, TriedPartition]
    ) -> dict[str, TriedPartition]:
        """Commit the written files to the tryout's own table, which refuses columns that no Delta table may have."""
        kept = {p: r for p, r in piece.ranges.items() if p not in piece.refused}
        counts, error = piece.count_rows(), ""
        files = tuple(f for f in piece.files if f.partition in kept)
        rows = {p: counts[p] for p in kept}
        try:
            self.ports.main.commit(claim, Batch(uuid.uuid4().hex, "try", "", piece.attempt, 0, kept, files, rows))
        except DataError as refused:
            error = refused.what
        return {
            p: replace(
                found[p], end=end, rows=found[p].rows + rows[p], bad=found[p].bad + piece.bad.get(p, 0), error=error
            )
            for p, (_, end) in kept.items()
        }

    def _find_rest(self, jobs: Sequence[Ranges], found: Mapping[str, TriedPartition]) -> tuple[Ranges, ...]:
        """Return the jobs that a run would leave to the next run. A job writes the offsets before a record that fails, and
        leaves the rest.
        """
        left = [
            {p: (found[p].end, end) for p, (_, end) in job.items() if not found[p].error and found[p].end < end}
            for job in jobs
        ]
        rest = tuple(one for one in left if one)
        return () if rest == tuple(jobs) else rest  # if equal, no job wrote anything, and the loop would not end

    def _read_columns(self, files: Iterable[DataFile]) -> dict[str, str]:
        return {
            field.name: str(field.type)
            for table in self._open(self.ports.main.location, list(files)[:1], 0)
            for field in table.schema
        }

    def _read_rows(self, files: Iterable[DataFile]) -> list[Mapping[str, Any]]:
        first = {file.partition: file for file in reversed([f for f in files if f.rows])}
        tables = self._open(self.ports.main.location, first.values(), self.most)
        return [row for table in tables for row in table.to_pylist()]

    def _read_bad(self, files: Iterable[DataFile]) -> list[Mapping[str, Any]]:
        names = (PARTITION, OFFSET, "_position", "_file", "_reason", "_raw")
        tables = self._open(self.ports.quarantine.location, files, self.most)
        return [{n.removeprefix("_"): row[n] for n in names} for table in tables for row in table.to_pylist()]

    def _open(self, location: str, files: Iterable[DataFile], most: int) -> Iterator["pa.Table"]:
        """Yield the first `most` rows of each file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        store = open_files(location)
        for file in files:
            with pq.ParquetFile(footers.resolve_path(file.path), filesystem=store) as opened:
                batch = next(opened.iter_batches(batch_size=max(1, most)), None) if most else None
                yield pa.Table.from_batches([batch] if batch else [], opened.schema_arrow)
