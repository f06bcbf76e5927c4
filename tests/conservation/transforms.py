"""Transforms that plain Python can mirror: the text that the pipeline file holds, and what becomes of a row."""

import operator
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from tests.conservation.rules import Value
from tests.conservation.shape import WHOLE, Schema, Type, quote

Row = tuple[Value, ...]
KINDS = (
    "none",
    "select",
    "drop",
    "part",
    "rename",
    "filter",
    "nothing",
    "explode",
    "literal",
    "udf",
    "line break",
    "compared",
)
BESIDE = 3  # of these, the last ones, are drawn by themselves
COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": operator.eq, ">=": operator.ge, "<": operator.lt}
BOUNDS: dict[str, tuple[Value, ...]] = {  # what columns of a type are compared with
    "float": (0.0, -2.25, 1.5, "NaN"),
    "double": (0.0, 0.1, 1e300, "NaN"),
    "string": ("", "a", "m", "plain words", "x" * 70),
    "binary": (b"", b"a", b"abc"),
    "date": (0, 1, -719162, 2932896),
    "timestamp": (0, 1, -1, 1_767_261_600_000_000),
    "timestamp_ntz": (0, 1, -1, 1_767_261_600_000_000),
    "boolean": (True, False),
}


@dataclass(frozen=True, slots=True)
class Transform:
    """`text` is the body of `transform(df)`, empty where there is none; `names` are the result's columns and `rows` gives
    what a row becomes, `counted` whether that is always one."""

    kind: str = "none"
    text: str = ""
    names: tuple[str, ...] | None = None
    rows: Callable[[Row], list[Row]] = lambda row: [row]
    counted: bool = True


def draw_transform(draw: random.Random, schema: Schema) -> Transform:
    kind = "udf" if draw.random() < 0.03 else draw.choice(("none", "none", *KINDS))
    return make_transform(draw, schema, kind)


def make_transform(draw: random.Random, schema: Schema, kind: str) -> Transform:
    """One of this kind; none where the schema has no column for it."""
    names = tuple(c.name for c in schema)
    places = range(len(schema))
    whole = [i for i in places if schema[i].type.kind in WHOLE]
    structs = [i for i in places if schema[i].type.kind == "struct"]
    lists = [i for i in places if schema[i].type.kind == "array"]
    match kind:
        case "select" | "drop" if len(schema) > 1:
            kept = sorted(draw.sample(places, draw.randint(1, len(schema) - 1)))
            out = [i for i in places if i not in kept]
            body = (
                f"df.select('_partition', '_offset', *{[quote(names[i]) for i in kept]!r})"
                if kind == "select"
                else f"df.drop(*{[names[i] for i in out]!r})"
            )
            return Transform(kind, body, tuple(names[i] for i in kept), lambda row: [tuple(row[i] for i in kept)])
        case "part" if structs:
            at = draw.choice(structs)
            name = schema[at].type.parts[0][0]
            return Transform(
                kind,
                f"df.select('_partition', '_offset', F.col({quote(names[at])!r}).getField({name!r}).alias('part'))",
                ("part",),
                lambda row: [(None if row[at] is None else row[at][0],)],  # type: ignore[index]
            )
        case "rename":
            at = draw.choice(places)
            renamed = tuple("renamed" if i == at else n for i, n in enumerate(names))
            return Transform(kind, f"df.withColumnRenamed({names[at]!r}, 'renamed')", renamed)
        case "filter":
            at = draw.choice(whole) if whole and draw.random() < 0.7 else draw.choice(places)
            name = quote(names[at])
            if at in whole:
                return Transform(
                    kind,
                    f"df.where({f'{name} > 0'!r})",
                    names,
                    lambda row: [row] if row[at] is not None and row[at] > 0 else [],  # type: ignore[operator]
                    False,
                )
            return Transform(
                kind,
                f"df.where({f'{name} is not null'!r})",
                names,
                lambda row: [row] if row[at] is not None else [],
                False,
            )
        case "nothing":
            return Transform(kind, "df.where('1 = 0')", names, lambda _: [], False)
        case "explode" if lists:
            at = draw.choice(lists)
            return Transform(
                kind,
                f"df.withColumn('exploded', F.explode({quote(names[at])!r}))",
                (*names, "exploded"),
                lambda row: [(*row, one) for one in row[at] or ()],  # type: ignore[attr-defined]
                False,
            )
        case "explode":
            return Transform(
                kind,
                "df.withColumn('exploded', F.explode(F.array(F.lit(1), F.lit(2))))",
                (*names, "exploded"),
                lambda row: [(*row, 1), (*row, 2)],
                False,
            )
        case "literal":
            return Transform(
                kind,
                "df.withColumn('literal', F.lit('x'))",
                (*names, "literal"),
                lambda row: [(*row, "x")],
            )
        case "line break":
            at = draw.choice(places)
            return Transform(
                kind,
                f"df.withColumn('literal', F.lit('x\\n+- y')).where({f'{quote(names[at])} is not null'!r})",
                (*names, "literal"),
                lambda row: [] if row[at] is None else [(*row, "x\n+- y")],
                False,
            )
        case "compared":
            return _compare(draw, schema)
        case "udf" if whole:
            at = draw.choice(whole)
            return Transform(
                kind,
                f"df.withColumn('halved', F.udf(lambda v: None if v is None else v // 2, 'long')({quote(names[at])!r}))",
                (*names, "halved"),
                lambda row: [(*row, None if row[at] is None else row[at] // 2)],  # type: ignore[operator]
            )
    return Transform()


def _compare(draw: random.Random, schema: Schema) -> Transform:
    """A filter that Spark may push down to its reader, which then looks at statistics of Parquet, or parses no further."""
    at = draw.choice([i for i, c in enumerate(schema) if not c.type.parts] or [-1])
    names, sign = tuple(c.name for c in schema), draw.choice(tuple(COMPARE))
    if at < 0:
        return Transform()
    kind = schema[at].type
    bound = draw.choice(_list_bounds(kind))
    return Transform(
        "compared",
        f"df.where({f'{quote(names[at])} {sign} {_spell(kind, bound)}'!r})",
        names,
        lambda row: [row] if row[at] is not None and COMPARE[sign](_order(kind, row[at]), _order(kind, bound)) else [],
        False,
    )


def _list_bounds(kind: Type) -> tuple[Value, ...]:
    if kind.kind in WHOLE:
        high = 1 << WHOLE[kind.kind] - 1
        return (0, 1, -1, 7, high - 1, -high)
    if kind.kind == "decimal":
        digits = 10**kind.precision - 1
        return tuple(Decimal(n).scaleb(-kind.scale, Context(prec=60)) for n in (0, 1, -1, digits, -digits))
    return BOUNDS[kind.kind]


def _order(kind: Type, value: Value) -> Any:
    """By which Spark orders: NaN is above all numbers, and texts go by their bytes."""
    if kind.kind == "string":
        return value.encode()  # type: ignore[attr-defined]
    return (value == "NaN", 0.0 if value == "NaN" else value) if kind.kind in ("float", "double") else value


def _spell(kind: Type, value: Value) -> str:
    match kind.kind:
        case "date":
            return f"date_from_unix_date({value})"
        case "timestamp":
            return f"timestamp_micros({value})"
        case "timestamp_ntz":
            return f"CAST(timestamp_micros({value}) AS timestamp_ntz)"
        case "binary":
            return f"unhex('{value.hex()}')"  # type: ignore[attr-defined]
        case "boolean":
            return str(value).lower()
        case "string":
            return f"'{value}'"
    return f"CAST('{value}' AS {kind.ddl()})"


def source(transform: Transform) -> str:
    """The text of the pipeline file that defines it."""
    if not transform.text:
        return ""
    return f"def transform(df):\n    from pyspark.sql import functions as F\n    return {transform.text}\n"
