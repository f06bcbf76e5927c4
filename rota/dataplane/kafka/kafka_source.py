"""A topic of Kafka as a source: the topic's partitions are the pipeline's, and offsets are the broker's own.

Law: a range is planned before it is read, ends at or below the last stable offset, and is read to its end. So every reader
gets the same records of it, except for those that compaction removed since. A range may have holes. No consumer group
assigns partitions; the offsets of a group are set after a commit, so that Kafka's own tools report a lag.

Law: offsets belong to one topic. The id of the topic is noted when its offsets are first assigned; a topic with another id
has lost all of them, whatever it holds.
"""

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Self, cast

from rota.dataplane import columns
from rota.dataplane.formats import values
from rota.dataplane.kafka import reading
from rota.dataplane.kafka.declaration import Kafka
from rota.dataplane.kafka.topic import Seen, Topic
from rota.dataplane.ports import Home, Withheld
from rota.dataplane.spark import plans
from rota.dataplane.spark.spark_source import Records
from rota.errors import ConfigError, EnvironmentFailed, RotaError, SourceChanged, counted
from rota.ids import key_of, quote
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline
from rota.record import OFFSET, PARTITION, FieldPath
from rota.settings import expand
from rota.stores import join, make_folder, put_new, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE = "topic.json"
ANOTHER = "Give the pipeline another name and table; or bring back what there was"
LARGE = 1 << 20  # bytes of the largest record that a broker takes by default
SPLITS = re.compile(r"Range \(.*splits=(?:Some\()?(\d+)")


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """The declared topic. `index`, a folder or a URL, holds the id of the topic whose offsets the table has; `reading` are
    the partitions that a job is reading."""

    declared: Kafka
    topic: Topic
    group: str
    index: str
    reading: set[str] = field(default_factory=set)
    replays: bool = False  # whether it reads consumed offsets again
    epochs: dict[str, int] = field(default_factory=dict)  # of the leaders when offsets were assigned
    _noted: list[Callable[[], None]] = field(default_factory=list)

    @classmethod
    def of(cls, pipeline: Pipeline, home: Home) -> Self:
        """Return the source that the pipeline declares."""
        declared = cast(Kafka, pipeline.source)
        client = declared.read_client()
        group = client.pop("group.id", f"rota-{pipeline.name}")
        return cls(declared, Topic(expand(declared.topic), client), group, join(home.location, "index"))

    # --- what is there

    def find_place(self) -> str:
        """See `Source.find_place`."""
        if self.topic.look() is None:
            raise ConfigError(
                f"There is no {self.topic.place}. Make the topic, or mend servers and topic of kafka(...)"
            )
        return self.topic.place

    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`."""
        seen = self.topic.look()
        return tuple(sorted(map(self.name_key, seen.partitions))) if seen else ()

    def number(self, partition: str) -> int:
        """Return the number of a partition in the topic; -1 if its key is no number."""
        key = key_of(partition)
        return int(key) if re.fullmatch(r"0|[1-9][0-9]{0,8}", key) else -1

    def name_key(self, number: int) -> str:
        """Return the key of a partition's number in the topic."""
        return str(number)

    def _look(self) -> Seen:
        """Return the topic as it is now, without partitions if it does not exist."""
        return self.topic.look() or Seen("", (), frozenset())

    def read_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.read_ends`.

        A partition without a leader is left out; all are while the topic is gone. One that does not exist yet ends at 0.
        """
        return self._read(self._look(), partitions, self.topic.read_ends)

    def _read(
        self, seen: Seen, partitions: Iterable[str], ask: Callable[[Iterable[int]], Mapping[int, int]]
    ) -> dict[str, int]:
        numbers = {p: self.number(p) for p in partitions}
        answers = ask(sorted(seen.led.intersection(numbers.values())))
        new = set() if self._is_gone(seen) else set(numbers.values()).difference(seen.partitions)
        return {p: answers.get(n, 0) for p, n in numbers.items() if n in answers or n in new}

    def _is_gone(self, seen: Seen) -> bool:
        """Whether the topic existed and does not exist now. A broker that is loading its metadata reports the same."""
        return not seen.partitions and self._read_id() is not None

    def explain_unreadable(self, partition: str) -> str:
        """See `WaitsAlone.explain_unreadable`."""
        seen, number = self._look(), self.number(partition)
        if self._is_gone(seen):
            return f"{partition}: there is no {self.topic.place} now. It is tried again by itself; bring the topic back"
        if number not in seen.partitions or number in seen.led:
            return ""
        return (
            f"{partition}: {self._name(partition)} has no leader. Bring its brokers back; it is tried again by itself"
        )

    def find_withheld(self, partitions: tuple[str, ...], then: float) -> Mapping[str, Withheld]:
        """See `Withholds.find_withheld`: the high watermark is ahead of the last stable offset."""
        seen = self._look()
        stable, high = (
            self._read(seen, partitions, a) for a in (self.topic.read_ends, self.topic.read_high_watermarks)
        )
        held = tuple(p for p, at in stable.items() if p in high and at < high[p])
        later = self._read(seen, held, lambda numbers: self.topic.read_newer(numbers, then)) if held else {}
        found: dict[str, Withheld] = {}
        for p in held:
            waits = f"a transaction is open since offset {stable[p]}, and {counted(high[p] - stable[p], 'offset')} wait"
            old = later.get(p, stable[p]) == -1 or later.get(p, stable[p]) > stable[p]
            found[p] = Withheld(stable[p], f"{self._name(p)}: {waits}", old)
        return found

    def assign_offsets(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.assign_offsets`: the broker assigned them. The topic's id is noted if none was noted before."""
        seen = self._look()
        if seen.id and self._read_id() is None:
            self._write_id(seen.id)
        heads = self._read_heads(seen, partitions)
        self.epochs.update({p: epoch for p, (_, epoch) in heads.items() if epoch is not None})
        return {p: end for p, (end, _) in heads.items()}

    def _read_heads(self, seen: Seen, partitions: Iterable[str]) -> dict[str, tuple[int, int | None]]:
        """Return the end of each partition and its leader's epoch."""
        epochs = dict[int, int | None]()

        def ask(numbers: Iterable[int]) -> dict[int, int]:
            heads = self.topic.read_heads(numbers)
            epochs.update({n: epoch for n, (_, epoch) in heads.items()})
            return {n: end for n, (end, _) in heads.items()}

        return {p: (end, epochs.get(self.number(p))) for p, end in self._read(seen, partitions, ask).items()}

    @property
    def skips_existing(self) -> bool:
        """See `Source.skips_existing`."""
        return self.declared.start == "latest"

    def choose_starts(self, ends: Mapping[str, int], later: Container[str] = ()) -> Mapping[str, int]:
        """See `Source.choose_starts`: the declared start, or the first offset that the retention left."""
        asked = tuple(p for p in ends if not self.skips_existing or p in later)
        first = self.declared.start if isinstance(self.declared.start, int) else 0
        left = self._read(self._look(), asked, self.topic.read_firsts) if asked else {}
        return {**ends, **{p: max(first, left.get(p, 0)) for p in asked}}

    # --- a run

    def plan_jobs(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> tuple[Ranges, ...]:
        """See `Source.plan_jobs`."""
        records, size = self.declared.max_job_records, self.declared.max_job_bytes
        most = min(self.declared.max_records, records)
        counts = {p: min(ends[p] - at, most) for p, at in starts.items() if at < ends[p]}
        many = sum(counts.values()) * LARGE > size
        means, behind = self._weigh({p: starts[p] for p in counts}) if many else ({}, starts)
        jobs: list[dict[str, tuple[int, int]]] = []
        room = left = 0.0
        for p, count in counts.items():
            mean, empty = means.get(p, size / sum(counts.values())), behind[p] - starts[p]
            taken = max(1, min(count, empty + int(size / mean)))
            weight = max(0, taken - empty) * mean
            room, left = room - weight, left - taken
            if min(room, left) < 0:
                jobs.append({})
                room, left = size - weight, records - taken
            jobs[-1][p] = starts[p], starts[p] + taken
        return tuple(jobs)

    def _weigh(self, starts: Mapping[str, int]) -> tuple[Mapping[str, float], Mapping[str, int]]:
        """Return the mean bytes of the records behind these offsets, and up to which offset each partition has none.

        A partition that gave no record has the largest mean of the others.
        """
        found, behind = self.topic.weigh({self.number(p): at for p, at in starts.items()})
        largest = max(found.values(), default=LARGE)
        return {p: found.get(self.number(p), largest) for p in starts}, {p: behind[self.number(p)] for p in starts}

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """See `Source.find_broken`: the retention deleted the start, the topic is another one, or the partition ends before.
        While a job reads a range, the retention may delete it: the job reads it whole or fails."""
        seen = self._look()
        if why := self._explain_other(seen):
            return {p: SourceChanged(f"{p}: {why}", step=ANOTHER, partition=p, other=True) for p in ranges}
        firsts, heads = self._read(seen, ranges, self.topic.read_firsts), self._read_heads(seen, ranges)
        ends = {p: end for p, (end, _) in heads.items()}
        found = {p: self._find_error(p, *span, firsts.get(p), ends.get(p)) for p, span in ranges.items()}
        broken = {p: error for p, error in found.items() if error}
        noted = {p: (end, self.epochs[p]) for p, (_, end) in ranges.items() if p in self.epochs and p not in broken}
        return broken | {
            p: EnvironmentFailed(
                f"{self._name(p)} lost records from {first} on meanwhile. The next run looks at the rest"
            )
            for p, first in self._find_cut(noted, heads).items()
        }

    def _find_error(
        self, partition: str, start: int, end: int, first: int | None, last: int | None
    ) -> RotaError | None:
        name = self._name(partition)
        if first is None or last is None:
            return EnvironmentFailed(
                self.explain_unreadable(partition) or f"{name} was without a leader. It is tried again"
            )
        if start < first and partition not in self.reading:
            skip = f"To go on without: rota skip {quote(partition)}"
            return SourceChanged(
                f"{name} begins at {first} and offset {start} was asked for: its retention is over",
                step=f"Replay what is left, from {first} on" if self.replays else skip,
                partition=partition,
                behind=first,
            )
        if end > last:
            return SourceChanged(
                f"{name} ends at {last}, and {end - 1} was there: it lost records, or never had them",
                step=f"Bring them back, then: rota retry {quote(partition)}",
                partition=partition,
            )
        return None

    def locate(self, partition: str, offset: int) -> str:
        """See `Source.locate`."""
        return f"{self._name(partition)}@{offset}"

    def _name(self, partition: str) -> str:
        return f"{self.topic.name}[{self.number(partition)}]"

    # --- capabilities: `Replays`, `Stamps`, `Remembers`, `Holds`

    def find_stamped(self, partitions: tuple[str, ...], since: float, until: float) -> Ranges:
        """See `Stamps.find_stamped`: from the first record with a time of `since` or later to the first of `until` or
        later."""
        seen = self._look()

        def find(at: float) -> dict[str, int]:
            found = self._read(seen, partitions, lambda numbers: self.topic.read_stamped(numbers, at))
            return {p: offset for p, offset in found.items() if offset >= 0}

        ends = find(until) if until < inf else {}
        return {p: (start, ends.get(p, 1 << 62)) for p, start in find(since).items()}

    def reread(self, ranges: Ranges) -> Self:  # noqa: ARG002
        """See `Replays.reread`: all readers of a topic read the same records."""
        return replace(self, replays=True, epochs={})

    def read_assigned_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Remembers.read_assigned_ends`: 0 if the topic is another one. A partition that cannot be read now counts as
        one that lost nothing."""
        seen = self._look()
        if self._explain_other(seen):
            return dict.fromkeys(partitions, 0)
        ends = self._read(seen, partitions, self.topic.read_ends)
        return {p: ends.get(p, 1 << 62) for p in partitions}

    def read_leader_epochs(self, partitions: Iterable[str]) -> Mapping[str, int]:
        """See `HasLeaderEpochs.read_leader_epochs`."""
        return {p: self.epochs[p] for p in partitions if p in self.epochs}

    def find_cut(self, noted: Mapping[str, tuple[int, int]]) -> Mapping[str, str]:
        """See `HasLeaderEpochs.find_cut`."""
        heads = self._read_heads(self._look(), noted) if noted else {}
        return {
            p: f"{self._name(p)} lost the records from {first} on and gave their offsets to others (leader epoch "
            f"{noted[p][1]} ended there, it is {heads[p][1]} now). {ANOTHER}"
            for p, first in self._find_cut(noted, heads).items()
        }

    def _find_cut(
        self, noted: Mapping[str, tuple[int, int]], heads: Mapping[str, tuple[int, int | None]]
    ) -> dict[str, int]:
        """Return partition -> the first offset that it lost. A leader never cuts its own log, so a partition with the same
        epoch is not checked."""
        moved = {p: one for p, one in noted.items() if p in heads and heads[p][1] not in (None, one[1])}
        found = self.topic.find_cut({self.number(p): one for p, one in moved.items()})
        return {p: found[self.number(p)] for p in moved if self.number(p) in found}

    def explain_lost(self, partition: str, end: int) -> str:
        """See `Remembers.explain_lost`."""
        why = self._explain_other(self._look()) or f"{self._name(partition)} ends at {end}: it lost records"
        return f"{why}. {ANOTHER}"

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """See `Holds.acknowledge`: sets the offsets of the consumer group, for information."""
        if offsets:
            self._noted.append(self.topic.note_group(self.group, {self.number(p): at for p, at in offsets.items()}))

    def close(self) -> None:
        """See `Holds.close`."""
        while self._noted:
            self._noted.pop()()

    # --- which topic it is

    def _explain_other(self, seen: Seen) -> str:
        """Return why the topic is not the one whose offsets the table has; empty if it is, if its id is unknown, and while
        there is no topic."""
        known, note = self._read_id(), join(self.index, NOTE)
        if not known or not seen.partitions or seen.id in ("", known):
            return ""
        return f"{self.topic.place} was made anew: its id is {seen.id}, and it was {known} ({note})"

    def _read_id(self) -> str | None:
        with suppress(FileNotFoundError):
            return str(json.loads(read(self.index, NOTE))["id"])
        return None

    def _write_id(self, id: str) -> None:
        make_folder(self.index, ".")
        put_new(self.index, NOTE, json.dumps({"topic": self.topic.name, "id": id}).encode())

    # --- how Spark reads it

    @contextmanager
    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> Iterator[Records]:  # noqa: ARG002
        """See `SparkSource.read`: at most as many tasks as Spark has cores, each with one consumer."""
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(reading)
        declared, numbered = self.declared, {self.number(p): span for p, span in ranges.items()}
        found = SPLITS.search(plans.explain(spark.range(1)))
        shares = reading.cut(numbered, int(found[1]) if found else 1)
        beside = declared.beside
        ids, client = {self.number(p): p for p in ranges}, {"group.id": self.group, **self.topic.client}
        make = reading.make_reader(self.topic.name, client, shares, ids, beside, declared.tombstones != "skip")
        ddl = f"{reading.write_ddl('value binary', beside)}, {PARTITION} string, {OFFSET} bigint"
        frame = spark.range(0, len(shares), 1, len(shares)).mapInArrow(make, ddl)
        parsed = values.parse(
            frame,
            declared.schema,
            declared.format,
            declared.options,
            tuple(beside.values()),
            declared.tombstones == "keep",
        )
        self.reading.update(ranges)
        try:
            yield Records(parsed, None if declared.format == "bytes" else self._explain_bad, identify=columns.keep_ids)
        finally:
            self.reading.clear()

    def _explain_bad(self, raw: str, nulls: Sequence[FieldPath]) -> str:
        ours = set(self.declared.beside.values())
        return values.explain_bad(
            self.declared.format, raw, [path for path in nulls if path[0] not in ours], self.declared.options
        )
