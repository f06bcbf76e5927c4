"""Compares the columns of a batch with the columns of its table; both are JSON.

Law: a batch may bring new columns, which the table gets before the commit. A batch that lacks a column of the table, or has
it in another type, is refused before anything is written. Nullability is not compared: every column may be null.

Law: the first batch that has a column sets its marks (`ADDED`, `BROUGHT`), and no later batch changes the marks.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rota.errors import BadTransform
from rota.record import OFFSET, PARTITION

PLAIN = re.compile(
    r"byte|short|integer|long|float|double|boolean|string|binary|date|timestamp|timestamp_ntz|decimal\(\d+,-?\d+\)"
)
# Marks of a column that came with a landed file: its name in the file, and the path of the file.
ADDED, BROUGHT = "rota.added", "rota.brought"
NEEDED = {PARTITION: "string", OFFSET: "long"}


def make_struct(types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of nullable columns with these names and types."""
    return {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()],
    }


FIRST = json.dumps(make_struct(NEEDED))


def check_columns(batch: str, table: str | None, *, whole: bool = True) -> None:
    """Raise BadTransform if a batch with this schema cannot be added to the table.

    Args:
        batch: the schema of the batch, JSON.
        table: the schema of the table, JSON; None if there is no table.
        whole: the batch must have every column of the table. Otherwise it may lack columns that other runs added meanwhile.
    """
    found, there = _types(batch), _types(table) if table else {}
    low = Counter(field["name"].lower() for field in json.loads(batch)["fields"])
    if twice := sorted(name for name, times in low.items() if times > 1):
        raise BadTransform(f"The transform's result has several columns {', '.join(twice)}. Drop or rename all but one")
    exact = {name.lower(): name for name in there}
    if other := next((name for name in found if exact.get(name.lower(), name) != name), ""):
        raise BadTransform(f"Column {other} is {exact[other.lower()]} in the table. Give it that name")
    for name, kind in {**NEEDED, **there}.items():
        if name not in found:
            if name not in NEEDED and not whole:
                continue
            raise BadTransform(f"The transform dropped the column {name}, which the table has. Keep it in the result")
        if found[name] != kind:
            raise BadTransform(
                f"Column {name} is {_shown(found[name])} and was {_shown(kind)} in the table. Cast it back, or "
                f"give it a new name"
            )


def find_added(table: str, batches: Iterable[str]) -> str:
    """Return the columns that these batches have and the table lacks, JSON; empty if there are none. Raises BadTransform
    for a column of another type."""
    there = set(_types(table))
    fields: dict[str, Any] = {}
    for batch in set(batches):
        check_columns(batch, table, whole=False)
        fields.update({f["name"]: f for f in _fields(batch, set(_types(batch)) - there - set(fields))})
    return json.dumps({"type": "struct", "fields": list(fields.values())}) if fields else ""


def list_added(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns that came with landed files, each with its marks, under its name in the file."""
    marked = [f for f in schema["fields"] if {ADDED, BROUGHT} <= f.get("metadata", {}).keys()]
    return [{**f, "name": f["metadata"][ADDED]} for f in marked]


def _fields(schema: str, names: set[str]) -> list[dict[str, Any]]:
    return [
        {"name": f["name"], "type": _nullable(f["type"]), "nullable": True, "metadata": _marks(f)}
        for f in json.loads(schema)["fields"]
        if f["name"] in names
    ]


def _marks(field: Mapping[str, Any]) -> dict[str, Any]:
    return {name: text for name, text in field.get("metadata", {}).items() if name in (ADDED, BROUGHT)}


def _types(schema: str) -> dict[str, Any]:
    return {f["name"]: _nullable(f["type"]) for f in json.loads(schema)["fields"]}


def _nullable(kind: Any) -> Any:
    """Return the type with all parts nullable and without metadata, so that types of the same data are equal."""
    if isinstance(kind, str):
        kind = kind.partition(" collate ")[0]  # the result of a Python function has a collation: the data is the same
        if PLAIN.fullmatch(kind):
            return kind
        raise BadTransform(f"A Delta table cannot hold a column of type {kind}. Cast or drop it")
    if kind["type"] == "struct":
        return make_struct({f["name"]: _nullable(f["type"]) for f in kind["fields"]})
    if kind["type"] == "array":
        return {"type": "array", "elementType": _nullable(kind["elementType"]), "containsNull": True}
    if kind["type"] == "map":
        types = {"keyType": _nullable(kind["keyType"]), "valueType": _nullable(kind["valueType"])}
        return {"type": "map", **types, "valueContainsNull": True}
    raise BadTransform(f"A Delta table cannot hold a column of type {kind['type']}. Cast or drop it")


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)
