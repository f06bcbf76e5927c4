"""What a run was given of one queue and has not acknowledged.

Law: what may be committed is the contiguous prefix of sequences from where the table stands, and nothing else. A broker
gives what it took back from somebody after newer messages, so a newer message says nothing of older ones. What is behind
the table is in it already. What lies beyond a hole, or beyond the caps, is held back and goes back to the queue.

Law: of an ordered inbox, a stream's, the prefix is all up to the newest message: a broker gives those of a stream in their
order, and gives some offsets to no message. Whoever reads asks for what was removed before it: see `find_gap`.

Bodies are kept within the caps alone; of all else only the tag by which it is acknowledged.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

ALL = 1 << 63  # beyond every tag


@dataclass(slots=True)
class Inbox:
    """`start` is where the table stands; at most `room` messages and `size` bytes are kept, and one message at least."""

    start: int
    room: int
    size: int
    ordered: bool = False
    awaited: int = 0  # messages that waited when the reading began; of an ordered one, offsets
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
        """A message came. The same sequence may come twice, with the same body."""
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
        """Whether no message that may still come would be committed by this run."""
        return self.end == self._limit

    def count_missing(self) -> int:
        """How many messages may still come that this run would commit; of an ordered one, offsets."""
        left = self.start + self.awaited - self._last - 1 if self.ordered else self.awaited - self.came
        return 0 if self.is_full() else max(0, left)

    def read_end(self) -> int:
        """One past the greatest sequence that came; where the table stands if none is beyond it."""
        return max(self.start, max(self._tags, default=-1) + 1)

    def find_after(self, offset: int) -> int:
        """The least sequence beyond this one that came; 0 where none is."""
        return min((n for n in self._tags if n > offset), default=0)

    def read_least_tag(self) -> int:
        """The least tag that was not given back by `drop_below`."""
        return min((tag for tags in self._tags.values() for tag in tags), default=ALL)

    def has(self, start: int, end: int) -> bool:
        """Whether every message of the range is kept."""
        return end <= self.end if self.ordered else self.find_gap(start, end) is None

    def find_gap(self, start: int, end: int) -> int | None:
        """The first offset of the range whose message is not kept; None where each is."""
        return next((n for n in range(start, end) if n not in self.bodies), None)

    def list_bodies(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """Offset and body of each message of the range that is kept."""
        return [(n, self.bodies[n]) for n in range(start, end) if n in self.bodies]

    def drop_below(self, offset: int) -> Iterator[int]:
        """The tags of all messages below the offset, which are forgotten."""
        for sequence in sorted(n for n in self._tags if n < offset):
            self.bodies.pop(sequence, None)
            yield from self._tags.pop(sequence)
