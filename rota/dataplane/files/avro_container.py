"""Avro's object container files: a header with the schema, and blocks of records. The module is sent to Spark's workers as
code: it needs pyarrow and fastavro there, and nothing of rota but the modules that are sent with it.

Law: a file is read as a whole or not at all. Each block must have as many records as it states, and no byte more; its sync
marker must follow, and the file must end after a marker. A file that was cut exactly there is a whole file to Avro.

Law: the size of a file is that of the index. A machine that sees fewer bytes, such as through the cache of a network disk,
reports an error of the environment.

The format is that of Avro 1.12: "Obj" and 1; a map with `avro.schema` and `avro.codec`; 16 bytes, the sync marker; then
blocks of count, size, records and marker. fastavro's own reader needs other packages for some codecs, and takes logical
types from the writer's schema; so it decodes the records only.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import fs

from rota.dataplane.formats.avro import Decoder
from rota.dataplane.formats.avro_schemas import parse
from rota.dataplane.formats.registered_columns import Undecodable
from rota.dataplane.spark.on_executors import as_environment

MAGIC = b"Obj\x01"
MARKER = 16  # bytes of a sync marker
LONGEST = 10  # bytes of a number
ROWS, ROOM = 8192, 16 << 20  # records, and bytes of records, from which on a batch is passed on
BUFFER = 1 << 20  # bytes that a task requests of a bucket at once
AGAIN = "Write the file again"
CODECS = "null, deflate, snappy, zstandard, bzip2 or xz"
Batches = Iterable[pa.RecordBatch]


class UnreadableAvroError(ValueError):
    """A file is no whole Avro file, or has a record that the columns do not hold. The text continues the file's name."""


class Source:
    """The first `size` bytes of a stream."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._size, self.at = stream, size, 0

    @property
    def left(self) -> int:
        """The number of bytes that were not taken yet."""
        return self._size - self.at

    def take(self, number: int) -> bytes:
        """Return the next bytes. Raises: UnreadableAvroError if the file has fewer; OSError if the stream has."""
        if number < 0:
            raise UnreadableAvroError(f"is damaged: a size before byte {self.at} is negative. {AGAIN}")
        if number > self.left:
            raise UnreadableAvroError(f"ends within a block, at byte {self._size}. Bring a whole file")
        with as_environment():
            found = self._stream.read(number)
            if len(found) < number:
                raise OSError(f"a file of {self._size} bytes has only {self.at + len(found)} bytes here")
        self.at += number
        return found

    def skip_to(self, at: int) -> None:
        """Continue at this place, if it is further ahead."""
        if at > self.at:
            self.at = at
            with as_environment():
                self._stream.seek(at)

    def take_number(self) -> int:
        """Return the next number, in Avro's zigzag encoding."""
        number = 0
        for place in range(LONGEST):
            (byte,) = self.take(1)
            number |= (byte & 127) << 7 * place
            if byte < 128:
                return number >> 1 ^ -(number & 1)
        raise UnreadableAvroError(f"is damaged: a number before byte {self.at} does not end. {AGAIN}")

    def take_text(self) -> bytes:
        """Return the next bytes, whose number is before them."""
        return self.take(self.take_number())


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file: the writer's schema as JSON, the codec of the blocks, and the sync marker."""

    schema: str
    codec: str
    marker: bytes


def read_header(source: Source) -> Header:
    """Take a file's header. Raises: UnreadableAvroError, OSError."""
    if not source.left:
        raise UnreadableAvroError(f"has no bytes, which is no Avro. {AGAIN}")
    if source.left < len(MAGIC) or source.take(len(MAGIC)) != MAGIC:
        raise UnreadableAvroError("is no Avro: it does not begin with Obj and 1. Land Avro's object container files")
    found: dict[bytes, bytes] = {}
    while entries := source.take_number():
        if entries < 0:
            source.take_number()  # the size of these entries
        for _ in range(abs(entries)):
            name = source.take_text()
            found[name] = source.take_text()
    try:
        schema, codec = found[b"avro.schema"].decode(), found.get(b"avro.codec", b"null").decode()
    except (KeyError, UnicodeDecodeError):
        raise UnreadableAvroError(f"has no schema in its header. {AGAIN}") from None
    if codec not in UNPACK:
        raise UnreadableAvroError(f"is compressed with {codec!r}. Write it with {CODECS}")
    return Header(schema, codec, source.take(MARKER))


def take_blocks(source: Source, marker: bytes, end: int) -> Iterator[tuple[int, int, bytes]]:
    """Take the blocks up to the byte `end`: yield the place of each, the number of its records, and their packed bytes.

    Raises: UnreadableAvroError, OSError.
    """
    while source.at < end:
        at = source.at
        records = source.take_number()
        if records < 0:
            joined = MAGIC[0] == (-records << 1) - 1 and source.left >= 3 and source.take(3) == MAGIC[1:]
            raise UnreadableAvroError(
                f"has another Avro file behind it, at byte {at}. Land each as a file of its own"
                if joined
                else f"is damaged: the block at byte {at} has {records} records. {AGAIN}"
            )
        data = source.take_text()
        if source.take(MARKER) != marker:
            raise UnreadableAvroError(f"is damaged: no sync marker follows the block at byte {at}. {AGAIN}")
        yield at, records, data


def _inflate(data: bytes) -> bytes:
    inflating = zlib.decompressobj(-15)
    found = inflating.decompress(data) + inflating.flush()
    if not inflating.eof:  # fastavro writes three bytes of a checksum behind the stream
        raise ValueError("incomplete deflate stream")
    return found


def _unpack_snappy(data: bytes) -> bytes:
    packed, checksum = data[:-4], data[-4:]
    size = 0
    for place, byte in enumerate(packed[:5]):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            break
    found = bytes(pa.Codec("snappy").decompress(packed, size))
    if zlib.crc32(found).to_bytes(4, "big") != checksum:
        raise ValueError("its checksum differs")
    return found


def _unpack_bzip2(data: bytes) -> bytes:
    import bz2

    return bz2.decompress(data)


def _unpack_xz(data: bytes) -> bytes:
    import lzma

    return lzma.decompress(data)


def _unpack_zstandard(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as opened:
        return bytes(opened.read())


UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes, "deflate": _inflate, "snappy": _unpack_snappy, "zstandard": _unpack_zstandard,
    "bzip2": _unpack_bzip2, "xz": _unpack_xz,
}  # fmt: skip


def unpack(codec: str, data: bytes, at: int) -> bytes:
    """Return the bytes of the block at this place. Raises: UnreadableAvroError."""
    try:
        return UNPACK[codec](data)
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # some libraries raise an OSError for bytes that they do not know
        raise UnreadableAvroError(f"is damaged: the block at byte {at} is no {codec} ({error}). {AGAIN}") from None


@dataclass(frozen=True, slots=True)
class Share:
    """Blocks of a file that a task reads.

    Attributes:
        path: of the file in the store.
        name: of the file, for messages.
        size: of the file.
        partition, offset: where its records belong.
        start, end: the place of the first block, and the one behind the last. 0 is the first block of the file.
        before: the number of records in the blocks before `start`.
    """

    path: str
    name: str
    size: int
    partition: str
    offset: int
    start: int
    end: int
    before: int = 0


def make_reader(
    open_files: Callable[[], fs.FileSystem], shares: Sequence[Sequence[Share]], kinds: pa.Schema, reader: Any
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that turns numbers of shares into the records of their files.

    Args:
        open_files: opens the store.
        shares: the files of each task.
        kinds: the columns of a record.
        reader: the reader's schema, parsed; None: each file is read by its own.
    """

    def read_avro(numbers: Batches) -> Iterator[pa.RecordBatch]:
        with as_environment():
            files = open_files()
        decoders: dict[str, Decoder] = {}
        for batch in numbers:
            for n in batch.column(0).to_pylist():
                for share in shares[n]:
                    with as_environment():
                        opened: Any = files.open_input_file(share.path)
                    try:
                        source = Source(BufferedReader(opened, BUFFER), share.size)
                        yield from read_records(source, share, kinds, reader, decoders)
                    except UnreadableAvroError as error:
                        raise UnreadableAvroError(f"{share.name} {error}") from None
                    finally:
                        opened.close()

    return read_avro


def read_records(
    source: Source, share: Share, kinds: pa.Schema, reader: Any, decoders: dict[str, Decoder]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a share, with partition and offset. `decoders` keeps one for each writer's schema.

    Raises: UnreadableAvroError, OSError.
    """
    header = read_header(source)
    if header.schema not in decoders:
        writer = parse(json.loads(header.schema))
        decoders[header.schema] = Decoder(kinds, reader or writer, lambda _: writer)
    decoder = decoders[header.schema]
    rows: list[dict[str, Any]] = []
    size, done = 0, share.before
    source.skip_to(share.start)
    for at, records, packed in take_blocks(source, header.marker, share.end):
        data = unpack(header.codec, packed, at)
        size += len(data)
        try:
            for row in decoder.read_all(data, records):
                rows.append(row)
                if len(rows) == ROWS:
                    yield _make_batch(decoder, rows, share, done)
                    rows, size, done = [], 0, done + ROWS
        except Undecodable as error:
            place = f"behind record {done + len(rows)}, in the block at byte {at}"
            raise UnreadableAvroError(f"does not decode {place}: {error}. {AGAIN}") from None
        if size >= ROOM:
            yield _make_batch(decoder, rows, share, done)
            rows, size, done = [], 0, done + len(rows)
    if rows:
        yield _make_batch(decoder, rows, share, done)


def _make_batch(decoder: Decoder, rows: list[dict[str, Any]], share: Share, done: int) -> pa.RecordBatch:
    """Return the records behind the first `done` ones of a file. Raises: UnreadableAvroError."""
    bad = [False] * len(rows)
    columns = decoder.make_columns(rows, bad)
    if True in bad:
        at = bad.index(True)
        why = decoder.explain_row(rows[at])
        raise UnreadableAvroError(
            f"has a value in record {done + at + 1} that the column does not hold: {why}. {AGAIN}"
        )
    place = [pa.array([share.partition] * len(rows)), pa.array([share.offset] * len(rows), pa.int64())]
    return pa.RecordBatch.from_arrays([*columns, *place], names=[*decoder.kinds.names, "_partition", "_offset"])
