"""Which columns hold the values of an Avro schema, and how. The module is sent to Spark's workers as code: it needs pyarrow
and fastavro there, and nothing of rota.

Law: a logical type is the reader's. fastavro takes it from the writer's schema, so both are read without logical types, and
the plan of a column applies those of the reader. fastavro rounds a decimal with more digits than its precision; here such a
value is bad.

| Avro | column |
|---|---|
| boolean, string, enum, bytes, fixed | boolean, string, string, binary, binary |
| int | int, bigint, double |
| long, float, double | bigint; float, double; double |
| decimal(p, s) | a decimal with at least as many digits before and behind the point |
| date; timestamp-millis, -micros; local-timestamp-millis, -micros | date; timestamp; timestamp_ntz |
| time-millis; time-micros; another logical type, such as uuid | as int; as long; as the type below it |
| array, map, record | array, map with string keys, struct |
| union with null | as the other type, or null |
| union of several types | struct with member0, member1, ... for each in their order, without null, as in Spark |
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa

from rota.dataplane.formats.registered_columns import Mismatch

BASES = {
    "date": "int", "timestamp-millis": "long", "timestamp-micros": "long", "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
}  # fmt: skip
RAW = {  # logical type -> Arrow's type of its values
    "date": pa.date32(), "timestamp-millis": pa.timestamp("ms", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"), "local-timestamp-micros": pa.timestamp("us"),
}  # fmt: skip
HOLDS = {  # type -> the columns that hold its values
    "boolean": (pa.bool_(),), "int": (pa.int32(), pa.int64(), pa.float64()), "long": (pa.int64(),),
    "float": (pa.float32(), pa.float64()), "double": (pa.float64(),), "string": (pa.string(),), "enum": (pa.string(),),
    "bytes": (pa.binary(),), "fixed": (pa.binary(),),
}  # fmt: skip
DDL = {"long": "bigint", "enum": "string", "bytes": "binary", "fixed": "binary"}
PYTHON = {  # as which type fastavro returns a value
    "boolean": bool, "int": int, "long": int, "float": float, "double": float, "string": str, "enum": str,
    "bytes": bytes, "fixed": bytes, "array": list, "map": dict, "record": dict,
}  # fmt: skip
DIGITS = 76  # at least as many as a decimal column has
NAMED = ("record", "enum", "fixed")
Convert = Callable[[Any], Any]


def parse(text: Any, references: Iterable[Any] = ()) -> Any:
    """Return a schema with full names, in which each named type is in place of its name, except within itself.

    Args:
        text: the schema, as JSON has it.
        references: the schemas that it names, each behind those that it names itself.

    Raises: an error of fastavro, if it is no schema.
    """
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    for one in references:
        parse_schema(one, named, expand=True, _write_hint=False)
    return parse_schema(text, named, expand=True, _write_hint=False)


def name_type(schema: Any) -> str:
    """Return Avro's name of a type."""
    return "union" if isinstance(schema, list) else schema["type"] if isinstance(schema, dict) else str(schema)


def find_logical(schema: Any) -> str:
    """Return the logical type of a schema; empty if it has none that changes its column."""
    name, of = (schema.get("logicalType"), schema["type"]) if isinstance(schema, dict) else ("", schema)
    if name == "decimal" and of in ("bytes", "fixed") and isinstance(schema.get("precision"), int):
        return "decimal"
    return name if name and BASES.get(name) == of else ""


def write_ddl(schema: Any) -> str:
    """Return the type of the column that holds a schema's values, as Spark DDL."""
    of, logical = name_type(schema), find_logical(schema)
    if logical == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if logical:
        return logical.rpartition("-")[0].replace("local-timestamp", "timestamp_ntz") or logical
    if of == "array":
        return f"array<{write_ddl(schema['items'])}>"
    if of == "map":
        return f"map<string,{write_ddl(schema['values'])}>"
    if of == "union" and len(some := list_branches(schema)) == 1:
        return write_ddl(some[0])
    if of in ("record", "union"):
        pairs = ((f["name"], f["type"]) for f in schema["fields"]) if of == "record" else name_members(schema)
        return f"struct<{','.join(f'{name}:{write_ddl(one)}' for name, one in pairs)}>"
    return DDL.get(of, of)


def list_branches(union: Sequence[Any]) -> list[Any]:
    """Return the types of a union without null; an int beside a long, or a float beside a double, is one type."""
    some = [one for one in union if one != "null"]
    pairs = (["int", "long"], ["float", "double"])
    return next((pair[1:] for pair in pairs if sorted(some, key=str) == sorted(pair)), some)


def name_members(union: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the types of a union, each with the name of its field in a struct."""
    return [(f"member{n}", one) for n, one in enumerate(list_branches(union))]


def strip(schema: Any, numbers: "count[int]", above: Mapping[str, str] | None = None) -> Any:
    """Return a parsed schema without logical types. Each place of a named type has a name of its own; fastavro compares the
    last part of a name alone."""
    above = above or {}
    of = name_type(schema)
    if of == "union":
        return [strip(one, numbers, above) for one in schema]
    if not isinstance(schema, dict):
        return above.get(schema, schema)
    if inner := {"array": "items", "map": "values"}.get(of):
        return {"type": of, inner: strip(schema[inner], numbers, above)}
    if of not in NAMED:
        return of
    name = f"n{next(numbers)}.{shorten(schema['name'])}"
    kept = {key: schema[key] for key in ("type", "size", "symbols", "default") if key in schema}
    kept |= {"name": name, "aliases": [*map(shorten, schema.get("aliases", ()))]}
    above = {**above, schema["name"]: name}
    fields = [{**one, "type": strip(one["type"], numbers, above)} for one in schema.get("fields", ())]
    return {**kept, "fields": fields} if of == "record" else kept


def shorten(name: str) -> str:
    """Return the last part of a full name."""
    return name.rpartition(".")[2]


def to_bytes(held: Any) -> bytes:
    """Return bytes; the default of a field has them as a text with a character for each byte."""
    return held if type(held) is bytes else bytes(held, "iso-8859-1")


@dataclass(frozen=True, slots=True)
class Plan:
    """How the values of a schema become those of a column.

    Attributes:
        schema: what fastavro reads: without logical types and undeclared fields.
        raw: Arrow's type of the values that `convert` returns; it is cast to the column's.
        convert: None if fastavro's values are Arrow's.
    """

    schema: Any
    raw: pa.DataType
    convert: Convert | None = None


@dataclass
class Planner:
    """Makes plans. With `named` fastavro returns a value of a named type in a union as a pair of its name and the value,
    which the plan of a union of several types needs; then `chooses` becomes true."""

    named: bool = False
    chooses: bool = False
    numbers: "count[int]" = field(default_factory=count)

    def plan_record(self, kind: Iterable[pa.Field], schema: Any, at: str = "") -> Plan:
        """Return the plan for columns, or for the fields of a struct at the place `at`. Raises: Mismatch."""
        fields = {one["name"]: one for one in schema["fields"]}
        if lacking := [at + one.name for one in kind if one.name not in fields]:
            held = ", ".join(f"{name} {write_ddl(one['type'])}" for name, one in fields.items())
            raise Mismatch(f"{', '.join(lacking)} is not in it. It has: {held}")
        plans = {one.name: self.plan(one.type, fields[one.name]["type"], f"{at}{one.name}.") for one in kind}
        kept = [{**fields[name], "type": one.schema} for name, one in plans.items()]
        changed = [(name, one.convert) for name, one in plans.items() if one.convert]

        def convert(held: dict[str, Any]) -> dict[str, Any]:
            return held | {name: one(held[name]) for name, one in changed if held.get(name) is not None}

        pruned = strip({**schema, "fields": ()}, self.numbers) | {"fields": kept}
        raw = pa.struct([(name, one.raw) for name, one in plans.items()])
        return Plan(pruned, raw, self._unname("record", convert if changed else None))

    def plan(self, kind: pa.DataType, schema: Any, at: str) -> Plan:
        """Return the plan for a column of this type at the place `at`. Raises: Mismatch."""
        of, logical = name_type(schema), find_logical(schema)
        if of == "union":
            return self._plan_union(kind, schema, at)
        if of == "record" and pa.types.is_struct(kind):
            return self.plan_record(kind, schema, at)
        if of == "array" and pa.types.is_list(kind):
            inner = self.plan(kind.value_type, schema["items"], at)
            return Plan({"type": of, "items": inner.schema}, pa.list_(inner.raw), _convert_each(inner.convert))
        if of == "map" and pa.types.is_map(kind) and kind.key_type == pa.string():
            inner = self.plan(kind.item_type, schema["values"], at)
            raw = pa.map_(pa.string(), inner.raw)
            return Plan({"type": of, "values": inner.schema}, raw, _convert_values(inner.convert))
        if logical == "decimal" and pa.types.is_decimal128(kind):
            return self._plan_decimal(kind, schema, at)
        raw = RAW.get(logical) if logical else kind if kind in HOLDS.get(of, ()) else None
        if raw is not None and raw.id == kind.id and _has_zone(raw) == _has_zone(kind):
            convert = to_bytes if of in ("bytes", "fixed") else None
            return Plan(strip(schema, self.numbers), raw, self._unname(of, convert))
        raise _refuse(schema, at)

    def _plan_decimal(self, kind: pa.Decimal128Type, schema: Any, at: str) -> Plan:
        from fastavro.read import LOGICAL_READERS

        scale, read = schema.get("scale", 0), LOGICAL_READERS["bytes-decimal"]
        if kind.scale < scale or kind.precision - kind.scale < schema["precision"] - scale:
            raise _refuse(schema, at)
        wide = {"scale": scale, "precision": DIGITS}
        convert = self._unname(schema["type"], lambda held: read(to_bytes(held), wide, None))
        return Plan(strip(schema, self.numbers), pa.decimal128(kind.precision, scale), convert)

    def _plan_union(self, kind: pa.DataType, schema: Any, at: str) -> Plan:
        members, shown = name_members(schema), at.rstrip(".")
        if len(members) == 1:
            inner = self.plan(kind, members[0][1], at)
            read = [inner.schema if one == members[0][1] else strip(one, self.numbers) for one in schema]
            return Plan(read, inner.raw, inner.convert)
        if not members or not pa.types.is_struct(kind) or [one.name for one in kind] != [name for name, _ in members]:
            raise _refuse(schema, at)
        self.chooses = True
        plans = {name: self.plan(kind.field(name).type, one, f"{at}{name}.") for name, one in members}
        kinds = {name: (PYTHON[name_type(one)], _find_name(one)) for name, one in members}
        if len(set(kinds.values())) < len(kinds):
            raise Mismatch(f"{shown} is a union whose values do not show which type they have")

        def convert(held: Any) -> dict[str, Any]:
            named, value = (shorten(held[0]), held[1]) if type(held) is tuple else (None, held)
            fits = [name for name, of in kinds.items() if of == (type(value), named)]
            fits = fits or [name for name, (of, _) in kinds.items() if named is None and of is type(value)]
            if len(fits) != 1:
                raise ValueError(f"{shown}: it is not known which type of the union a value has")
            one = plans[fits[0]].convert
            return {fits[0]: one(held) if one else value}

        branches = iter(plans.values())
        read = ["null" if one == "null" else next(branches).schema for one in schema]
        return Plan(read, pa.struct([(name, one.raw) for name, one in plans.items()]), convert)

    def _unname(self, of: str, convert: Convert | None) -> Convert | None:
        """Return `convert` for values that may be pairs of a name and a value."""
        if not self.named or of not in NAMED:
            return convert

        def unname(held: Any) -> Any:
            value = held[1] if type(held) is tuple else held
            return convert(value) if convert else value

        return unname


def _convert_each(convert: Convert | None) -> Convert | None:
    return convert and (lambda held: [None if one is None else convert(one) for one in held])


def _convert_values(convert: Convert | None) -> Convert | None:
    return convert and (lambda held: {key: None if one is None else convert(one) for key, one in held.items()})


def _has_zone(kind: pa.DataType) -> bool:
    return bool(getattr(kind, "tz", None))


def _find_name(schema: Any) -> str | None:
    return shorten(schema["name"]) if isinstance(schema, dict) and "name" in schema else None


def _refuse(schema: Any, at: str) -> Mismatch:
    return Mismatch(f"{at.rstrip('.')} is of another type in it. Declare {write_ddl(schema)}")
