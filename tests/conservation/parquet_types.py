"""Columns of Parquet of another type than the declared one: what has equal values in it, and what has not."""

from decimal import Decimal

import pyarrow as pa

from tests.conservation.draw import Draw
from tests.conservation.shape import Type

SMALL = (0, 1, 7, None)
EQUAL: dict[str, tuple[pa.DataType, ...]] = {
    "short": (pa.int8(), pa.uint8()),
    "int": (pa.int8(), pa.int16(), pa.uint8(), pa.uint16()),
    "long": (pa.int32(), pa.int16(), pa.uint32()),
    "double": (pa.float32(), pa.int32(), pa.int8(), pa.uint16()),
    "string": (pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())),
    "binary": (pa.string(), pa.large_binary(), pa.binary(3)),
    "timestamp": (pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ms")),
    "timestamp_ntz": (pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.date32()),
}
OTHERS: dict[str, tuple[pa.DataType, ...]] = {
    "byte": (pa.int16(), pa.uint8(), pa.int32()),
    "short": (pa.int32(), pa.uint16(), pa.bool_()),
    "int": (pa.int64(), pa.uint32(), pa.date32(), pa.float64()),
    "long": (pa.uint64(), pa.timestamp("us"), pa.float64(), pa.decimal128(9, 2)),
    "float": (pa.float64(), pa.int32(), pa.float16()),
    "double": (pa.uint32(), pa.int64(), pa.decimal128(9, 2), pa.decimal128(12, 2), pa.date32()),
    "decimal": (pa.uint32(), pa.float64(), pa.decimal128(38, 38), pa.string()),
    "boolean": (pa.int8(), pa.string()),
    "string": (pa.int32(), pa.bool_(), pa.binary(3)),
    "binary": (pa.int64(), pa.float64()),
    "date": (pa.int32(), pa.timestamp("us"), pa.string()),
    "timestamp": (pa.timestamp("ns"), pa.int64(), pa.date32(), pa.string()),
    "timestamp_ntz": (pa.timestamp("ns"), pa.int64(), pa.int32()),
}
NESTED = pa.list_(pa.list_(pa.int32()))


def draw_equal(draw: Draw, declared: Type, count: int) -> pa.Array | None:
    """A column of another type whose values the declared one has, too; None where there is no such type."""
    kinds = EQUAL.get(declared.kind, ())
    if declared.kind == "decimal":
        before = declared.precision - declared.scale
        less = (
            pa.decimal128(declared.precision - n, declared.scale - n) for n in range(1, min(3, declared.scale, before))
        )
        kinds = (
            pa.decimal128(declared.precision, declared.scale),
            *less,
            *((pa.int32(), pa.int8()) if before >= 10 else ()),
            *((pa.int64(),) if before >= 20 else ()),
        )
    if not kinds:
        return None
    kind = draw.choice(kinds)
    draw.note("parquet", f"{kind} for {declared.kind}")
    return make_column(kind, draw.choices(SMALL, k=count))


def draw_other(draw: Draw, declared: Type, count: int) -> pa.Array:
    """A column of a type that has other values than the declared one."""
    kind = draw.choice((NESTED, *OTHERS.get(declared.kind, ())))
    draw.note("misfit", f"{kind} for {declared.kind}")
    return make_column(kind, [1] * count)


def make_column(kind: pa.DataType, values: list[int | None]) -> pa.Array:
    """Small whole numbers as values of this type."""
    if kind == NESTED:
        return pa.array([[[n]] for n in values], kind)
    if pa.types.is_dictionary(kind):
        return make_column(kind.value_type, values).dictionary_encode()
    if pa.types.is_decimal(kind):
        return pa.array([None if n is None else Decimal(n % 10).scaleb(-kind.scale) for n in values], kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([None if n is None else bytes([n]) * 3 for n in values], kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array([None if n is None else f"ü{n}" for n in values], kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if n is None else f"ü{n}".encode() for n in values], kind)
    if pa.types.is_float16(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return pa.array(values, pa.int32()).cast(pa.float32()).cast(kind)
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
