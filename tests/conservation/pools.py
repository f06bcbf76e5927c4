"""Values to draw from: for each type texts that fit it and texts that may not. The oracle decides which do."""

import base64
import json
import random
from decimal import Context, Decimal

from tests.conservation.rules import Value
from tests.conservation.shape import WHOLE, Type

STRINGS = (
    "", "a",
    "plain words", "NULL", "null", "NaN", "0", "true", "ü", "日本語", "😀", "it's", "a,b", "a;b", "a|b",
    "tab\there",
    " led", "trailed ", "a'b", "{}", "[1]", "a/b\\c", "x" * 200, "2026-01-01", "\u2028", "\u00a0", "\u0085", "ß",
)  # fmt: skip
DATES = (
    "2026-01-01", "1970-01-01", "0001-01-01", "9999-12-31", "0000-01-01", "0000-12-31", "10000-01-01", "1582-10-10",
    "1582-10-15",
    "2024-02-29", "1900-02-28", "-0001-12-31",
    "2026-1-5", "2026", "2026-03", "99999-12-31", "2026-01-01T10:00:00", " 2026-01-02 ",
)  # fmt: skip
NO_DATES = (
    "x",
    "2026-02-30",
    "2026-13-01",
    "1900-02-29",
    "2026/01/01",
    "5881580-07-12",
    "2026-01-01x",
    "123",
    "01.02.2026",
    "",
    "epoch",
)
MOMENTS = (
    "2026-01-01T10:00:00", "2026-01-01 10:00:00.123456", "1970-01-01T00:00:00", "0001-01-01T00:00:00",
    "0000-12-31T00:00:00",
    "9999-12-31T23:59:59.999999", "10000-01-01T00:00:00", "1582-10-10 12:00:00", "2026-01-01", "2026-01-01T10:00",
    "2026-01-01T1:2:3",
    "2026-01-01T10:00:00.1234567", "294247-01-10T04:00:54.775807", "1900-01-01T00:00:00.5", "2024-02-29T23:59:59",
)  # fmt: skip
ZONED = (
    "2026-01-01T10:00:00Z",
    "2026-01-01T10:00:00+02:00",
    "2026-01-01 10:00:00-0530",
    "0001-01-01T00:00:00+18:00",
    "2026-01-01T10:00:00.5 UTC",
)
NO_MOMENTS = (
    "x", "2026-02-30T00:00:00", "2026-01-01T24:00:00", "2026-01-01T10:60:00", "294247-01-10T04:00:54.775808",
    "300000-01-01T00:00:00",
    "2026-01-01t10:00:00", "2026-01-01T", "10:00:00", "2026-01-01T10:00:00+19:00", "",
    "2026-01-01T10:00:00 Europe/Berlin",
)  # fmt: skip
REALS = (
    "0",
    "1.5",
    "-2.25",
    "1e10",
    "0.1",
    "-0.0",
    "1e-400",
    "3.4e38",
    "1e39",
    "1e400",
    "16777217",
    "12345.678",
    "1E5",
)
NO_NUMBERS = ("many", "1,5", "0x10", "--1", "1_000", "1e", "", "true", "ten", "1 2", "null", "{}")


def texts(kind: Type, draw: random.Random) -> list[str]:
    """Texts of values of a flat type, as CSV carries them."""
    if kind.kind in WHOLE:
        high = (1 << WHOLE[kind.kind] - 1) - 1
        return [str(v) for v in (0, 1, -1, 7, high, -high - 1, *(draw.randint(-high, high) for _ in range(20)))]
    match kind.kind:
        case "float" | "double":
            return [*REALS, *(f"{draw.uniform(-1000, 1000):.3f}" for _ in range(15)), "NaN", "-Infinity"]
        case "decimal":
            return [str(v) for v in _decimals(kind, draw)]
        case "boolean":
            return ["true", "false"]
        case "string" | "binary":
            return [*STRINGS, *(draw.randbytes(draw.randint(1, 12)).hex() for _ in range(20))]
        case "date":
            return [
                *DATES,
                *(f"{draw.randint(1, 9999):04}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}" for _ in range(15)),
            ]
    zones = ZONED if kind.kind == "timestamp" else ()
    return [
        *MOMENTS,
        *zones,
        *(f"{draw.randint(1, 9999):04}-06-0{draw.randint(1, 9)}T0{draw.randint(0, 9)}:30:15.25" for _ in range(15)),
    ]


def odd_texts(kind: Type, draw: random.Random) -> list[str]:
    """Texts that are mostly no value of the type."""
    if kind.kind in WHOLE:
        high = 1 << WHOLE[kind.kind] - 1
        return [*NO_NUMBERS, str(high), str(-high - 1), "1.0", "1e2", "+5", "007", " 1", "1 ", "9" * 30, "١", "NaN"]
    match kind.kind:
        case "float" | "double":
            return [*NO_NUMBERS, "nan", "Inf", "-Inf", "Infinity", "1d", "1f", " 1.5 ", ".5", "5.", "+1", "inf"]
        case "decimal":
            full = "9" * (kind.precision - kind.scale)
            return [
                *NO_NUMBERS,
                f"{full}9",
                f"{full or '0'}.{'9' * (kind.scale + 1)}",
                " 1",
                "1e2",
                "+0",
                "NaN",
                "0.0000000001",
            ]
        case "boolean":
            return ["TRUE", "False", "1", "0", "yes", "t", "x", ""]
        case "date":
            return list(NO_DATES)
        case "timestamp" | "timestamp_ntz":
            return [*NO_MOMENTS, *ZONED, "1", "-5", "1.5"]
    return ['"', 'a"b', '""x', "\\", "NUL\0NUL", "\ufffd", "#"]


def _decimals(kind: Type, draw: random.Random) -> list[Decimal]:
    digits = 10**kind.precision - 1
    whole = [0, 1, -1, digits, -digits, *(draw.randint(-digits, digits) for _ in range(15))]
    return [Decimal(v).scaleb(-kind.scale, Context(prec=60)) for v in whole]


def literal(kind: Type, draw: random.Random) -> str:
    """One value as JSON writes it, or null."""
    if draw.random() < 0.04:
        return "null"
    match kind.kind:
        case "struct":
            fields = [f"{json.dumps(n)}: {literal(t, draw)}" for n, t in kind.parts if draw.random() < 0.9]
            return "{" + ", ".join(fields) + "}"
        case "array":
            return "[" + ",".join(literal(kind.parts[0][1], draw) for _ in range(draw.choice((0, 1, 2, 3)))) + "]"
        case "map":
            names = draw.sample(("k", "", "ü", "a b", "1", "long key"), draw.choice((0, 1, 2, 3)))
            return "{" + ", ".join(f"{json.dumps(n)}: {literal(kind.parts[0][1], draw)}" for n in names) + "}"
        case "binary":
            return json.dumps(base64.b64encode(draw.randbytes(draw.choice((0, 1, 2, 3, 20)))).decode())
    text = draw.choice(texts(kind, draw))
    if kind.kind in WHOLE or kind.kind in ("float", "double", "boolean"):
        return text
    if kind.kind == "decimal":
        return text if draw.random() < 0.7 else json.dumps(text)
    return json.dumps(text, ensure_ascii=draw.random() < 0.5)


def odd_literal(kind: Type, draw: random.Random) -> str:
    """A JSON value that is mostly none of the type; of a nested type, in one of its parts now and then."""
    if kind.parts and draw.random() < 0.6:
        name, part = draw.choice(kind.parts)
        odd = odd_literal(part, draw)
        return f"[{odd}]" if kind.kind == "array" else f"{{{json.dumps(name or 'k')}: {odd}}}"
    if kind.kind in ("string", "binary"):
        return draw.choice(
            (
                '{"a": 1,  "b": [1.0, "ü"]}',
                "[1, 2]",
                "1.50",
                "true",
                '"\\u0000"',
                '"\\ud83d"',
                "1e2",
                '"YW!"',
                '"YQ="',
                "-0",
            )
        )
    flat = odd_texts(kind, draw) if not kind.parts else list(NO_NUMBERS)
    if draw.random() < 0.5:
        return json.dumps(draw.choice(flat))
    return draw.choice(
        (
            "1.0",
            "1e2",
            "true",
            "false",
            "{}",
            "[]",
            '[1, "x"]',
            '"x"',
            '""',
            "1e400",
            "200",
            "-5",
            "9" * 25,
            '"1"',
            "1.5",
        )
    )


KEYS: dict[str, tuple[Value, ...]] = {
    "string": ("k", "", "ü"),
    "long": (0, -1, 2**63 - 1),
    "date": (0, -719162, 20_000),
    "boolean": (True, False),
    "timestamp": (0, 1, 1_700_000_000_123_456),
    "binary": (b"", b"a", b"\xff"),
    "double": (0.5, 1e300, -2.25),
}


def arrow(kind: Type, draw: random.Random) -> Value:
    """One value as Parquet holds it, canonical but for maps and structs, which Arrow wants as pairs and as a dict."""
    if draw.random() < 0.05:
        return None
    if kind.kind in WHOLE:
        high = (1 << WHOLE[kind.kind] - 1) - 1
        return draw.choice((0, 1, -1, high, -high - 1, draw.randint(-high, high)))
    match kind.kind:
        case "struct":
            return {n: arrow(t, draw) for n, t in kind.parts}
        case "array":
            return [arrow(kind.parts[0][1], draw) for _ in range(draw.choice((0, 1, 3)))]
        case "map":
            return [(n, arrow(kind.parts[0][1], draw)) for n in draw.sample(KEYS[kind.key], draw.choice((0, 1, 2)))]
        case "float":
            return draw.choice((0.0, 1.5, -2.25, float("inf"), float("nan")))
        case "double":
            return draw.choice((0.0, 0.1, 1e300, float("-inf"), float("nan"), draw.random()))
        case "decimal":
            return draw.choice(_decimals(kind, draw))
        case "boolean":
            return draw.random() < 0.5
        case "string":
            return draw.choice(STRINGS)
        case "binary":
            return draw.choice((b"", b"\xff\x00", b"abc", draw.randbytes(9)))
        case "date":
            return draw.choice((0, 1, -719162, 2932896, -719528, 2932897, -141427, draw.randint(-700000, 2900000)))
    return draw.choice(
        (0, 1, -1, -62135596800000000, 253402300799999999, -62167219200000000, draw.randint(-(10**15), 10**16))
    )
