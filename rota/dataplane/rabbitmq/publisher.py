"""Publishes messages by key into numbered queues, and numbers the messages of each queue.

Laws:
1. A key's messages are in one queue, in the order in which one publisher published them.
2. The sequence of a queue has no holes, and a number means one message for ever, also if publishers die. A number may be in
   the queue twice, with the same message: the consumer drops the second.
3. `publish` returns after the broker has confirmed each message. If it raises, each chunk of its messages is published
   completely, now or by the next publisher, or not at all.

Each queue has a second queue with a ledger: the next number, and the chunk that is being published. The broker delivers the
ledger to one publisher at a time. A publisher writes the chunk into a new ledger, publishes the chunk, and then writes a
ledger without it. A publisher that finds a ledger with a chunk publishes that chunk again first. If there are two ledgers,
the greater one is valid. A publisher that lost its connection lost the ledger: the next publisher publishes its chunk again,
with the same numbers.

Required: no other program publishes to these queues or uses `<queue>.sequence`, and a message leaves its queue only when it
is consumed: no TTL, no maximum length, no purge.
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

CHUNK = 1000  # upper bound of the messages of a ledger
CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Ledger:
    """The sequence of a queue: `next` is its next number, and the numbers of `chunk` end before it."""

    next: int
    chunk: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """Return a line of JSON, then the messages."""
        head = json.dumps({"next": self.next, "sizes": [len(one) for one in self.chunk]})
        return b"\n".join([head.encode(), b"".join(self.chunk)])

    @classmethod
    def decode(cls, text: bytes) -> "Ledger":
        """Return the ledger that `encode` wrote."""
        line, _, rest = text.partition(b"\n")
        head = json.loads(line)
        chunk, at = [], 0
        for size in head["sizes"]:
            chunk.append(rest[at : at + size])
            at += size
        return cls(head["next"], tuple(chunk))


class Publisher(AbstractContextManager["Publisher"]):
    """Publishes into the queues `<prefix>0` to `<prefix><queues - 1>`, and declares those that do not exist.

    One thread uses one publisher. Several publishers, on several machines, take turns at each queue.

    Args:
        url: `amqp://user:password@host:port/vhost`; it may hold `${VAR}`.
        prefix: the names of the queues without their numbers.
        queues: the number of queues.
        hash: "modulo" or "consistent".
        streams: whether the queues are streams. The broker numbers their messages, and publishers take no turns.

    Raises:
        ConfigError: on a bad value.
        EnvironmentFailed: if the broker cannot be reached or has a queue of this name with other arguments.
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
        """Close the connection."""
        self._link.close()

    def choose_queue(self, key: str) -> str:
        """Return the queue of a key."""
        return f"{self.prefix}{self._hash(key, self.queues)}"

    def publish(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Publish pairs of key and body, and return when the broker has confirmed all of them.

        Raises: EnvironmentFailed. The publisher is closed then: make a new one.
        """
        by_queue: dict[str, list[bytes]] = {}
        for key, body in messages:
            by_queue.setdefault(self.choose_queue(key), []).append(body)
        try:
            for queue, bodies in by_queue.items():
                self._publish_to(queue, bodies)
        except BaseException:
            self.close()  # which releases the ledger to the next publisher
            raise

    def _declare(self) -> None:
        """Declare the ledger of a queue before the queue. So a queue without a ledger has lost its ledger."""
        for number in range(self.queues):
            queue = f"{self.prefix}{number}"
            if self._streams:
                self._link.declare(queue, STREAM)
                continue
            there = self._link.count_ready(queue) is not None
            sequence = name_sequence(queue)
            if there and self._link.count_ready(sequence) is None:
                raise EnvironmentFailed(
                    f"{queue} exists and {sequence} does not: the next number of its sequence is unknown, and messages "
                    f"with used numbers would be dropped as duplicates. Bring {sequence} back; or delete {queue} too once "
                    f"it is consumed, and give the pipeline another name and table"
                )
            if not there:
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
        self._link.send(_number(queue, ledger))  # the former publisher may have died while it published the chunk
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
        """Wait for the ledger and return it.

        Raises: EnvironmentFailed.
        """
        self._consumer = self._link.consume(self._queue, self._take)
        with self._came:
            if not self._came.wait_for(lambda: self._held, PATIENCE):
                raise EnvironmentFailed(
                    f"{self._queue} did not deliver its ledger within {PATIENCE:g} s: another publisher holds it, or it was "
                    f"removed. See which connection consumes {self._queue}"
                )
        self._link.declare(self._queue, SINGLE)  # the broker answers after it delivered each ledger of the queue
        with self._came:
            newest = max(self._held, key=lambda tag: (self._held[tag].next, not self._held[tag].chunk))
        self._drop(tag for tag in tuple(self._held) if tag != newest)
        return self._held[newest]

    def write(self, ledger: Ledger) -> Ledger:
        """Replace the ledger by this one and return it."""
        before = tuple(self._held)
        self._link.send([Message(self._queue, ledger.encode())])
        with self._came:
            if not self._came.wait_for(lambda: ledger in [self._held[t] for t in self._held.keys() - before], PATIENCE):
                raise EnvironmentFailed(f"{self._queue} delivered its ledger to another publisher. Publish again")
        self._drop(before)
        return ledger

    def end(self) -> None:
        """Release the ledger to the next publisher."""
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
    """Return the messages of a ledger's chunk, with their numbers."""
    first = ledger.next - len(ledger.chunk)
    return [Message(queue, body, {QUEUE: queue, SEQUENCE: n}) for n, body in enumerate(ledger.chunk, first)]
