"""The names of the queues, and the headers of a message.

A message of rota's publisher has two headers: the queue to which it was published, and its sequence in that queue, an int64
from 0 without holes. `<queue>.sequence` has the next sequence; `<prefix>.quarantine` has messages that cannot be consumed.
"""

from collections.abc import Mapping

QUEUE = "rota-queue"
SEQUENCE = "rota-sequence"
REASON = "rota-reason"
OFFSET = "x-stream-offset"  # set by the broker, on a message of a stream
STREAM = {"x-queue-type": "stream"}
SINGLE = {"x-single-active-consumer": True}
LONGEST_NAME = 255 - len(".quarantine")  # bytes of a prefix with a number; AMQP allows names of 255 bytes


def name_sequence(queue: str) -> str:
    """Return the queue that keeps the next sequence of `queue`."""
    return f"{queue}.sequence"


def name_quarantine(prefix: str) -> str:
    """Return the queue of the messages that cannot be consumed."""
    return f"{prefix}.quarantine"


def read_sequence(headers: Mapping[str, object] | None, queue: str) -> int | str:
    """Return the sequence of a message in this queue, or why it has no valid one."""
    given = headers or {}
    sequence = given.get(SEQUENCE)
    if "x-death" in given:
        return "it was dead-lettered into this queue"
    if sequence is None:
        return f"it has no header {SEQUENCE}: it was not published by rota.rabbitmq.Publisher"
    if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
        return f"its header {SEQUENCE} is no number from 0"
    if given.get(QUEUE) != queue:
        return f"its sequence is that of another queue: {given.get(QUEUE)!r}"
    return int(sequence)
