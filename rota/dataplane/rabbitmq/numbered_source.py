"""The common part of numbered queues and numbered streams of RabbitMQ as a source.

The queue or stream `<prefix><key>` is the partition of the key. A run takes messages into inboxes, one for each partition,
when it observes the source. It holds them until it ends, and returns those that it did not commit.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from rota.dataplane.formats import values
from rota.dataplane.ports import ENDS, Consumed, Observation, Query, SourceContext
from rota.dataplane.rabbitmq.declaration import RabbitQueues
from rota.dataplane.rabbitmq.inbox import ALL, Inbox
from rota.dataplane.rabbitmq.link import Link
from rota.dataplane.spark.spark_source import Records
from rota.errors import ConfigError, RotaError
from rota.ids import key_of
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
QUIET = 2.0  # seconds without a message, after which a run uses what it received
MAX_READING = 20.0  # seconds of reading
PREFETCH = 65_535  # messages; the greatest value of AMQP


@dataclass(slots=True)
class NumberedSource(ABC):
    """The queues or streams `<prefix><key>` of pipeline `name`. `read_offsets` returns the table's offsets; `stage` is a
    folder that Spark can read."""

    name: str
    declared: RabbitQueues
    keys: tuple[str, ...]
    read_offsets: Callable[[Iterable[str]], Mapping[str, int | None]]
    stage: Path
    inboxes: dict[str, Inbox] = field(default_factory=dict)
    _link: Link | None = None
    _came: Condition = field(default_factory=Condition)

    kind: ClassVar[Mapping[str, object]]  # arguments that its queues must have; others may be set
    decisive: ClassVar[tuple[str, ...]]  # arguments that prove another kind of queue if they differ

    @classmethod
    def of(cls, pipeline: Pipeline, context: SourceContext) -> Self:
        """Return the source that the pipeline declares."""
        declared = cast(RabbitQueues, pipeline.source)
        keys = tuple(sorted(map(str, range(declared.count))))
        return cls(pipeline.name, declared, keys, context.read_offsets, context.scratch)

    # --- observing: each observation has its own connection, and takes messages only if it assigns offsets

    def _find_place(self, link: Link) -> str:
        """Return the broker and the queues. Raises ConfigError if a queue does not exist or rota cannot read it."""
        names = [f"{self.declared.prefix}{n}" for n in range(self.declared.count)]
        if gone := [name for name in names if link.count_ready(name) is None]:
            more = f" and {len(gone) - 1} more" if gone[1:] else ""
            raise ConfigError(
                f"{link.place} has no {gone[0]}{more}. Start a rota.rabbitmq.Publisher, which makes them, or correct "
                f"prefix and count"
            )
        for name in names:
            why = link.find_difference(name, self.kind)
            if any(argument in why for argument in self.decisive):
                raise ConfigError(self._explain_kind(name, why))
        return f"{link.place} queues {names[0]} to {names[-1]}"

    def _list_ignored(self, link: Link) -> Mapping[str, str]:  # noqa: ARG002
        """Return the queues beside these that rota never reads -> why."""
        return {}

    @abstractmethod
    def _explain_kind(self, queue: str, why: str) -> str:
        """Return what is wrong with a queue that has other arguments; `why` is the broker's text."""

    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`: the keys whose queue exists."""
        with self._connect() as link:
            return tuple(key for key in self.keys if link.count_ready(f"{self.declared.prefix}{key}") is not None)

    def observe(self, partitions: tuple[str, ...], query: Query = ENDS) -> Observation:
        """See `Source.observe`. An observation that assigns offsets takes messages, and holds them until `close`."""
        place, ignored = "", dict[str, str]()
        with self._connect() as link:
            if query.inspect:
                place, ignored = self._find_place(link), dict(self._list_ignored(link))
            ends = self._read_ends(link, partitions)
            firsts = self._read_firsts(link, query.starts) if query.starts else {}
        lost = self._find_lost(query.consumed, ends)
        found = self._take({p: end for p, end in ends.items() if p not in lost}) if query.assign else ends
        starts = query.choose_starts(self.declared.start, found, firsts)
        return Observation(ends=found, starts=starts, assigned=ends, lost=lost, place=place, ignored=ignored)

    @abstractmethod
    def _read_ends(self, link: Link, partitions: tuple[str, ...]) -> dict[str, int]:
        """Return the end of each partition."""

    def _read_firsts(self, link: Link, partitions: Iterable[str]) -> Mapping[str, int]:  # noqa: ARG002
        """Return the first offset that is left, of each partition for which it is not 0."""
        return {}

    def _find_lost(self, consumed: Consumed, ends: Mapping[str, int]) -> Mapping[str, str]:  # noqa: ARG002
        """Return why each partition lost consumed offsets, with the next step."""
        return {}

    # --- a run: it holds the messages that it takes until `close`

    def _take(self, ends: Mapping[str, int]) -> Mapping[str, int]:
        """Take messages of these partitions, and return their ends."""
        starts = self._read_starts(tuple(ends), ends)
        self._fetch({p: starts[p] for p in ends if p not in self.inboxes and ends[p] > starts[p]})
        found = {p: self.inboxes[p] for p in ends if p in self.inboxes}
        known = {p: one.read_end() for p, one in found.items() if one.came >= one.awaited or one.read_end() > ends[p]}
        return {**ends, **known}

    @property
    def _first(self) -> int:
        """The declared first offset of a partition."""
        return self.declared.start if isinstance(self.declared.start, int) else 0

    def plan_jobs(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> tuple[Ranges, ...]:
        """See `Source.plan_jobs`: one job. If the next message of a partition is missing, that message is its range, which
        `find_broken` reports."""
        held = {p: self.inboxes[p].end if p in self.inboxes else at for p, at in starts.items()}
        job = {p: (at, max(held[p], at + 1)) for p, at in starts.items() if at < ends[p]}
        return (job,) if job else ()

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """See `Source.find_broken`: a message of the range is not held."""
        self._fetch({p: start for p, (start, _) in ranges.items() if p not in self.inboxes}, ranges)
        return {
            p: self._explain_hole(p, start) for p, (start, end) in ranges.items() if not self.inboxes[p].has(start, end)
        }

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """See `Holds.acknowledge`."""
        link = self._link
        with self._came:
            done = {p: tuple(self.inboxes[p].drop_below(at)) for p, at in offsets.items() if p in self.inboxes}
        if tags := tuple(tag for of in done.values() for tag in of):
            if link:
                link.acknowledge(tags, min((one.read_least_tag() for one in self.inboxes.values()), default=ALL))
            log.info("acknowledged=%d queues=%s", len(tags), ",".join(self._queue(p) for p, of in done.items() if of))

    def close(self) -> None:
        """See `Holds.close`."""
        if self._link:
            self._link.close()
        self._link, self.inboxes = None, {}

    @contextmanager
    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> Iterator[Records]:
        """See `SparkSource.read`: a message is a record."""
        found = {p: self.inboxes[p].list_bodies(*span) for p, span in ranges.items()}
        declared = self.declared
        explain = None
        if declared.format != "bytes":
            explain = partial(values.explain_bad, declared.format, options=declared.options)
        with values.read_staged(
            spark, self.stage / attempt, found, declared.schema, declared.format, declared.options
        ) as frame:
            yield Records(frame, explain, lambda: sum(map(len, found.values())), list_raw=self.list_raw)

    def list_raw(self, partition: str, offset: int) -> Iterable[str]:
        """See `Records.list_raw`."""
        return [values.decode(self.inboxes[partition].bodies[offset])]

    def locate(self, partition: str, offset: int) -> str:
        """See `Source.locate`."""
        return f"message {offset} of {self._queue(partition)}"

    # --- taking messages

    def _fetch(self, starts: Mapping[str, int], ranges: Ranges | None = None) -> None:
        """Take messages of these queues, within the caps. With `ranges`, take the offsets of these ranges."""
        if not starts:
            return
        link = self._link = self._link or Link(self.declared.url)
        self.inboxes |= {
            p: self._make_inbox(at, len(starts), ranges.get(p) if ranges else None) for p, at in starts.items()
        }
        for p, count in self._count_waiting(link, starts).items():
            self.inboxes[p].awaited = count
        asked = {p: self.inboxes[p] for p in starts if self.inboxes[p].awaited}
        link.limit(min(max(2 * self.inboxes[p].room for p in starts), PREFETCH))
        consumers = [link.consume(self._queue(p), self._make_taker(p), **self._choose_start(starts[p])) for p in asked]
        until, seen = monotonic() + MAX_READING, -1
        with self._came:
            while (left := _count_missing(asked)) and monotonic() < until and seen != (seen := left):
                self._came.wait_for(lambda: not _count_missing(asked), QUIET)
        for consumer in consumers:
            link.cancel(consumer)

    def _make_inbox(self, start: int, among: int, asked: tuple[int, int] | None) -> Inbox:  # noqa: ARG002
        """Return an inbox with an even share of the caps. `asked`: the range that the caller needs, if it names one."""
        return Inbox(start, max(1, self.declared.max_messages // among), self.declared.max_bytes // among)

    @abstractmethod
    def _count_waiting(self, link: Link, starts: Mapping[str, int]) -> Mapping[str, int]:
        """Return how many messages each partition can deliver."""

    @abstractmethod
    def _choose_start(self, start: int) -> Mapping[str, Any]:
        """Return the arguments with which a consumer starts at this offset."""

    @abstractmethod
    def _read_offset(self, queue: str, tag: int, headers: Mapping[str, object], body: bytes) -> int | None:
        """Return the offset of a message; None if it has none."""

    @abstractmethod
    def _explain_hole(self, partition: str, start: int) -> RotaError:
        """Return why the message `start` is missing, with the next step."""

    def _make_taker(self, partition: str) -> Callable[[int, Mapping[str, object], bytes], None]:
        """Return the function that the connection's thread calls with each message of the partition's queue."""
        queue, inbox = self._queue(partition), self.inboxes[partition]

        def take(tag: int, headers: Mapping[str, object], body: bytes) -> None:
            with self._came:
                if (offset := self._read_offset(queue, tag, headers, body)) is None:
                    inbox.came += 1
                else:
                    inbox.take(tag, offset, body)
                if not inbox.count_missing():
                    self._came.notify_all()

        return take

    def _read_starts(self, partitions: Iterable[str], ends: Mapping[str, int]) -> dict[str, int]:
        """Return the table's offsets. A partition that the table does not know starts as declared."""
        latest = self.declared.start == "latest"
        at = self.read_offsets(partitions)
        return {p: (ends[p] if latest else self._first) if offset is None else offset for p, offset in at.items()}

    def _queue(self, partition: str) -> str:
        return f"{self.declared.prefix}{key_of(partition)}"

    @contextmanager
    def _connect(self) -> Iterator[Link]:
        link = Link(self.declared.url)
        try:
            yield link
        finally:
            link.close()


def _count_missing(inboxes: Mapping[str, Inbox]) -> int:
    """Count the messages that may still arrive and that the run would commit."""
    return sum(one.count_missing() for one in inboxes.values())
