"""Parquet written byte by byte: columns of every physical and logical type, also those that pyarrow never writes.

Law: the module shares no code with the readers. A column is encoded plain or by a dictionary. A list, a map or a struct
has one value per row. All fields are required, except an `optional` leaf, which may be null if it is encoded plain.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
CONVERTED = {
    "UTF8": 0, "MAP": 1, "LIST": 3, "ENUM": 4, "DECIMAL": 5, "DATE": 6, "TIME_MILLIS": 7, "TIME_MICROS": 8,
    "TIMESTAMP_MILLIS": 9, "TIMESTAMP_MICROS": 10, "UINT_8": 11, "UINT_16": 12, "UINT_32": 13, "UINT_64": 14, "INT_8": 15,
    "INT_16": 16, "INT_32": 17, "INT_64": 18, "JSON": 19, "BSON": 20, "INTERVAL": 21,
}  # fmt: skip
UNITS = {"ms": 1, "us": 2, "ns": 3}
PLAIN, RLE, BY_DICTIONARY = 0, 3, 8
SHAPES = ("flat", "struct", "array", "map")  # of a map both key and value
MAPS = "array of map"


class Long(int):
    """A number that Thrift encodes as i64."""


@dataclass(frozen=True)
class Leaf:
    """`converted` is one of CONVERTED, or empty. `logical`: Thrift's LogicalType, for types without a converted type."""

    physical: str
    values: Sequence[bytes | None]  # each in Parquet's plain encoding
    converted: str = ""
    logical: Mapping[int, Any] | None = None
    precision: int = 0
    scale: int = 0
    length: int = 0
    optional: bool = False


def write(
    columns: Mapping[str, tuple[str, Leaf]], by_dictionary: bool, lies: Mapping[int, int] = MappingProxyType({})
) -> bytes:
    """Return the bytes of a file with these columns: name -> shape and leaf. `lies` are wrong values for fields of the
    footer's ColumnMetaData."""
    body, schema, chunks = b"PAR1", [{4: b"schema", 5: len(columns)}], []
    for name, (shape, leaf) in columns.items():
        groups, paths = _lay_out(name, shape, leaf)
        schema += groups
        for path, at in zip(paths, (leaf, leaf), strict=False):
            start, data = len(body), b""
            count = len(at.values)
            if by_dictionary:
                plain = b"".join(filter(None, at.values))
                data = _encode({1: 2, 2: len(plain), 3: len(plain), 7: {1: count, 2: PLAIN}})[1] + plain
            dictionary = len(data)
            page = _levels(shape, at) + (_indices(count) if by_dictionary else _join(at))
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
    values = [value for value in leaf.values if value is not None]
    if leaf.physical != "BOOLEAN":
        return b"".join(values)
    return bytes([sum(value[0] << at for at, value in enumerate(values))])


def _element(name: str, leaf: Leaf) -> dict[int, Any]:
    found: dict[int, Any] = {1: PHYSICAL.index(leaf.physical)}
    if leaf.length:
        found[2] = leaf.length
    found |= {3: OPTIONAL if leaf.optional else REQUIRED, 4: name.encode()}
    if leaf.converted:
        found[6] = CONVERTED[leaf.converted]
    if leaf.precision:
        found |= {7: leaf.scale, 8: leaf.precision}
    return found | ({10: leaf.logical} if leaf.logical else {})


def _lay_out(name: str, shape: str, leaf: Leaf) -> tuple[list[dict[int, Any]], list[list[bytes]]]:
    """Return the elements of the schema, and the paths of the leaves: two for a map, whose key and value are the leaf."""
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
    groups = [{3: REQUIRED, 4: top, 5: 1, 6: CONVERTED["MAP"]}, {3: REPEATED, 4: b"key_value", 5: 2}]
    above = [top]
    if shape == MAPS:
        outer = {3: REQUIRED, 4: top, 5: 1, 6: CONVERTED["LIST"]}, {3: REPEATED, 4: b"list", 5: 1}
        groups = [*outer, groups[0] | {4: b"element"}, groups[1]]
        above = [top, b"list", b"element"]
    paths = [[*above, b"key_value", part] for part in (b"key", b"value")]
    return [*groups, _element("key", leaf), _element("value", leaf)], paths


def _levels(shape: str, leaf: Leaf) -> bytes:
    """Return the levels: repetition is 0; definition is the highest for a value, and one less for null."""
    nested = {"array": 1, "map": 1, MAPS: 2}.get(shape, 0)
    top = nested + leaf.optional
    repeated = _varint(len(leaf.values) << 1) + b"\0"
    defined = b"".join(_varint(1 << 1) + bytes([top - (value is None)]) for value in leaf.values)
    return b"".join(struct.pack("<I", len(one)) + one for one in (repeated,) * bool(nested) + (defined,) * bool(top))


def _indices(count: int) -> bytes:
    """Return each value's index in the dictionary, as a run of length 1."""
    return b"\x08" + b"".join(_varint(1 << 1) + bytes([at]) for at in range(count))


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def _encode(value: Any) -> tuple[int, bytes]:
    """Encode in Thrift's compact protocol: the type's number and the bytes."""
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
        head = bytes([(at - last) << 4 | kind]) if at - last < 16 else bytes([kind]) + _varint(at << 1)
        found, last = found + head + data, at
    return 12, found + b"\0"
