"""The names of the queues, and what a message says of itself.

A message of rota's publisher has two headers: the queue it was published to, and its sequence in it, an int64 from 0
without holes. `<queue>.sequence` keeps where the sequence stands; `<prefix>.quarantine` has what cannot be consumed.
"""

QUEUE = "rota-queue"
SEQUENCE = "rota-sequence"
REASON = "rota-reason"
STREAM = {"x-queue-type": "stream"}
SINGLE = {"x-single-active-consumer": True}
LONGEST_NAME = 255 - len(".quarantine")  # bytes of a prefix with a number; AMQP has names of 255


def name_sequence(queue: str) -> str:
    """The queue that keeps where the sequence of `queue` stands."""
    return f"{queue}.sequence"


def name_quarantine(prefix: str) -> str:
    """The queue of what cannot be consumed."""
    return f"{prefix}.quarantine"
