"""Columns of Arrow as canonical values (see `rules`), out of tables and out of Parquet files alike."""

import re

import pyarrow as pa

from tests.conservation.rules import MICROS, Value
from tests.conservation.shape import Type

LOST = re.compile("\ufffd+")
LOST_BYTES = re.compile(b"(?:\xef\xbf\xbd)+")
PER_SECOND = {"s": 1_000_000, "ms": 1_000, "us": 1}
WIDTHS = {  # a column may be read from these
    "byte": ("int8",),
    "short": ("int8", "int16", "uint8"),
    "int": ("int8", "int16", "int32", "uint8", "uint16"),
    "long": ("int8", "int16", "int32", "int64", "uint32"),
    "float": ("float",),
    "double": ("float", "double", "int8", "int16", "int32", "uint8", "uint16"),
    "boolean": ("bool",),
    "date": ("date32[day]",),
    "string": ("string", "large_string", "binary", "large_binary"),
    "binary": ("binary", "large_binary", "string", "large_string", "fixed_size_binary[3]"),
}


def values(column: pa.Array | pa.ChunkedArray) -> list[Value]:
    """The column's values; text that is no UTF-8 has one U+FFFD for each run of such bytes."""
    if isinstance(column, pa.ChunkedArray):
        return [v for chunk in column.chunks for v in values(chunk)]
    kind = column.type
    if pa.types.is_dictionary(kind):
        return values(column.dictionary_decode())
    if pa.types.is_struct(kind):
        parts = [values(one) for one in column.flatten()]
        rows = zip(*parts, strict=True) if parts else iter([()] * len(column))
        return [row if there else None for row, there in zip(rows, _there(column), strict=True)]
    if pa.types.is_map(kind):
        pairs = list(zip(values(column.keys), values(column.items), strict=True))
        return _cut(column, pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _cut(column, values(column.values))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [None if v is None else text(v) for v in column.cast(pa.large_binary()).to_pylist()]
    if pa.types.is_date32(kind):
        return list(column.view(pa.int32()).to_pylist())
    if pa.types.is_timestamp(kind):
        by = PER_SECOND[kind.unit]
        return [None if v is None else v * by for v in column.view(pa.int64()).to_pylist()]
    if pa.types.is_floating(kind):
        return [v if v is None or v == v else "NaN" for v in column.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [fold(v) for v in column.to_pylist()]
    return list(column.to_pylist())


def values_as(column: pa.ChunkedArray, declared: Type) -> list[Value]:
    """The column's values as those of the declared type, if that has equal ones."""
    found = values(column)
    if declared.kind == "timestamp_ntz" and pa.types.is_date32(column.type):
        return [None if v is None else v * MICROS for v in found]  # type: ignore[operator]
    if declared.kind == "string":
        return [text(v) if isinstance(v, bytes) else v for v in found]
    return [v.encode() if isinstance(v, str) and declared.kind == "binary" else v for v in found]


def text(raw: bytes) -> str:
    if raw.isascii():
        return raw.decode()
    return LOST.sub("\ufffd", raw.decode(errors="replace"))


def fold(value: Value) -> Value:
    """A text as `text` gives it, and bytes that were made of one."""
    if isinstance(value, str):
        return LOST.sub("\ufffd", value) if "\ufffd" in value else value
    if isinstance(value, bytes) and b"\xef\xbf\xbd" in value:
        return LOST_BYTES.sub(b"\xef\xbf\xbd", value)
    return value


def comparable(found: pa.DataType, declared: Type) -> bool:
    """Whether a Parquet column of this type may be read as the declared one."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    match declared.kind:
        case "decimal":
            before = declared.precision - declared.scale
            if not pa.types.is_decimal(found):
                return before >= {"int8": 10, "int16": 10, "int32": 10, "int64": 20}.get(str(found), 99)
            return found.scale <= declared.scale and found.precision - found.scale <= before
        case "timestamp" | "timestamp_ntz":
            midnight = declared.kind == "timestamp_ntz" and pa.types.is_date32(found)
            return midnight or (pa.types.is_timestamp(found) and found.unit in ("ms", "us"))
        case "struct":
            return pa.types.is_struct(found) and all(
                found.get_field_index(name) >= 0 and comparable(found.field(name).type, part)
                for name, part in declared.parts
            )
        case "array":
            return pa.types.is_list(found) and comparable(found.value_type, declared.parts[0][1])
        case "map":
            key, (_, value) = Type(declared.key), declared.parts[0]
            return pa.types.is_map(found) and comparable(found.key_type, key) and comparable(found.item_type, value)
    return str(found) in WIDTHS[declared.kind]


def _there(column: pa.Array) -> list[bool]:
    return list(column.is_valid().to_pylist())


def _cut(column: pa.Array, parts: list[Value]) -> list[Value]:
    ends = column.offsets.to_pylist()
    return [tuple(parts[a:b]) if there else None for a, b, there in zip(ends, ends[1:], _there(column), strict=False)]
