"""Messages by key into numbered queues, each with its place in its queue.

Laws:
1. A key's messages are in one queue, in the order in which one publisher published them.
2. The sequence of a queue has no holes, and one number means one message for ever, whoever publishes and whatever dies.
   A number may be in the queue twice, with the same message: whoever reads drops the second.
3. `publish` returns after the broker confirmed every message. If it raises, each chunk of its messages is published as a
   whole, now or by whoever publishes next, or not at all.

How: beside each queue a second one holds a ledger: the next number, and the chunk that is being published. The broker gives
it to one publisher at a time. A publisher first writes the chunk into a new ledger, then publishes it, then writes a ledger
without it. Whoever finds a ledger with a chunk publishes that again before anything of its own. Of two ledgers the greater
counts. A publisher that lost its connection lost the ledger; what it still has under way has the numbers that the ledger
says.

Required: nobody else publishes to these queues or touches `<queue>.sequence`, and messages leave a queue by being consumed
alone: no TTL, no maximum length, no purge.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Condition
from types import TracebackType
from typing import Literal

from rota.dataplane.rabbitmq.hashing import HASHES
from rota.dataplane.rabbitmq.link import PATIENCE, Link, Message
from rota.dataplane.rabbitmq.queues import (
    LONGEST_NAME,
    QUEUE,
    SEQUENCE,
    SINGLE,
    STREAM,
    name_quarantine,
    name_sequence,
)
from rota.errors import ConfigError, EnvironmentFailed
from rota.portions import take_portions

CHUNK = 1000  # messages that one ledger holds at most
CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the sequence of a queue stands: `chunk` has the numbers that end before `next`."""

    next: int
    chunk: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """A line of JSON, then the messages."""
        head = json.dumps({"next": self.next, "sizes": [len(one) for one in self.chunk]})
        return b"\n".join([head.encode(), b"".join(self.chunk)])

    @classmethod
    def decode(cls, text: bytes) -> "Ledger":
        """The reverse of `encode`."""
        head, _, rest = text.partition(b"\n")
        said = json.loads(head)
        chunk, at = [], 0
        for size in said["sizes"]:
            chunk.append(rest[at : at + size])
            at += size
        return cls(said["next"], tuple(chunk))


class Publisher(AbstractContextManager["Publisher"]):
    """Publishes into `<prefix>0` to `<prefix><queues - 1>`, and declares them where they are not there.

    `url` is `amqp://user:password@host:port/vhost`, and may hold `${VAR}`. `hash` is "modulo" or "consistent". One thread
    uses one publisher. Several publishers, on several machines, take turns at each queue. `streams`: they are streams, in
    which the broker numbers the messages, and nobody takes turns.
    Raises ConfigError on a bad value, EnvironmentFailed where the broker cannot be reached or has a queue of this name with
    other arguments.
    """

    def __init__(
        self,
        url: str,
        prefix: str,
        queues: int,
        *,
        hash: Literal["modulo", "consistent"] = "modulo",
        streams: bool = False,
    ) -> None:
        if hash not in HASHES:
            raise ConfigError(f"Unknown hash {hash!r}. Known: {', '.join(HASHES)}")
        if queues < 1 or not prefix or len(f"{prefix}{queues}".encode()) > LONGEST_NAME:
            raise ConfigError(f"prefix={prefix!r}, queues={queues!r}: give a prefix and a number of queues from 1")
        self.prefix, self.queues = prefix, queues
        self._hash, self._streams = HASHES[hash], streams
        self._link = Link(url)
        try:
            self._declare()
        except BaseException:
            self._link.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._link.close()

    def choose_queue(self, key: str) -> str:
        """The queue of a key."""
        return f"{self.prefix}{self._hash(key, self.queues)}"

    def publish(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Publishes pairs of key and body, and returns when the broker has them all. Raises EnvironmentFailed, and is closed
        then: make another."""
        by_queue: dict[str, list[bytes]] = {}
        for key, body in messages:
            by_queue.setdefault(self.choose_queue(key), []).append(body)
        try:
            for queue, bodies in by_queue.items():
                self._publish_to(queue, bodies)
        except BaseException:
            self.close()  # and the ledger is the next one's
            raise

    def _declare(self) -> None:
        """Every queue before its ledger: a queue without a ledger has never been published to, or its ledger is lost."""
        for number in range(self.queues):
            queue = f"{self.prefix}{number}"
            if self._streams:
                self._link.declare(queue, STREAM)
                continue
            there = self._link.count_ready(queue) is not None
            sequence = name_sequence(queue)
            if there and self._link.count_ready(sequence) is None:
                raise EnvironmentFailed(
                    f"{queue} is there and {sequence} is not: nobody knows where its sequence stands, and numbers that were "
                    f"used before would be taken for duplicates. Bring {sequence} back; or delete {queue} too once it is "
                    f"consumed, and give the pipeline another name and table"
                )
            if not there:  # the ledger first: whoever dies in between leaves a ledger and no queue
                self._link.declare(sequence, SINGLE)
                self._link.send([Message(sequence, Ledger(0).encode())])
                self._link.declare(queue, SINGLE)
        if not self._streams:
            self._link.declare(name_quarantine(self.prefix), {})

    def _publish_to(self, queue: str, bodies: Sequence[bytes]) -> None:
        if self._streams:
            for chunk in take_portions(bodies, CHUNK_BYTES, len, CHUNK):
                self._link.send([Message(queue, body) for body in chunk])
            return
        turn = Turn(self._link, queue)
        ledger = turn.begin()
        self._link.send(_number(queue, ledger))  # whoever had it before did not come to its end
        for chunk in take_portions(bodies, CHUNK_BYTES, len, CHUNK):
            ledger = turn.write(Ledger(ledger.next + len(chunk), tuple(chunk)))
            self._link.send(_number(queue, ledger))
        turn.write(Ledger(ledger.next))
        turn.end()


class Turn:
    """The right to publish to `queue`: the ledger of its sequence."""

    def __init__(self, link: Link, queue: str) -> None:
        self._link, self._queue = link, name_sequence(queue)
        self._held: dict[int, Ledger] = {}  # delivery tag -> ledger
        self._came = Condition()
        self._consumer = ""

    def begin(self) -> Ledger:
        """Waits for the ledger, and returns it. Raises EnvironmentFailed."""
        self._consumer = self._link.consume(self._queue, self._take)
        with self._came:
            if not self._came.wait_for(lambda: self._held, PATIENCE):
                raise EnvironmentFailed(
                    f"{self._queue} gave its ledger to nobody for {PATIENCE:g} s: another publisher holds it, or somebody "
                    f"removed it. See who consumes it"
                )
        self._link.declare(self._queue, SINGLE)  # the answer comes after every ledger that is there
        with self._came:
            newest = max(self._held, key=lambda tag: (self._held[tag].next, not self._held[tag].chunk))
        self._drop(tag for tag in tuple(self._held) if tag != newest)
        return self._held[newest]

    def write(self, ledger: Ledger) -> Ledger:
        """Puts this ledger in the place of the one before, and returns it."""
        before = tuple(self._held)
        self._link.send([Message(self._queue, ledger.encode())])
        with self._came:
            if not self._came.wait_for(lambda: ledger in [self._held[t] for t in self._held.keys() - before], PATIENCE):
                raise EnvironmentFailed(f"{self._queue} gave its ledger to somebody else. Publish again")
        self._drop(before)
        return ledger

    def end(self) -> None:
        """Lets the next publisher have the ledger."""
        self._link.cancel(self._consumer)
        for tag in self._held:
            self._link.do(lambda tag=tag: self._link.channel.basic_nack(tag, requeue=True))  # type: ignore[misc]

    def _take(self, tag: int, _: object, body: bytes) -> None:
        with self._came:
            self._held[tag] = Ledger.decode(body)
            self._came.notify_all()

    def _drop(self, tags: Iterable[int]) -> None:
        gone = [tag for tag in tags if self._held.pop(tag)]
        self._link.acknowledge(gone)


def _number(queue: str, ledger: Ledger) -> list[Message]:
    """The messages of a ledger's chunk, with their places."""
    first = ledger.next - len(ledger.chunk)
    return [Message(queue, body, {QUEUE: queue, SEQUENCE: n}) for n, body in enumerate(ledger.chunk, first)]
