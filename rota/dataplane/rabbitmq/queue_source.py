"""Numbered queues of RabbitMQ as a source: a queue is a partition, and a message's sequence in its queue is its offset.

Law: a message is acknowledged only after the table has it. When a run ends or dies, the messages that it did not commit
return to their queue. A message that is delivered again is dropped if its sequence is below the table's offset. A message
that cannot be consumed is moved to `<prefix>.quarantine` with the reason, and then acknowledged.

Law: only the table stores the offset of a queue. The end of a queue is that offset plus the messages in the queue. If a
sequence is missing, the partition waits for it and reports that.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rota.dataplane.rabbitmq.link import Link, Message
from rota.dataplane.rabbitmq.numbered_source import PREFETCH, NumberedSource
from rota.dataplane.rabbitmq.queues import QUEUE, REASON, SEQUENCE, SINGLE, name_quarantine, read_sequence
from rota.errors import ConfigError, EnvironmentFailed, RotaError, counted
from rota.ids import quote
from rota.ledger.values import Ranges

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Stray:
    """A message that cannot be consumed."""

    tag: int
    queue: str
    headers: Mapping[str, object]
    body: bytes
    reason: str


@dataclass(slots=True)
class QueueSource(NumberedSource):
    """The queues `<prefix><key>` of pipeline `name`."""

    _strays: list[Stray] = field(default_factory=list)

    kind: ClassVar[Mapping[str, object]] = SINGLE
    decisive: ClassVar[tuple[str, ...]] = (*SINGLE,)

    def _find_place(self, link: Link) -> str:
        """See `NumberedSource`. A quarantine that rota did not make counts as a queue that rota cannot read."""
        place = NumberedSource._find_place(self, link)
        quarantine = name_quarantine(self.declared.prefix)
        if link.count_ready(quarantine) is not None and (why := link.find_difference(quarantine, {})):
            raise ConfigError(self._explain_quarantine(quarantine, why))
        return place

    def _explain_quarantine(self, queue: str, why: str) -> str:
        """Return what is wrong with a quarantine that rota did not make; `why` is the broker's text."""
        return (
            f"{queue} was not made by rota ({why}), and could lose the messages that rota moves there. Once it is empty, "
            f"delete it: rota makes it again"
        )

    def _explain_kind(self, queue: str, why: str) -> str:
        return (
            f"{queue} was made without x-single-active-consumer ({why}): the broker delivers it to several consumers, and "
            f"the order of its messages is lost. Once it is empty, delete it, and start a rota.rabbitmq.Publisher, which "
            f"makes it again"
        )

    def _list_ignored(self, link: Link) -> Mapping[str, str]:
        """Return the quarantine, unless it is empty."""
        name = name_quarantine(self.declared.prefix)
        if not (count := link.count_ready(name)):
            return {}
        return {name: f"{counted(count, 'message')} that cannot be consumed; the header {REASON} of each states why"}

    def _read_ends(self, link: Link, partitions: tuple[str, ...]) -> dict[str, int]:
        """Return the table's offset plus the messages in the queue."""
        starts = self._read_starts(partitions, {})
        return {p: starts[p] + (link.count_ready(self._queue(p)) or 0) for p in partitions}

    def _count_waiting(self, link: Link, starts: Mapping[str, int]) -> dict[str, int]:
        return {p: link.count_ready(self._queue(p)) or 0 for p in starts}

    def _choose_start(self, start: int) -> Mapping[str, Any]:  # noqa: ARG002
        return {}  # a queue delivers its first message first

    def _fetch(self, starts: Mapping[str, int], ranges: Ranges | None = None) -> None:
        """Take messages; those that cannot be consumed go to the quarantine."""
        NumberedSource._fetch(self, starts, ranges)
        if self._link:
            self._quarantine(self._link)

    def _read_offset(self, queue: str, tag: int, headers: Mapping[str, object], body: bytes) -> int | None:
        found = read_sequence(headers, queue)
        if isinstance(found, int):
            return found
        self._strays.append(Stray(tag, queue, headers, body, found))
        return None

    def _quarantine(self, link: Link) -> None:
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
        whole = inbox.came >= min(inbox.awaited, 2 * inbox.room, PREFETCH)  # the broker delivered all that it could
        behind, beyond = inbox.find_after(start) if whole else 0, inbox.read_end() - 1
        gone = f"messages {start} to {behind - 1}" if behind > start + 1 else f"message {start}"
        rest = f"those from {behind} to {beyond} wait for it" if behind else "other consumers hold its messages"
        return EnvironmentFailed(
            f"{queue} did not give {gone}; {rest}. The broker delivers it again once its holder disconnects; it is tried "
            f"again automatically. If it was removed (expired, purged, dead-lettered): rota skip {quote(partition)}",
            partition=partition,
            behind=behind,
        )
