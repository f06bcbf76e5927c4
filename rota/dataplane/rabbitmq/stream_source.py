"""Numbered streams of RabbitMQ as a source: a stream is a partition, and offsets are the broker's own.

Law: a stream keeps its messages, in one order, until its retention deletes them. So each reader reads the same messages of a
range, at any time. A run holds no message; an acknowledgement only lets the broker send more.

Law: an offset without a message is skipped: the broker uses one offset of each segment of a stream for itself. Such an
offset is no deleted message if the first offset of the stream, read after the messages, is not greater: each message from
the first offset on was delivered.

The end of a stream is found by reading its last chunk until no more messages arrive. It may be found too low, never too
high.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Condition
from time import monotonic
from typing import Any, ClassVar, Literal, Self

from rota.dataplane.ports import Consumed
from rota.dataplane.rabbitmq.inbox import Inbox
from rota.dataplane.rabbitmq.link import Link
from rota.dataplane.rabbitmq.numbered_source import MAX_READING, NumberedSource
from rota.dataplane.rabbitmq.queues import OFFSET, SINGLE, STREAM
from rota.errors import EnvironmentFailed, RotaError, SourceChanged
from rota.ids import quote
from rota.ledger.values import Ranges

STILL = 0.3  # seconds without a message, after which the end of a stream is reached
PREFETCH = 1_000  # messages that the broker sends an observation before they are acknowledged


@dataclass(slots=True)
class StreamSource(NumberedSource):
    """The streams `<prefix><key>` of pipeline `name`."""

    kind: ClassVar[Mapping[str, object]] = STREAM
    decisive: ClassVar[tuple[str, ...]] = (*STREAM, *SINGLE)

    def _explain_kind(self, queue: str, why: str) -> str:
        return f"{queue} is no stream ({why}). Declare it by queues(...), or make a stream under another prefix"

    def _read_ends(self, link: Link, partitions: tuple[str, ...]) -> dict[str, int]:
        seen = self._see(link, partitions, "last")
        return {p: seen[p][1] + 1 if p in seen else 0 for p in partitions}

    def _read_firsts(self, link: Link, partitions: Iterable[str]) -> Mapping[str, int]:
        """Return the first offset that the retention left."""
        return {p: first for p, (first, _) in self._see(link, partitions, "first").items()}

    def _see(
        self, link: Link, partitions: Iterable[str], where: Literal["first", "last"]
    ) -> dict[str, tuple[int, int]]:
        """Return the first and the last offset that a consumer gets that starts there. An empty or absent stream is left
        out."""
        seen: dict[str, tuple[int, int]] = {}
        came = Condition()

        def watch(partition: str) -> None:
            def take(tag: int, headers: Mapping[str, object], _: bytes) -> None:
                offset = int(str(headers[OFFSET]))
                with came:
                    first, last = seen.get(partition, (offset, offset))
                    seen[partition] = min(first, offset), max(last, offset)
                    came.notify_all()
                if where == "last":
                    link.acknowledge([tag])  # then the broker sends the next

            consumers.append(link.consume(self._queue(partition), take, arguments={OFFSET: where}))

        consumers: list[str] = []
        link.limit(PREFETCH if where == "last" else 1)
        for p in partitions:
            if link.count_ready(self._queue(p)) is not None:
                watch(p)
        until = monotonic() + MAX_READING
        with came:
            while consumers and monotonic() < until:
                before = dict(seen)
                if not came.wait_for(lambda: seen != before, STILL):  # noqa: B023
                    break
        for consumer in consumers:
            link.cancel(consumer)
        return seen

    def find_broken(self, ranges: Ranges) -> Mapping[str, RotaError]:
        """See `Source.find_broken`. A range of which the retention deleted a part is broken, too."""
        broken = dict(NumberedSource.find_broken(self, ranges))
        gaps = {p: self.inboxes[p].find_gap(*span) for p, span in ranges.items() if p not in broken}
        if unsure := {p: gap for p, gap in gaps.items() if gap is not None}:
            with self._connect() as link:
                seen = self._see(link, unsure, "first")
            broken |= {
                p: self._explain_retention(p, gap, seen[p][0] if p in seen else ranges[p][1])
                for p, gap in unsure.items()
                if p not in seen or seen[p][0] > gap
            }
        return broken

    def _explain_retention(self, partition: str, gap: int, first: int) -> RotaError:
        return SourceChanged(
            f"{self._queue(partition)} begins at {first}: the retention deleted the messages from offset {gap} on. To "
            f"continue without them: rota skip {quote(partition)}",
            partition=partition,
            behind=first,
        )

    def _explain_hole(self, partition: str, start: int) -> RotaError:
        queue = self._queue(partition)
        return EnvironmentFailed(f"{queue} did not give offset {start} in time. It is tried again", partition=partition)

    def reread(self, ranges: Ranges) -> Self:  # noqa: ARG002
        """See `Replays.reread`: another reader of the same stream."""
        return replace(self, inboxes={}, _link=None, _came=Condition())

    def _find_lost(self, consumed: Consumed, ends: Mapping[str, int]) -> Mapping[str, str]:
        return {
            p: f"{self._queue(p)} ends at {ends[p]}: the stream was created again. Give the pipeline another name and "
            f"table; or wait until the stream is beyond the table's offset"
            for p in consumed.find_beyond(ends)
        }

    def _make_inbox(self, start: int, among: int, asked: tuple[int, int] | None) -> Inbox:
        if asked is None:
            return replace(NumberedSource._make_inbox(self, start, among, asked), ordered=True)
        return Inbox(start, asked[1] - start, 1 << 62, ordered=True)  # a replay takes its whole range

    def _count_waiting(self, link: Link, starts: Mapping[str, int]) -> dict[str, int]:
        seen = self._see(link, starts, "last")
        return {p: seen[p][1] + 1 - at if p in seen else 0 for p, at in starts.items()}

    def _choose_start(self, start: int) -> Mapping[str, Any]:
        return {"arguments": {OFFSET: start}}

    def _read_offset(self, queue: str, tag: int, headers: Mapping[str, object], body: bytes) -> int:  # noqa: ARG002
        return int(str(headers[OFFSET]))
