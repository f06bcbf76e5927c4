"""Parquet written byte by byte: columns of every physical and logical type, also those that pyarrow never writes.

Law: it shares no code with what reads it. A column is required and has its values plain, or by a dictionary; in a list, a
map or a struct it has one of them a row.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
REQUIRED, REPEATED = 0, 2
CONVERTED = {
    "UTF8": 0, "MAP": 1, "LIST": 3, "ENUM": 4, "DECIMAL": 5, "DATE": 6, "TIME_MILLIS": 7, "TIME_MICROS": 8,
    "TIMESTAMP_MILLIS": 9, "TIMESTAMP_MICROS": 10, "UINT_8": 11, "UINT_16": 12, "UINT_32": 13, "UINT_64": 14, "INT_8": 15,
    "INT_16": 16, "INT_32": 17, "INT_64": 18, "JSON": 19, "BSON": 20, "INTERVAL": 21,
}  # fmt: skip
UNITS = {"ms": 1, "us": 2, "ns": 3}
PLAIN, RLE, BY_DICTIONARY = 0, 3, 8
SHAPES = ("flat", "struct", "array", "map")  # of a map both key and value


class Long(int):
    """A number that Thrift has as i64."""


@dataclass(frozen=True)
class Leaf:
    """`converted` is one of CONVERTED, or empty. `logical`: Thrift's LogicalType, for those without a converted type."""

    physical: str
    values: Sequence[bytes]  # each plain, as Parquet has it
    converted: str = ""
    logical: Mapping[int, Any] | None = None
    precision: int = 0
    scale: int = 0
    length: int = 0


def write(
    columns: Mapping[str, tuple[str, Leaf]], by_dictionary: bool, lies: Mapping[int, int] = MappingProxyType({})
) -> bytes:
    """The bytes of a file with these columns: name -> shape and leaf. `lies`: fields of the footer's ColumnMetaData that
    get another value."""
    body, schema, chunks = b"PAR1", [{4: b"schema", 5: len(columns)}], []
    for name, (shape, leaf) in columns.items():
        groups, paths = _lay_out(name, shape, leaf)
        schema += groups
        for path, at in zip(paths, (leaf, leaf), strict=False):
            start, data = len(body), b""
            count = len(at.values)
            if by_dictionary:
                plain = b"".join(at.values)
                data = _encode({1: 2, 2: len(plain), 3: len(plain), 7: {1: count, 2: PLAIN}})[1] + plain
            dictionary = len(data)
            page = _levels(shape, count) + (_indices(count) if by_dictionary else _join(at))
            encoding = BY_DICTIONARY if by_dictionary else PLAIN
            header = {1: 0, 2: len(page), 3: len(page), 5: {1: count, 2: encoding, 3: RLE, 4: RLE}}
            data += _encode(header)[1] + page
            size = Long(len(data))
            meta = {
                1: PHYSICAL.index(at.physical), 2: [PLAIN, RLE, BY_DICTIONARY], 3: path, 4: 0, 5: Long(count), 6: size,
                7: size, 9: Long(start + dictionary), **({11: Long(start)} if by_dictionary else {}),
            }  # fmt: skip
            meta |= {field: Long(value) for field, value in lies.items()}
            chunks.append({2: Long(start), 3: dict(sorted(meta.items()))})
            body += data
    rows = Long(len(next(iter(columns.values()))[1].values))
    footer = _encode({1: 2, 2: schema, 3: rows, 4: [{1: chunks, 2: Long(len(body)), 3: rows}], 6: b"tests"})[1]
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _join(leaf: Leaf) -> bytes:
    if leaf.physical != "BOOLEAN":
        return b"".join(leaf.values)
    return bytes([sum(value[0] << at for at, value in enumerate(leaf.values))])


def _element(name: str, leaf: Leaf) -> dict[int, Any]:
    found: dict[int, Any] = {1: PHYSICAL.index(leaf.physical)}
    if leaf.length:
        found[2] = leaf.length
    found |= {3: REQUIRED, 4: name.encode()}
    if leaf.converted:
        found[6] = CONVERTED[leaf.converted]
    if leaf.precision:
        found |= {7: leaf.scale, 8: leaf.precision}
    return found | ({10: leaf.logical} if leaf.logical else {})


def _lay_out(name: str, shape: str, leaf: Leaf) -> tuple[list[dict[int, Any]], list[list[bytes]]]:
    """The elements of the schema, and the paths of the leaves: two where both key and value of a map are the leaf."""
    top = name.encode()
    if shape == "flat":
        return [_element(name, leaf)], [[top]]
    if shape == "struct":
        return [{3: REQUIRED, 4: top, 5: 1}, _element("x", leaf)], [[top, b"x"]]
    if shape == "array":
        inner = {3: REPEATED, 4: b"list", 5: 1}
        return [{3: REQUIRED, 4: top, 5: 1, 6: CONVERTED["LIST"]}, inner, _element("element", leaf)], [
            [top, b"list", b"element"]
        ]
    inner = {3: REPEATED, 4: b"key_value", 5: 2}
    paths = [[top, b"key_value", b"key"], [top, b"key_value", b"value"]]
    return [
        {3: REQUIRED, 4: top, 5: 1, 6: CONVERTED["MAP"]}, inner, _element("key", leaf), _element("value", leaf),
    ], paths  # fmt: skip


def _levels(shape: str, count: int) -> bytes:
    """Of repetition all 0, of definition all 1: one value a row."""
    if shape in ("flat", "struct"):
        return b""
    repeated, defined = _varint(count << 1) + b"\0", _varint(count << 1) + b"\1"
    return b"".join(struct.pack("<I", len(one)) + one for one in (repeated, defined))


def _indices(count: int) -> bytes:
    """Each value's place in the dictionary, a run of its own."""
    return b"\x08" + b"".join(_varint(1 << 1) + bytes([at]) for at in range(count))


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def _encode(value: Any) -> tuple[int, bytes]:
    """Thrift's compact protocol: the type's number and the bytes."""
    match value:
        case bool():
            return (1 if value else 2), b""
        case int():
            return (6 if isinstance(value, Long) else 5), _varint(value << 1 if value >= 0 else (-value << 1) - 1)
        case bytes():
            return 8, _varint(len(value)) + value
        case list():
            made = [_encode(one) for one in value]
            kind = made[0][0]
            head = bytes([len(made) << 4 | kind]) if len(made) < 15 else bytes([0xF0 | kind]) + _varint(len(made))
            return 9, head + b"".join(data for _, data in made)
    found, last = b"", 0
    for at, one in value.items():
        kind, data = _encode(one)
        found, last = found + bytes([(at - last) << 4 | kind]) + data, at
    return 12, found + b"\0"
