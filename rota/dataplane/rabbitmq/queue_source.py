"""Numbered queues of RabbitMQ as a source: one queue a partition, an offset is a message's sequence in its queue.

Law: a message is acknowledged after the table has it, and never before. What a run was given and did not commit goes back to
its queue when the run ends, however it ends. A message that was given twice is dropped below where the table stands; one
that cannot be consumed is moved to `<prefix>.quarantine` with the reason, and is there before it is acknowledged.

Law: the table alone remembers where a queue stands. Its end is that and what waits in the queue. Where a sequence is
missing, the partition waits for it, and says so.

A run reads before it claims: what it is given is its own until it ends, and whoever was overtaken gives it back.
"""

import logging
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.rabbitmq import frames
from rota.dataplane.rabbitmq.declaration import RabbitQueues
from rota.dataplane.rabbitmq.inbox import ALL, Inbox
from rota.dataplane.rabbitmq.link import Link, Message
from rota.dataplane.rabbitmq.queues import QUEUE, REASON, SEQUENCE, SINGLE, name_quarantine, read_sequence
from rota.dataplane.spark.spark_source import Records
from rota.errors import ConfigError, EnvironmentFailed, RotaError, counted
from rota.ids import key_of, quote
from rota.ledger.ledger import Ledger
from rota.ledger.values import Ranges
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
QUIET = 2.0  # seconds without a message, after which a run works with what it has
LONGEST = 20.0  # seconds of reading
PREFETCH = 65_535  # messages, the most that AMQP can say


@dataclass(slots=True)
class Stray:
    """A message that cannot be consumed."""

    tag: int
    queue: str
    headers: Mapping[str, object]
    body: bytes
    reason: str


@dataclass(slots=True)
class QueueSource:
    """The queues `<prefix><key>` of pipeline `name`; `table` says where they stand, `stage` is a folder that Spark can
    read."""

    name: str
    declared: RabbitQueues
    keys: tuple[str, ...]
    table: Ledger
    stage: Path
    _link: Link | None = None
    inboxes: dict[str, Inbox] = field(default_factory=dict)
    _strays: list[Stray] = field(default_factory=list)
    _came: Condition = field(default_factory=Condition)

    @classmethod
    def of(cls, pipeline: Pipeline) -> "QueueSource":
        """The source that the pipeline declares."""
        assert isinstance(pipeline.source, RabbitQueues)
        return cls._make(pipeline, pipeline.source)

    @classmethod
    def _make(cls, pipeline: Pipeline, declared: RabbitQueues) -> Self:
        tables = PipelineTables.of(pipeline, pipeline.group, "")
        keys = tuple(sorted(map(str, range(declared.count))))
        return cls(pipeline.name, declared, keys, tables.main, tables.folder / "stage")

    can_replay = False
    corruptible = True
    kind: ClassVar[Mapping[str, object]] = SINGLE  # arguments that its queues must have, whatever others they have
    telling: ClassVar[tuple[str, ...]] = (*SINGLE,)  # what differs where they have not

    @property
    def skips_existing(self) -> bool:
        """See `Source.skips_existing`."""
        return self.declared.start == "latest"

    # --- looking: a connection for each look, which takes nothing

    def find_place(self) -> str:
        """See `Source.find_place`: the broker, where every queue is there and is one that rota can read."""
        names = [f"{self.declared.prefix}{n}" for n in range(self.declared.count)]
        with self._look() as link:
            if gone := [name for name in names if link.count_ready(name) is None]:
                more = f" and {len(gone) - 1} more" if gone[1:] else ""
                raise ConfigError(
                    f"{link.place} has no {gone[0]}{more}. Start a rota.rabbitmq.Publisher, which makes them, or mend "
                    f"prefix and count"
                )
            for name in names:
                why = link.find_difference(name, self.kind)
                if any(argument in why for argument in self.telling):
                    raise ConfigError(self._explain_kind(name, why))
            quarantine = name_quarantine(self.declared.prefix)
            if link.count_ready(quarantine) is not None and (why := link.find_difference(quarantine, {})):
                raise ConfigError(self._explain_quarantine(quarantine, why))
            return f"{link.place} queues {names[0]} to {names[-1]}"

    def _explain_quarantine(self, queue: str, why: str) -> str:
        """What is wrong with the queue for what cannot be consumed, where somebody else made it."""
        return (
            f"{queue} was not made by rota ({why}), and could lose the messages that are set aside there. Once it is empty, "
            f"delete it: rota makes it anew"
        )

    def _explain_kind(self, queue: str, why: str) -> str:
        """What is wrong with a queue whose arguments are others, as the broker says it."""
        return (
            f"{queue} was made without x-single-active-consumer ({why}): the broker gives it to several at a time, and the "
            f"order of its messages is lost. Once it is empty: delete it, and start a rota.rabbitmq.Publisher, which makes "
            f"it anew"
        )

    def list_keys(self) -> tuple[str, ...]:
        """See `Source.list_keys`: those whose queue is there."""
        with self._look() as link:
            return tuple(key for key in self.keys if link.count_ready(f"{self.declared.prefix}{key}") is not None)

    def list_ignored(self) -> Mapping[str, str]:
        """See `Source.list_ignored`: the quarantine, if something is in it."""
        name = name_quarantine(self.declared.prefix)
        with self._look() as link:
            count = link.count_ready(name)
        return (
            {name: f"{counted(count, 'message')} that cannot be consumed; the header {REASON} of each says why"}
            if count
            else {}
        )

    def read_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.read_ends`: where the table stands, and what waits."""
        starts = self._read_starts(partitions)
        with self._look() as link:
            return {p: starts[p] + (link.count_ready(self._queue(p)) or 0) for p in partitions}

    def read_assigned_ends(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.read_assigned_ends`: the publisher assigned all that is there."""
        return self.read_ends(partitions)

    def explain_lost(self, partition: str, end: int) -> str:
        """See `Source.explain_lost`."""
        return f"{self._queue(partition)} ends at {end}: see who published to it, then: rota retry {quote(partition)}"

    def explain_unreadable(self, partition: str) -> str:  # noqa: ARG002
        """See `Source.explain_unreadable`: a broker that cannot be reached is everybody's."""
        return ""

    # --- a run: what it takes, it holds until `close`

    def assign_offsets(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """See `Source.assign_offsets`: takes messages. The publisher has numbered them."""
        starts, ends = self._read_starts(partitions), self.read_ends(partitions)
        self._fetch({p: starts[p] for p in partitions if p not in self.inboxes and ends[p] > starts[p]})
        found = {p: self.inboxes[p] for p in partitions if p in self.inboxes}
        known = {p: one.read_end() for p, one in found.items() if one.came >= one.awaited or one.read_end() > ends[p]}
        return {**{p: ends[p] for p in partitions}, **known}

    def choose_starts(self, ends: Mapping[str, int], later: Container[str] = ()) -> Mapping[str, int]:  # noqa: ARG002
        """See `Source.choose_starts`: as declared."""
        return dict.fromkeys(ends, self._first)

    @property
    def _first(self) -> int:
        """Where a partition begins of which nothing is known but the declaration."""
        return self.declared.start if isinstance(self.declared.start, int) else 0

    def plan_jobs(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> tuple[Ranges, ...]:
        """See `Source.plan_jobs`: one job. Where the next message is missing, its range is that message: it is found
        broken."""
        held = {p: self.inboxes[p].end if p in self.inboxes else at for p, at in starts.items()}
        job = {p: (at, max(held[p], at + 1)) for p, at in starts.items() if at < ends[p]}
        return (job,) if job else ()

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """See `Source.find_broken`: where not every message of the range is held."""
        self._fetch({p: start for p, (start, _) in ranges.items() if p not in self.inboxes}, ranges)
        return {
            p: self._explain_hole(p, start) for p, (start, end) in ranges.items() if not self.inboxes[p].has(start, end)
        }

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """See `Source.acknowledge`."""
        link = self._link
        with self._came:
            done = {p: tuple(self.inboxes[p].drop_below(at)) for p, at in offsets.items() if p in self.inboxes}
        if tags := tuple(tag for of in done.values() for tag in of):
            if link:
                link.acknowledge(tags, min((one.read_least_tag() for one in self.inboxes.values()), default=ALL))
            log.info("acknowledged=%d queues=%s", len(tags), ",".join(self._queue(p) for p, of in done.items() if of))

    def close(self) -> None:
        """See `Source.close`."""
        if self._link:
            self._link.close()
        self._link, self.inboxes = None, {}

    @contextmanager
    def read(self, spark: "SparkSession", ranges: Ranges, attempt: str) -> Iterator[Records]:
        """See `SparkSource.read`."""
        folder = self.stage / attempt
        try:
            for p, (start, end) in ranges.items():
                messages = ((n, self.inboxes[p].bodies[n]) for n in range(start, end))
                frames.stage(folder, p, messages, self.declared.format)
            declared = self.declared
            yield Records(frames.read_staged(spark, folder, declared.schema, declared.format, declared.options))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def count_records(self, ranges: Ranges) -> int | None:
        """See `SparkSource.count_records`: a message is a record."""
        return sum(end - start for start, end in ranges.values())

    def read_records(self, partition: str, offset: int) -> Iterable[str]:
        """See `SparkSource.read_records`."""
        return [frames.decode(self.inboxes[partition].bodies[offset])]

    def explain_bad(self, raw: str) -> str:
        """See `SparkSource.explain_bad`."""
        return frames.explain_bad(raw, self.declared.format)

    def locate(self, partition: str, offset: int) -> str:
        """See `Source.locate`."""
        return f"message {offset} of {self._queue(partition)}"

    def translate(self, text: str) -> str:
        """See `SparkSource.translate`: a job knows nothing that a person does not."""
        return text

    # --- nothing changes in place

    def find_rewritten(self, offsets: Mapping[str, Iterable[int]]) -> Mapping[str, tuple[int, ...]]:
        """See `Source.find_rewritten`."""
        return dict.fromkeys(offsets, ())

    def explain_unsettled(self, partition: str, offsets: Iterable[int]) -> str:  # noqa: ARG002
        """See `Source.explain_unsettled`."""
        return ""

    def keep_identities(self, partitions: tuple[str, ...]) -> None:
        """See `Source.keep_identities`."""

    def as_now(self, ranges: Ranges) -> Self:  # noqa: ARG002
        """See `SparkSource.as_now`."""
        return self

    def rename_pipeline(self, old: str, number: int) -> None:
        """See `OwnedSource.rename_pipeline`: the messages have their offsets with them."""

    # --- taking

    def _fetch(self, starts: Mapping[str, int], ranges: Ranges | None = None) -> None:
        """Takes what waits in these queues, within the caps; what cannot be consumed goes to the quarantine. `ranges` are
        what is asked for, where somebody has said it."""
        if not starts:
            return
        link = self._link = self._link or Link(self.declared.url)
        self.inboxes |= {p: self._make_inbox(p, at, len(starts), ranges) for p, at in starts.items()}
        for p, count in self._count_waiting(link, starts).items():
            self.inboxes[p].awaited = count
        asked = {p: self.inboxes[p] for p in starts if self.inboxes[p].awaited}
        link.limit(min(max(2 * self.inboxes[p].room for p in starts), PREFETCH))
        consumers = [link.consume(self._queue(p), self._make_taker(p), **self._say_where(starts[p])) for p in asked]
        until, seen = monotonic() + LONGEST, -1
        with self._came:
            while (left := _count_missing(asked)) and monotonic() < until and seen != (seen := left):
                self._came.wait_for(lambda: not _count_missing(asked), QUIET)
        for consumer in consumers:
            link.cancel(consumer)
        self._set_aside(link)

    def _make_inbox(self, partition: str, start: int, among: int, ranges: Ranges | None) -> Inbox:  # noqa: ARG002
        """An even share of the caps; a queue is never read again, so nobody can ask for more."""
        return Inbox(start, max(1, self.declared.max_messages // among), self.declared.max_bytes // among)

    def _count_waiting(self, link: Link, starts: Mapping[str, int]) -> dict[str, int]:
        """How many messages can come of each."""
        return {p: link.count_ready(self._queue(p)) or 0 for p in starts}

    def _say_where(self, start: int) -> dict[str, object]:  # noqa: ARG002
        """What a consumer says beside its queue: a queue gives what is first in it."""
        return {}

    def _read_offset(self, headers: Mapping[str, object], queue: str) -> int | str:
        """The offset of a message, or why it has none."""
        return read_sequence(headers, queue)

    def _make_taker(self, partition: str) -> Any:
        """What the connection's thread does with a message of the partition's queue."""
        queue, inbox = self._queue(partition), self.inboxes[partition]

        def take(tag: int, headers: Mapping[str, object], body: bytes) -> None:
            found = self._read_offset(headers, queue)
            with self._came:
                if isinstance(found, int):
                    inbox.take(tag, found, body)
                else:
                    inbox.came += 1
                    self._strays.append(Stray(tag, queue, headers, body, found))
                if inbox.came >= inbox.awaited or inbox.is_full():
                    self._came.notify_all()

        return take

    def _set_aside(self, link: Link) -> None:
        with self._came:
            strays, self._strays = self._strays, []
        if not strays:
            return
        quarantine = name_quarantine(self.declared.prefix)
        if why := link.find_difference(quarantine, {}):
            raise EnvironmentFailed(self._explain_quarantine(quarantine, why))
        link.send([Message(quarantine, s.body, {**s.headers, QUEUE: s.queue, REASON: s.reason}) for s in strays])
        link.acknowledge([s.tag for s in strays])
        for s in strays:
            log.warning(
                "set_aside=%s queue=%s sequence=%s reason=%s", quarantine, s.queue, s.headers.get(SEQUENCE), s.reason
            )

    def _explain_hole(self, partition: str, start: int) -> RotaError:
        queue, inbox = self._queue(partition), self.inboxes[partition]
        whole = inbox.came >= min(inbox.awaited, 2 * inbox.room, PREFETCH)  # all that it was to give came
        behind, beyond = inbox.find_after(start) if whole else 0, inbox.read_end() - 1
        gone = f"messages {start} to {behind - 1}" if behind > start + 1 else f"message {start}"
        rest = f"those from {behind} to {beyond} wait for it" if behind else "others have what waits there"
        return EnvironmentFailed(
            f"{queue} did not give {gone}; {rest}. It comes back once whoever holds it lets go, and is tried again by "
            f"itself. If it was removed (expired, purged, dead-lettered): rota skip {quote(partition)}",
            partition=partition,
            behind=behind,
        )

    def _read_starts(self, partitions: Iterable[str]) -> dict[str, int]:
        """Where the table stands, or where it will begin."""
        at = self.table.read_positions_in(self.table.open(), partitions)
        new = self._guess_starts(tuple(p for p, one in at.items() if one.offset is None))
        return {p: new[p] if one.offset is None else one.offset for p, one in at.items()}

    def _guess_starts(self, partitions: tuple[str, ...]) -> Mapping[str, int]:
        """Where those will probably begin that the table does not know: what lies before it is not taken."""
        return dict.fromkeys(partitions, self._first)

    def _queue(self, partition: str) -> str:
        return f"{self.declared.prefix}{key_of(partition)}"

    @contextmanager
    def _look(self) -> Iterator[Link]:
        link = Link(self.declared.url)
        try:
            yield link
        finally:
            link.close()


def _count_missing(inboxes: Mapping[str, Inbox]) -> int:
    """How many messages may still come that a run would commit."""
    return sum(max(0, one.awaited - one.came) for one in inboxes.values() if not one.is_full())
