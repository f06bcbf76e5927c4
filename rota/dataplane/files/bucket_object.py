"""The bytes of an object of a bucket."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, cast

from rota import stores

BLOCK = 1 << 20  # bytes of a stream in memory


@dataclass(frozen=True, slots=True)
class BucketObject:
    """An object that can be opened: see `LandedBytes`."""

    place: str
    path: str
    size: int

    @property
    def name(self) -> str:
        """See `LandedBytes.name`."""
        return self.path.rpartition("/")[2]

    def open(self, mode: Literal["rb"] = "rb", /) -> BinaryIO:
        """See `LandedBytes.open`: one request reads the whole object. After a seek, each read is a request."""
        del mode
        return cast(BinaryIO, io.BufferedReader(_Reader(self), BLOCK))


class _Reader(io.RawIOBase):
    """A stream from the beginning; after a seek, reads of ranges."""

    def __init__(self, of: BucketObject) -> None:
        self._of, self._at, self._blocks, self._rest = of, 0, cast("Iterator[Any] | None", None), memoryview(b"")
        self._sought = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, to: int, whence: int = io.SEEK_SET, /) -> int:
        at = to + (0, self._at, self._of.size)[whence]
        self._sought, self._at = self._sought or at != self._at, at
        return at

    def readinto(self, into: Any, /) -> int:
        room = memoryview(into).cast("B")
        with stores.as_os_errors(f"{self._of.place}/{self._of.path}"):
            some = self._read_range(len(room)) if self._sought else self._read_on(len(room))
        room[: len(some)] = some
        self._at += len(some)
        return len(some)

    def _read_range(self, count: int) -> memoryview:
        end = min(self._at + count, self._of.size)
        if end <= self._at:
            return memoryview(b"")
        return memoryview(stores.open_objects(self._of.place).get_range(self._of.path, start=self._at, end=end))

    def _read_on(self, count: int) -> memoryview:
        if self._blocks is None:
            self._blocks = iter(stores.open_objects(self._of.place).get(self._of.path).stream(min_chunk_size=BLOCK))
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        some, self._rest = self._rest[:count], self._rest[count:]
        return some
