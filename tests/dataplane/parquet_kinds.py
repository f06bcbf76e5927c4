"""A column of each physical and logical type of Parquet, with eight values that differ if they are read as another type."""

import struct
from collections.abc import Iterator

from tests.dataplane.parquet_bytes import UNITS, Leaf

OF_32 = (20260101, -1, 150, 1999, 2**31 - 1, -(2**31), 0, 2**24 + 1)
OF_64 = (2**53 + 1, -1, 150, 1999, 2**63 - 1, -(2**63), 0, 1_700_000_000_123_456)
TEXTS = ("a", "", "é", "1.50", "4294967295", "2026-01-01", "true", "x" * 20)
MOMENT = {"ms": 1_700_000_000_123, "us": 1_700_000_000_123_456, "ns": 1_700_000_000_123_456_789}
NANOS = ((0, 2440588), (123_456_789, 2_460_000), (1000, 2_440_588), (86_399_999_999_000, 2_440_587))  # of a day, days
DECIMALS = {  # physical type: digits, digits after the point, bytes
    "INT32": ((2, 0, 0), (4, 0, 0), (9, 0, 0), (9, 2, 0), (5, 5, 0)),
    "INT64": ((4, 0, 0), (9, 2, 0), (12, 2, 0), (18, 0, 0), (18, 4, 0)),
    "FIXED_LEN_BYTE_ARRAY": ((4, 0, 2), (9, 0, 4), (5, 2, 3), (9, 2, 16), (18, 4, 8), (20, 0, 9), (38, 10, 16)),
    "BYTE_ARRAY": ((4, 0, 2), (9, 2, 4), (18, 4, 8), (20, 0, 9), (38, 10, 16)),
}


def list_kinds() -> dict[str, Leaf]:
    """Return a unique name."""
    text = [struct.pack("<I", len(t.encode())) + t.encode() for t in TEXTS]
    sixteen = [bytes([n]) * 16 for n in range(8)]
    halves = pack("e", 1.5, -1, 0.1, 65504, float("nan"), float("inf"), -0.0, 2)
    single = pack("f", 1.5, float("nan"), float("inf"), -0.0, 2.0**24, 0.1, 3.4e38, -1)
    double = pack("d", 1.5, float("nan"), float("inf"), -0.0, 2.0**53, 0.1, 1e308, -1)
    days = [struct.pack("<qi", *one) for one in NANOS * 2]
    return {
        "boolean": Leaf("BOOLEAN", [b"\1", b"\0"] * 4),
        "int32": Leaf("INT32", pack("i", *OF_32)),
        "int64": Leaf("INT64", pack("q", *OF_64)),
        "int96": Leaf("INT96", days),
        "float": Leaf("FLOAT", single),
        "double": Leaf("DOUBLE", double),
        "bytes": Leaf("BYTE_ARRAY", text),
        **{kind: Leaf("BYTE_ARRAY", text, kind) for kind in ("UTF8", "ENUM", "JSON", "BSON")},
        "fixed": Leaf("FIXED_LEN_BYTE_ARRAY", sixteen, length=16),
        "UUID": Leaf("FIXED_LEN_BYTE_ARRAY", sixteen, logical={14: {}}, length=16),
        "FLOAT16": Leaf("FIXED_LEN_BYTE_ARRAY", halves, logical={15: {}}, length=2),
        "INTERVAL": Leaf("FIXED_LEN_BYTE_ARRAY", [one[:12] for one in sixteen], "INTERVAL", length=12),
        "DATE": Leaf("INT32", pack("i", 20500, 0, -1, -719162, 1, 2, 3, 4), "DATE"),
        **dict(list_whole()),
        **dict(list_decimals()),
        **dict(list_times()),
    }


def pack(code: str, *values: float) -> list[bytes]:
    return [struct.pack(f"<{code}", value) for value in values]


def list_whole() -> Iterator[tuple[str, Leaf]]:
    for bits in (8, 16, 32, 64):
        physical, signed, unsigned = ("INT64", "q", "Q") if bits == 64 else ("INT32", "i", "I")
        high = 1 << (bits - 1)
        more = (20260101, 2**24 + 1) if bits == 32 else (2**53 + 1, 5) if bits == 64 else (5, 6)
        yield f"INT_{bits}", Leaf(physical, pack(signed, high - 1, -high, -1, 0, 1, 99, *more), f"INT_{bits}")
        yield f"UINT_{bits}", Leaf(physical, pack(unsigned, 2 * high - 1, high, 0, 1, 2, 3, *more), f"UINT_{bits}")


def list_decimals() -> Iterator[tuple[str, Leaf]]:
    for physical, shapes in DECIMALS.items():
        for digits, scale, size in shapes:
            most = 10**digits - 1
            numbers = (most, -most, *(n % (most + 1) for n in (150, 1999, 0, 1, -1, 7)))
            made = [n.to_bytes(size, "big", signed=True) for n in numbers] if size else []
            if physical == "BYTE_ARRAY":
                made = [struct.pack("<I", size) + one for one in made]
            made = made or pack("i" if physical == "INT32" else "q", *numbers)
            length = size if physical == "FIXED_LEN_BYTE_ARRAY" else 0
            name = f"{physical}_{digits}_{scale}"
            yield name, Leaf(physical, made, "DECIMAL", precision=digits, scale=scale, length=length)


def list_times() -> Iterator[tuple[str, Leaf]]:
    for unit, number in UNITS.items():
        for utc in (True, False):
            name = f"{unit}_{'utc' if utc else 'local'}"
            logical = {1: utc, 2: {number: {}}}
            moments = pack("q", MOMENT[unit], 0, 1, -1, 1000, 2000, -1000, 4)
            yield f"timestamp_{name}", Leaf("INT64", moments, logical={8: logical})
            physical, code = ("INT32", "i") if unit == "ms" else ("INT64", "q")
            yield f"time_{name}", Leaf(physical, pack(code, 86399, 0, 1, 1000, 2, 3, 4, 5), logical={7: logical})
    for kind, unit in (("MILLIS", "ms"), ("MICROS", "us")):
        yield f"TIMESTAMP_{kind}", Leaf("INT64", pack("q", MOMENT[unit], 0, 1, -1, 2, 3, 4, 5), f"TIMESTAMP_{kind}")
        physical, code = ("INT32", "i") if unit == "ms" else ("INT64", "q")
        yield f"TIME_{kind}", Leaf(physical, pack(code, 86399999, 0, 1, 1000, 2, 3, 4, 5), f"TIME_{kind}")
