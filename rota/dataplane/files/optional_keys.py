"""Read the footer of a Parquet file with a map whose key is marked optional, as Athena, Presto and Hive write it.

Arrow refuses such a file as a whole, and Spark reads it. So Arrow gets the footer with one byte changed for each such map:
with the key marked required it returns the file's columns; with the map marked as a list it returns the keys, also null
ones. Each byte is replaced by one byte, so every position in the file stays the same.

Law: a file with a null key is refused. Arrow refuses such a map, too: the executors' Python fails or dies of it, and the
error names neither the key nor the column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import SEEK_END, RawIOBase
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

MAGIC = b"PAR1"
TAIL = 8  # bytes behind a footer: its length, and MAGIC
REPETITION, CONVERTED, LOGICAL = 3, 6, 10  # fields of a SchemaElement
REQUIRED, OPTIONAL = 0, 2  # bytes of the footer: Thrift writes a small number twice as large
CONVERTED_MAP, CONVERTED_LIST = 2, 6
LOGICAL_MAP, LOGICAL_LIST = 0x2C, 0x3C  # the header of the second and of the third field of LogicalType
BYTE = 3  # of Thrift's types; a boolean of a list (1, 2) takes a byte, too


@dataclass(slots=True)
class Element:
    """An element of a footer's schema. `at`: the position of the byte of REPETITION, CONVERTED and LOGICAL."""

    name: str = ""
    children: int = 0
    at: dict[int, int] = field(default_factory=dict)
    parts: "list[Element]" = field(default_factory=list)


def read_tail(raw: BinaryIO) -> tuple[int, bytes]:
    """Return where a file's footer begins, and the footer with what follows."""
    end = raw.seek(-TAIL, SEEK_END)
    start = raw.seek(end - int.from_bytes(raw.read(4), "little"))
    return start, raw.read(end + TAIL - start)


def open_required(tail: bytes) -> tuple[pq.ParquetFile, tuple[str, ...]]:
    """Open a footer, as `read_tail` returns it, with all keys required.

    Returns: the file without its data, and the paths of the keys that are marked optional.
    Raises: ArrowInvalid if Arrow refuses the changed footer, too.
    """
    patched, paths = bytearray(tail), []
    for path, _, key in find_optional(tail):
        patched[key.at[REPETITION]] = REQUIRED
        paths.append(path)
    return pq.ParquetFile(pa.BufferReader(MAGIC + bytes(patched))), tuple(paths)


def find_null(raw: BinaryIO, paths: Sequence[str]) -> str:
    """Return the first of these paths of optional keys at which the file has a null key; empty if there is none."""
    start, tail = read_tail(raw)
    patched = bytearray(tail)
    for _, one, _ in find_optional(tail):
        if CONVERTED in one.at:
            patched[one.at[CONVERTED]] = CONVERTED_LIST
        if LOGICAL in one.at:
            patched[one.at[LOGICAL]] = LOGICAL_LIST
    opened = pq.ParquetFile(pa.PythonFile(Patched(raw, start, bytes(patched)), mode="r"))
    for path in paths:
        for batch in opened.iter_batches(columns=[path]):
            array: pa.Array = batch.column(0)
            while pa.types.is_nested(array.type):
                found = array.flatten()  # a null map has no entries
                array = found[0] if isinstance(found, list) else found
            if array.null_count:
                return path
    return ""


def find_optional(tail: bytes) -> Iterator[tuple[str, Element, Element]]:
    """Yield (path of the key, map, key) for each map whose key is a single column and marked optional."""
    flat = _Thrift(tail).read_schema()

    def nest(one: Element) -> Element:
        one.parts = [nest(next(flat)) for _ in range(one.children)]
        return one

    def walk(one: Element, path: tuple[str, ...]) -> Iterator[tuple[str, Element, Element]]:
        for part in one.parts:
            here = (*path, part.name)
            if _is_map(part, tail) and len(part.parts) == 1 and (entry := part.parts[0]).parts:
                key = entry.parts[0]
                if tail[key.at[REPETITION]] == OPTIONAL and not key.parts:
                    yield ".".join((*here, entry.name, key.name)), part, key
            yield from walk(part, here)

    yield from walk(nest(next(flat)), ())


def _is_map(one: Element, tail: bytes) -> bool:
    converted = CONVERTED in one.at and tail[one.at[CONVERTED]] == CONVERTED_MAP
    return converted or (LOGICAL in one.at and tail[one.at[LOGICAL]] == LOGICAL_MAP)


class Patched(RawIOBase):
    """A file whose bytes from `start` on are replaced by `tail`, which has their length."""

    def __init__(self, raw: BinaryIO, start: int, tail: bytes) -> None:
        self._raw, self._start, self._tail = raw, start, tail

    def readable(self) -> bool:
        """See `RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `RawIOBase`."""
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """See `RawIOBase`."""
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        """See `RawIOBase`."""
        return self._raw.tell()

    def read(self, size: int = -1, /) -> bytes:
        """See `RawIOBase`."""
        at = self._raw.tell()
        data = self._raw.read(size)
        keep = max(0, min(len(data), self._start - at))
        return data[:keep] + self._tail[at + keep - self._start :][: len(data) - keep]


class _Thrift:
    """The part of Thrift's compact protocol that a footer has."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read_schema(self) -> Iterator[Element]:
        """Yield the elements of the schema of a FileMetaData, in the order of the file."""
        for number, kind in self._fields():
            if number != 2:
                self._skip(kind)
                continue
            for _ in range(self._read_size()):
                yield self._read_element()
            return

    def _read_element(self) -> Element:
        found = Element()
        for number, kind in self._fields():
            if number in (REPETITION, CONVERTED, LOGICAL):
                found.at[number] = self._at
            if number == 4:
                found.name = self._read_bytes().decode(errors="replace")
            elif number == 5:
                found.children = self._read_number() >> 1
            else:
                self._skip(kind)
        return found

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct. The caller reads or skips a field before it asks for the next."""
        number = 0
        while head := self._read_byte():
            delta = head >> 4
            number = number + delta if delta else self._read_number() >> 1
            yield number, head & 15

    def _skip(self, kind: int) -> None:
        match kind:
            case 3:  # BYTE
                self._at += 1
            case 4 | 5 | 6:
                self._read_number()
            case 7:
                self._at += 8
            case 8:
                self._read_bytes()
            case 9 | 10:
                inner = self._data[self._at] & 15
                for _ in range(self._read_size()):
                    self._skip(max(BYTE, inner))
            case 12:
                for _, inner in self._fields():
                    self._skip(inner)

    def _read_size(self) -> int:
        size = self._read_byte() >> 4
        return self._read_number() if size == 15 else size

    def _read_bytes(self) -> bytes:
        size = self._read_number()
        self._at += size
        return self._data[self._at - size : self._at]

    def _read_number(self) -> int:
        found = shift = 0
        while (one := self._read_byte()) > 127:
            found, shift = found | (one & 127) << shift, shift + 7
        return found | one << shift

    def _read_byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]
