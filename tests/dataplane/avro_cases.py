"""Schemas of Avro, their values, the readers that they may have evolved to, and what fastavro reads."""

import bz2
import datetime
import io
import lzma
import uuid
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import parse_schema
from hypothesis import strategies as st

UTC = datetime.UTC
STAMPS = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))
MILLIS = STAMPS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
DOUBLES = st.floats(allow_nan=False)
DECIMALS = st.decimals(-9999, 9999, places=2)

NUMBERS = count()  # of named types: a schema defines each once


def logical(of: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": of, "logicalType": name, **more}


@dataclass(frozen=True)
class Kind:
    """A type: its schema, its column, its values; `default` is one as a schema's JSON has it, and `promoted` a reader's."""

    schema: Any
    column: pa.DataType
    values: Any
    default: Any = None
    promoted: Any = None


SCALARS = (
    Kind("boolean", pa.bool_(), st.booleans(), True),
    Kind("int", pa.int32(), INTS, -3, Kind("long", pa.int64(), LONGS)),
    Kind("int", pa.int64(), INTS, 3, Kind("double", pa.float64(), DOUBLES)),
    Kind("long", pa.int64(), LONGS, 2**40),
    Kind("float", pa.float32(), st.floats(width=32, allow_nan=False), 0.5, Kind("double", pa.float64(), DOUBLES)),
    Kind("double", pa.float64(), DOUBLES, 0.1),
    Kind("string", pa.string(), TEXTS, "é", Kind("bytes", pa.binary(), st.binary())),
    Kind("bytes", pa.binary(), st.binary(max_size=5), "\u00ff\u0000"),
    Kind(logical("string", "uuid"), pa.string(), st.uuids(), str(uuid.UUID(int=7))),
    Kind(logical("int", "date"), pa.date32(), st.dates(), 11),
    Kind(
        logical("long", "timestamp-millis"), pa.timestamp("us", "UTC"), MILLIS.map(lambda t: t.replace(tzinfo=UTC)), 5
    ),
    Kind(
        logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), STAMPS.map(lambda t: t.replace(tzinfo=UTC)), 6
    ),
    Kind(logical("long", "local-timestamp-millis"), pa.timestamp("us"), MILLIS, 7),
    Kind(logical("long", "local-timestamp-micros"), pa.timestamp("us"), STAMPS, 8),
    Kind(logical("bytes", "decimal", precision=6, scale=2), pa.decimal128(9, 3), DECIMALS, "\u0001\u0000"),
)


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> Kind:
    """Any type; a named one has a name of its own."""
    choice = draw(st.integers(0, 8 if depth else 3))
    name = f"N{next(NUMBERS)}"
    if choice < 2:
        return draw(st.sampled_from(SCALARS))
    if choice == 2:
        symbols = ["A", "B", "C"]
        schema = {"type": "enum", "name": name, "symbols": symbols}
        return Kind(schema, pa.string(), st.sampled_from(symbols), "B")
    if choice == 3:
        return Kind({"type": "fixed", "name": name, "size": 2}, pa.binary(), st.binary(min_size=2, max_size=2), "ab")
    inner = draw(kinds(depth - 1))
    if choice == 4:
        return Kind(
            {"type": "array", "items": inner.schema}, pa.list_(inner.column), st.lists(inner.values, max_size=3), []
        )
    if choice == 5:
        values = st.dictionaries(TEXTS, inner.values, max_size=3)
        return Kind({"type": "map", "values": inner.schema}, pa.map_(pa.string(), inner.column), values, {})
    if choice == 6:
        return draw(records(depth - 1, name)).kind
    if isinstance(inner.schema, list):
        return inner
    return Kind(["null", inner.schema], inner.column, st.none() | inner.values)


@dataclass(frozen=True)
class Record:
    """A record's type, and its fields."""

    kind: Kind
    fields: dict[str, Kind]


@st.composite
def records(draw: st.DrawFn, depth: int, name: str = "Order") -> Record:
    """A record."""
    fields = {f"f{n}": draw(kinds(depth)) for n in range(draw(st.integers(1, 4)))}
    schema = {"type": "record", "name": name, "fields": [{"name": n, "type": k.schema} for n, k in fields.items()]}
    column = pa.struct([(n, k.column) for n, k in fields.items()])
    return Record(Kind(schema, column, st.fixed_dictionaries({n: k.values for n, k in fields.items()})), fields)


@st.composite
def evolve(draw: st.DrawFn, writer: Record) -> Record:
    """A reader's schema: without some fields, with others by default, renamed, promoted or made nullable."""
    fields: dict[str, Kind] = {}
    made: list[dict[str, Any]] = []
    for name, kind in writer.fields.items():
        change = draw(st.sampled_from(("keep", "drop", "rename", "promote", "null")))
        if change == "drop":
            continue
        kind = kind.promoted or kind if change == "promote" else kind
        if change == "null" and not isinstance(kind.schema, list):
            kind = Kind(["null", kind.schema], kind.column, kind.values)
        now = f"{name}new" if change == "rename" else name
        fields[now] = kind
        made.append({"name": now, "type": kind.schema, "aliases": [name] if now != name else []})
    for n, kind in enumerate(draw(st.lists(st.sampled_from(SCALARS), min_size=0 if made else 1, max_size=3))):
        fields[f"g{n}"] = kind
        made.append({"name": f"g{n}", "type": kind.schema, "default": kind.default})
    made = draw(st.permutations(made))
    schema = {"type": "record", "name": "Order", "fields": made}
    return Record(Kind(schema, pa.struct([(n, k.column) for n, k in fields.items()]), None), fields)


def encode(schema: Any, value: Any, id: int = 1) -> bytes:
    """A value in Confluent's wire format."""
    out = io.BytesIO()
    out.write(b"\x00" + id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, parse_schema(schema), value)
    return out.getvalue()


def write_file(schema: Any, records: Iterable[Any], codec: str = "null", **more: Any) -> bytes:
    """An object container file. `schema` may be a record's fields and their types."""
    fields = [] if "type" in schema else [{"name": name, "type": kind} for name, kind in schema.items()]
    whole = {"type": "record", "name": "Order", "fields": fields} if fields else schema
    sink = io.BytesIO()
    fastavro.writer(sink, parse_schema(whole), records, codec=codec, **more)
    return sink.getvalue()


def pack(data: bytes, codec: str) -> bytes:
    """A file without compression, with its blocks compressed."""
    reader = fastavro.block_reader(io.BytesIO(data))
    blocks = [(one.num_records, one.bytes_.getvalue()) for one in reader]
    head, marker = data.partition(b"null")[0][:-1], data[-16:]
    rest = data[len(head) + 5 :]
    begin = head + encode_long(len(codec)) + codec.encode() + rest[: rest.index(marker) + 16]
    packed = [(records, PACK[codec](block)) for records, block in blocks]
    return begin + b"".join(
        encode_long(records) + encode_long(len(block)) + block + marker for records, block in packed
    )


def encode_long(number: int) -> bytes:
    """Avro's zigzag encoding."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


def _pack_raw(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(data) + packing.flush()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _pack_raw,
    "snappy": lambda data: bytes(pa.compress(data, "snappy")) + zlib.crc32(data).to_bytes(4, "big"),
    "zstandard": lambda data: bytes(pa.compress(data, "zstd")),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def read(value: bytes, writer: Any, reader: Any) -> Any:
    """What fastavro reads."""
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), parse_schema(writer), parse_schema(reader))


def show(value: Any, column: pa.DataType) -> Any:
    """A value of fastavro's, as Arrow's column returns it. Defaults are as the schema's JSON has them."""
    if value is None:
        return None
    if pa.types.is_struct(column):
        return {one.name: show(value[one.name], one.type) for one in column}
    if pa.types.is_list(column):
        return [show(one, column.value_type) for one in value]
    if pa.types.is_map(column):
        return [(key, show(one, column.item_type)) for key, one in value.items()]
    if pa.types.is_binary(column) and isinstance(value, str):
        return value.encode("iso-8859-1")
    if pa.types.is_decimal(column):
        value = (
            Decimal(int.from_bytes(value.encode("iso-8859-1"), "big", signed=True)) / 100
            if isinstance(value, str)
            else value
        )
        return value.quantize(Decimal(1).scaleb(-column.scale))
    if isinstance(value, int) and not isinstance(value, bool):
        if pa.types.is_date(column):
            return datetime.date(1970, 1, 1) + datetime.timedelta(value)
        if pa.types.is_timestamp(column):
            return value
    return str(value) if isinstance(value, uuid.UUID) else value
