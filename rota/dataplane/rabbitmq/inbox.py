"""The messages of one queue that a run received and has not acknowledged.

Law: a run commits only the contiguous prefix of sequences from the table's offset on. A broker delivers a message that was
returned after newer ones, so a newer message proves nothing about older ones. Messages below the table's offset are in the
table. Messages beyond a hole or beyond the caps return to the queue.

Law: an inbox of a stream is ordered. Its prefix ends behind its newest message: a broker delivers the messages of a stream
in order, and some offsets have no message. The source checks for messages that the retention deleted: see `find_gap`.

Bodies are kept within the caps. Of all other messages only the tag is kept, to acknowledge them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

ALL = 1 << 63  # greater than every tag


@dataclass(slots=True)
class Inbox:
    """`start` is the table's offset. At most `room` messages and `size` bytes are kept, but at least one message."""

    start: int
    room: int
    size: int
    ordered: bool = False
    awaited: int = 0  # messages in the queue when the reading began; offsets, if ordered
    came: int = 0
    bodies: dict[int, bytes] = field(default_factory=dict)
    end: int = field(init=False)  # of the contiguous prefix
    _limit: int = field(init=False)
    _last: int = -1  # the greatest sequence that came
    _held: int = 0
    _tags: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.end, self._limit = self.start, self.start + self.room

    def take(self, tag: int, sequence: int, body: bytes) -> None:
        """Take a message. A sequence may arrive twice, with the same body."""
        self.came += 1
        self._last = max(self._last, sequence)
        self._tags.setdefault(sequence, []).append(tag)
        if self.ordered and self.start <= sequence:
            self.end = min(max(self.end, sequence + 1), self._limit)
        if not self.start <= sequence < self._limit or sequence in self.bodies:
            return
        self.bodies[sequence] = body
        self._held += len(body)
        while self._held > self.size and (last := max(self.bodies)) > self.start:
            self._limit = last
            self._held -= len(self.bodies.pop(last))
        while self.end in self.bodies:
            self.end += 1
        self.end = min(self.end, self._limit)

    def is_full(self) -> bool:
        """Return whether this run would commit none of the messages that may still arrive."""
        return self.end == self._limit

    def count_missing(self) -> int:
        """Count the messages that may still arrive and that this run would commit; offsets, if ordered."""
        left = self.start + self.awaited - self._last - 1 if self.ordered else self.awaited - self.came
        return 0 if self.is_full() else max(0, left)

    def read_end(self) -> int:
        """Return one past the greatest sequence that arrived, or the table's offset if that is greater."""
        return max(self.start, max(self._tags, default=-1) + 1)

    def find_after(self, offset: int) -> int:
        """Return the least sequence beyond this one that arrived; 0 if there is none."""
        return min((n for n in self._tags if n > offset), default=0)

    def read_least_tag(self) -> int:
        """Return the least tag that `drop_below` has not returned."""
        return min((tag for tags in self._tags.values() for tag in tags), default=ALL)

    def has(self, start: int, end: int) -> bool:
        """Return whether each message of the range is kept."""
        return end <= self.end if self.ordered else self.find_gap(start, end) is None

    def find_gap(self, start: int, end: int) -> int | None:
        """Return the first offset of the range whose message is not kept; None if all are."""
        return next((n for n in range(start, end) if n not in self.bodies), None)

    def list_bodies(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """Return offset and body of each message of the range that is kept."""
        return [(n, self.bodies[n]) for n in range(start, end) if n in self.bodies]

    def drop_below(self, offset: int) -> Iterator[int]:
        """Forget all messages below the offset and yield their tags."""
        for sequence in sorted(n for n in self._tags if n < offset):
            self.bodies.pop(sequence, None)
            yield from self._tags.pop(sequence)
