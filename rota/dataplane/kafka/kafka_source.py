"""A topic of Kafka as a source: the topic's partitions are the pipeline's, and offsets are the broker's own.

Law: a range is planned before it is read, ends at or below the last stable offset, and is read to its end. So every reader
gets the same records of it, except for those that compaction removed since. A range may have holes. No consumer group
assigns partitions; after a commit, rota sets the offsets of a group, so that Kafka's own tools report a lag.

Law: offsets belong to one topic. The first assignment of offsets stores the topic's id. A topic with another id has lost all
offsets, whatever records it has.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Self, TypeVar, cast

from rota.dataplane.formats import values
from rota.dataplane.kafka import direct, reading
from rota.dataplane.kafka.declaration import Kafka
from rota.dataplane.kafka.reading import Reader
from rota.dataplane.kafka.registered import RegisteredValues, open_values
from rota.dataplane.kafka.schema_registry import FAILED
from rota.dataplane.kafka.topic import Topic, TopicMetadata
from rota.dataplane.ports import ENDS, Consumed, Observation, Query, SourceContext, Withheld
from rota.dataplane.spark import plans
from rota.dataplane.spark.spark_source import DirectJob, Explain, Records
from rota.errors import ConfigError, EnvironmentFailed, RotaError, SourceChanged, counted
from rota.ids import key_of, quote
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline
from rota.record import OFFSET, PARTITION, FieldPath
from rota.settings import expand
from rota.stores import join, make_folder, put_new, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
NOTE = "topic.json"
UNKNOWN = 1 << 62  # the assigned end of a partition that cannot be read now: it counts as one that lost nothing
ABSENT = TopicMetadata("", (), frozenset())
ANOTHER = "Give the pipeline another name and table; or restore the lost records"
LARGE = 1 << 20  # bytes of the largest record that a broker takes by default


@dataclass(frozen=True, slots=True)
class TopicState:
    """The topic at one moment.

    Attributes:
        topic: without partitions if the topic does not exist.
        noted: the stored id of the topic whose offsets the table has; None if there is none.
        other: why the topic is not the stored one; empty if it is, if its id is unknown, and while there is no topic.
        heads: the end of each partition that can be read, and its leader's epoch.
        firsts: the first offsets that the retention left, of the partitions whose first offsets were requested.
    """

    topic: TopicMetadata
    noted: str | None
    other: str = ""
    heads: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    firsts: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Return whether the topic existed and does not exist now. A broker that loads its metadata reports the same."""
        return not self.topic.partitions and self.noted is not None


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """The declared topic. `index`, a folder or a URL, holds the id of the topic whose offsets the table has; `reading` are
    the partitions that a job is reading."""

    declared: Kafka
    topic: Topic
    group: str
    index: str
    registered: RegisteredValues | None = None  # how to read the values, if a registry holds their schemas
    reading: set[str] = field(default_factory=set)
    replays: bool = False  # reads consumed offsets again
    epochs: dict[str, int] = field(default_factory=dict)  # of the leaders at the assignment of offsets
    fresh: list[TopicState] = field(
        default_factory=list
    )  # the state at which offsets were assigned, until a check has used it
    _noted: list[Callable[[], None]] = field(default_factory=list)

    @classmethod
    def of(cls, pipeline: Pipeline, context: SourceContext) -> Self:
        """Return the source that the pipeline declares."""
        declared = cast(Kafka, pipeline.source)
        client = declared.read_client()
        group = client.pop("group.id", f"rota-{pipeline.name}")
        return cls(
            declared,
            Topic(expand(declared.topic), client, declared.explain_login()),
            group,
            join(context.location, "index"),
            open_values(declared),
        )

    # --- observing

    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`."""
        found = self.topic.read_metadata()
        return tuple(sorted(map(self.name_key, found.partitions))) if found else ()

    def number(self, partition: str) -> int:
        """Return the number of a partition in the topic; -1 if its key is no number."""
        key = key_of(partition)
        return int(key) if re.fullmatch(r"0|[1-9][0-9]{0,8}", key) else -1

    def name_key(self, number: int) -> str:
        """Return the key of a partition's number in the topic."""
        return str(number)

    def observe(self, partitions: tuple[str, ...], query: Query = ENDS) -> Observation:
        """See `Source.observe`.

        A partition without a leader is unreadable, and each one while the topic is gone. A partition that does not exist
        yet ends at 0. The first assignment stores the topic's id.
        """
        state = self._read_state(partitions, firsts=query.starts)
        if query.inspect and not state.topic.partitions:
            raise ConfigError(
                f"There is no {self.topic.place}. Make the topic, or correct servers and topic of kafka(...)"
            )
        if query.inspect and self.registered:
            self.registered.check()
        ends = {p: end for p, (end, _) in state.heads.items()}
        assigned = dict.fromkeys(partitions, 0) if state.other else {p: ends.get(p, UNKNOWN) for p in partitions}
        epochs = {p: epoch for p, (_, epoch) in state.heads.items() if epoch is not None}
        if query.assign:
            if state.topic.id and state.noted is None:
                self._write_id(state.topic.id)
            self.epochs.update(epochs)
            self.fresh[:] = [state]
        return Observation(
            ends=ends,
            unreadable={p: self._explain_unreadable(p, state) for p in partitions if p not in ends},
            starts=query.choose_starts(self.declared.start, ends, state.firsts),
            assigned=assigned,
            lost=self._find_lost(query.consumed, assigned, state),
            leader_epochs=epochs,
            withheld=self._find_withheld(state, query.open_since) if query.open_since is not None else {},
            place=self.topic.place,
        )

    def _read_state(self, partitions: Iterable[str], firsts: Iterable[str] = ()) -> TopicState:
        """Read the topic's metadata and the ends of these partitions from the broker, and the first offsets of some."""
        state = TopicState(self.topic.read_metadata() or ABSENT, self._read_id())
        if state.noted and state.topic.partitions and state.topic.id not in ("", state.noted):
            why = f"its id is {state.topic.id}, and it was {state.noted} ({join(self.index, NOTE)})"
            state = replace(state, other=f"{self.topic.place} was created again: {why}")
        left = self._read(state, firsts, self.topic.read_firsts, 0) if firsts else {}
        return replace(state, heads=self._read(state, partitions, self.topic.read_heads, (0, None)), firsts=left)

    def _read(
        self, state: TopicState, partitions: Iterable[str], ask: Callable[[Iterable[int]], Mapping[int, T]], new: T
    ) -> dict[str, T]:
        """Return the answer for each partition that has a leader, and `new` for each that does not exist yet."""
        numbers = {p: self.number(p) for p in partitions}
        answers = ask(sorted(state.topic.led.intersection(numbers.values())))
        absent = set() if state.is_gone else set(numbers.values()).difference(state.topic.partitions)
        return {p: answers.get(n, new) for p, n in numbers.items() if n in answers or n in absent}

    def _explain_unreadable(self, partition: str, state: TopicState) -> str:
        if state.is_gone:
            return f"{partition}: there is no {self.topic.place} now. It is retried automatically; bring the topic back"
        return (
            f"{partition}: {self._name(partition)} has no leader. Bring its brokers back; it is retried automatically"
        )

    def _find_lost(self, consumed: Consumed, assigned: Mapping[str, int], state: TopicState) -> dict[str, str]:
        """Return why each partition lost consumed offsets: the topic is another one, or the partition ends before them, or
        other records have them now."""
        beyond = consumed.find_beyond(assigned)
        lost = {
            p: f"{state.other or f'{self._name(p)} ends at {assigned[p]}: it lost records'}. {ANOTHER}" for p in beyond
        }
        noted = {
            p: (one.offset, one.leader_epoch)
            for p, one in consumed.positions.items()
            if one.offset and one.offset <= assigned.get(p, 0) and one.leader_epoch not in (None, -1)
        }
        return lost | {
            p: f"{self._name(p)} lost the records from {first} on and gave their offsets to others (leader epoch "
            f"{noted[p][1]} ended there, it is {state.heads[p][1]} now). {ANOTHER}"
            for p, first in self._find_cut(noted, state).items()
        }

    def _find_withheld(self, state: TopicState, since: float) -> dict[str, Withheld]:
        """Return the partitions with records behind open transactions: their high watermark is ahead of the last stable
        offset."""
        high = self._read(state, state.heads, self.topic.read_high_watermarks, 0)
        held = {p: end for p, (end, _) in state.heads.items() if end < high.get(p, 0)}
        later = self._read(state, held, lambda numbers: self.topic.read_newer(numbers, since), -1) if held else {}
        found: dict[str, Withheld] = {}
        for p, end in held.items():
            waits = f"a transaction is open since offset {end}, and {counted(high[p] - end, 'offset')} wait"
            old = later.get(p, end) == -1 or later.get(p, end) > end
            found[p] = Withheld(end, f"{self._name(p)}: {waits}", old)
        return found

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
        """Return the mean bytes of the records from these offsets on, and the offset up to which each partition has none.

        A partition that returned no record gets the largest mean of the others.
        """
        found, behind = self.topic.weigh({self.number(p): at for p, at in starts.items()})
        largest = max(found.values(), default=LARGE)
        return {p: found.get(self.number(p), largest) for p in starts}, {p: behind[self.number(p)] for p in starts}

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """See `Source.find_broken`: the retention deleted the start, the topic is another one, or the partition ends before.

        The check before the first job of a run uses the state at which the offsets were assigned. Each other check reads
        the state again. If the retention deletes a range while a job reads it, the job reads all of it or fails.
        """
        fresh = self.fresh.pop() if self.fresh else None
        state = fresh if fresh and ranges.keys() <= fresh.firsts.keys() else self._read_state(ranges, firsts=ranges)
        if state.other:
            return {p: SourceChanged(f"{p}: {state.other}", step=ANOTHER, partition=p, other=True) for p in ranges}
        found = {p: self._find_error(p, *span, state) for p, span in ranges.items()}
        broken = {p: error for p, error in found.items() if error}
        noted = {p: (end, self.epochs[p]) for p, (_, end) in ranges.items() if p in self.epochs and p not in broken}
        return broken | {
            p: EnvironmentFailed(f"{self._name(p)} lost records from {first} on meanwhile. The next run reads the rest")
            for p, first in self._find_cut(noted, state).items()
        }

    def _find_error(self, partition: str, start: int, end: int, state: TopicState) -> RotaError | None:
        if partition not in state.heads:
            return EnvironmentFailed(self._explain_unreadable(partition, state))
        name, first, last = self._name(partition), state.firsts[partition], state.heads[partition][0]
        if start < first and partition not in self.reading:
            skip = f"To continue without them: rota skip {quote(partition)}"
            return SourceChanged(
                f"{name} begins at {first}: the retention deleted the records from offset {start} on",
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

    # --- capabilities: `Replays`, `HasTimes`, `Holds`

    def find_offsets(self, partitions: tuple[str, ...], since: float, until: float) -> Ranges:
        """See `HasTimes.find_offsets`."""
        state = TopicState(self.topic.read_metadata() or ABSENT, self._read_id())

        def find(at: float) -> dict[str, int]:
            found = self._read(state, partitions, lambda numbers: self.topic.read_stamped(numbers, at), 0)
            return {p: offset for p, offset in found.items() if offset >= 0}

        ends = find(until) if until < inf else {}
        return {p: (start, ends.get(p, 1 << 62)) for p, start in find(since).items()}

    def reread(self, ranges: Ranges) -> Self:  # noqa: ARG002
        """See `Replays.reread`: all readers of a topic read the same records."""
        return replace(self, replays=True, epochs={}, fresh=[])

    def _find_cut(self, noted: Mapping[str, tuple[int, int]], state: TopicState) -> dict[str, int]:
        """Return partition -> the first offset that it lost. A leader never truncates its own log, so a partition with the
        same epoch is not checked."""
        moved = {p: one for p, one in noted.items() if p in state.heads and state.heads[p][1] not in (None, one[1])}
        found = self.topic.find_cut({self.number(p): one for p, one in moved.items()})
        return {p: found[self.number(p)] for p in moved if self.number(p) in found}

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """See `Holds.acknowledge`: sets the offsets of the consumer group, for information."""
        if offsets:
            self._noted.append(
                self.topic.set_group_offsets(self.group, {self.number(p): at for p, at in offsets.items()})
            )

    def close(self) -> None:
        """See `Holds.close`."""
        while self._noted:
            self._noted.pop()()

    # --- the topic's id

    def _read_id(self) -> str | None:
        with suppress(FileNotFoundError):
            return str(json.loads(read(self.index, NOTE))["id"])
        return None

    def _write_id(self, id: str) -> None:
        make_folder(self.index, ".")
        put_new(self.index, NOTE, json.dumps({"topic": self.topic.name, "id": id}).encode())

    # --- reading

    @contextmanager
    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> Iterator[Records]:  # noqa: ARG002
        """See `SparkSource.read`: at most as many tasks as Spark has cores, each with one consumer."""
        with self._read_shares(spark, ranges) as (tasks, _, read):
            explain: Explain | None
            if self.registered:
                parsed, explain = self.registered.decode(tasks, read)
            else:
                parsed = self._parse(tasks, read)
                explain = None if self.declared.format == "bytes" else self._explain_bad
            yield Records(parsed, explain)

    @contextmanager
    def read_directly(self, spark: "SparkSession", ranges: Ranges) -> Iterator[DirectJob | None]:
        """See `ReadsDirectly.read_directly`."""
        with self._read_shares(spark, ranges) as (tasks, count, read):
            found = direct.decode(self.declared, self.registered, tasks, read)
            yield found and DirectJob(tasks, count, *found)

    @contextmanager
    def _read_shares(self, spark: "SparkSession", ranges: Ranges) -> "Iterator[tuple[DataFrame, int, Reader]]":
        """Yield a frame with a row for each share of the ranges, the number of its tasks, and what reads the shares."""
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(reading)
        declared, numbered = self.declared, {self.number(p): span for p, span in ranges.items()}
        shares = reading.cut(numbered, plans.count_slots(spark))
        ids, client = {self.number(p): p for p in ranges}, {"group.id": self.group, **self.topic.client}
        absent = declared.tombstones != "skip"
        read = reading.make_reader(self.topic.name, client, shares, ids, declared.beside, absent)
        self.reading.update(ranges)
        try:
            yield spark.range(0, len(shares), 1, len(shares)), len(shares), read
        except Exception as error:
            if refused := reading.REFUSED.search(str(error)):
                raise self.topic.refuse_for(refused["why"], bool(refused["login"])) from None
            if self.registered and (failed := FAILED.search(str(error))):
                raise self.registered.refuse(failed["why"]) from None
            raise
        finally:
            self.reading.clear()

    def _parse(self, tasks: "DataFrame", make: Reader) -> "DataFrame":
        """Let Spark parse the values that the tasks read."""
        declared, beside = self.declared, self.declared.beside
        ddl = f"{reading.write_ddl('value binary', beside)}, {PARTITION} string, {OFFSET} bigint"
        keep = declared.tombstones == "keep"
        return values.parse(
            tasks.mapInArrow(make, ddl),
            declared.schema,
            declared.format,
            declared.options,
            tuple(beside.values()),
            keep,
        )

    def _explain_bad(self, raw: str, nulls: Sequence[FieldPath]) -> str:
        ours = set(self.declared.beside.values())
        return values.explain_bad(
            self.declared.format, raw, [path for path in nulls if path[0] not in ours], self.declared.options
        )
