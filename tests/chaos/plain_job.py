"""The job port without Spark: reads the JSON files of a folder, or the records of a topic, and writes Parquet by pyarrow."""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa

from rota.dataplane import footers, names
from rota.dataplane.kafka import reading
from rota.dataplane.kafka.kafka_source import KafkaSource
from rota.dataplane.ports import FailedPartition, Source, WrittenFiles
from rota.errors import BadTransform
from rota.ledger.values import DataFile, Ranges
from rota.stores import read

TYPES = {
    "_partition": "string",
    "_offset": "long",
    "n": "integer",
}  # Spark's names, which the table's columns come from
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
SCHEMA = pa.schema(
    [("_partition", pa.string()), ("_offset", pa.int64()), ("n", pa.int32())],
    metadata={footers.SPARK: json.dumps({"type": "struct", "fields": FIELDS})},
)


@dataclass(frozen=True, slots=True)
class PlainJob:
    """Records of one number, `n`, from files of `source` below `landing` into files below `table`, each a folder or a URL.
    `poisoned` names the partitions of which the transform fails."""

    source: Source
    landing: Path | str
    table: Path | str
    poisoned: Callable[[str], bool] = lambda _: False
    began: Callable[[], None] = lambda: None  # called before a job reads
    written: Callable[[], None] = lambda: None  # called before what was written is handed over

    def rehearse(self, *, endpoint: str | None, run_id: str) -> None:
        """See `Job.rehearse`."""

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
        """See `Job.run`."""
        for job in jobs:
            self.began()
            wanted = recheck(job)
            for partition in filter(self.poisoned, wanted):
                yield FailedPartition(partition, BadTransform(f"it fails on {partition}", partition=partition))
            if ranges := {p: r for p, r in wanted.items() if not self.poisoned(p)}:
                attempt = f"{run_id}-{uuid.uuid4().hex[:8]}"
                files = tuple(self._write(attempt, p, range(start, end)) for p, (start, end) in ranges.items())
                footers.check_ranges(files, ranges)
                self.written()
                yield WrittenFiles(attempt, ranges, files, 0.0)

    def _write(self, attempt: str, partition: str, offsets: range) -> DataFile:
        rows = [
            {"_partition": partition, "_offset": offset, "n": json.loads(line)["n"]}
            for offset, text in self._read(partition, offsets)
            for line in text.splitlines()
        ]
        path = f"data/{attempt}/{names.split(partition)}/rows.parquet"
        return footers.write_file(str(self.table), path, pa.Table.from_pylist(rows, SCHEMA))

    def _read(self, partition: str, offsets: range) -> Iterator[tuple[int, bytes]]:
        return ((offset, read(str(self.landing), self.source.locate(partition, offset))) for offset in offsets)


class TopicJob(PlainJob):
    """A plain job whose records the shipped reader of Spark's tasks reads from the topic of `source`."""

    def _read(self, partition: str, offsets: range) -> Iterator[tuple[int, bytes]]:
        source = cast(KafkaSource, self.source)
        number, topic = source.number(partition), source.topic
        share = ((number, offsets.start, offsets.stop),)
        for batch in reading.read(topic.name, topic.client, share, {number: partition}, {}, True):
            yield from ((one["_offset"], one["value"]) for one in batch.to_pylist())
