"""Values of Parquet columns in a form in which equal values compare equal, whatever their types."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def compare(column: pa.ChunkedArray, cut: bool) -> list[Any]:
    """Return the values in this form; with `cut`, in whole microseconds."""
    return [value for chunk in column.chunks for value in _compare(chunk, cut)]


def _compare(column: pa.Array, cut: bool) -> list[Any]:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    kind = column.type
    if pa.types.is_struct(kind):
        return list(zip(*(_compare(column.field(n), cut) for n in range(kind.num_fields)), strict=True))
    if pa.types.is_map(kind):
        return list(zip(_compare(column.keys, cut), _compare(column.items, cut), strict=True))
    if pa.types.is_list(kind):
        return _compare(column.flatten(), cut)
    if pa.types.is_timestamp(kind):
        nanos = [n * NANOS[kind.unit] for n in column.cast(pa.int64()).to_pylist()]
        return [n // 1000 * 1000 for n in nanos] if cut else nanos
    if pa.types.is_date(kind):
        return [n * 86400 * 10**9 for n in column.cast(pa.int32()).to_pylist()]
    return [_exact(value) for value in column.to_pylist()]


def _exact(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return Fraction(value) if math.isfinite(value) else str(value)
