"""Restores JSON values that Spark's `from_json` changes, to the values that Spark's file reader returns.

Laws:
1. A text column holds a number, an object or a list as it is written: `1.10`, `{"a" : 1}`. Spark's file reader copies
   the bytes; `from_json` parses the number and formats it again (1.1). So a record with such a value is parsed once more
   with quotes around the value. Within lists, maps and structs a regular expression cuts the value's text out of the
   record. If a regular expression does not match (values deeper than `DEEPEST`), the value of `from_json` stays.
2. If a map has a name twice, the last value wins. Spark keeps both, and other readers refuse such a table.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from rota.record import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

DEEPEST = 8  # levels of values within a value that is cut out
STRING = r'"(?:[^"\\]++|\\[\s\S])*+"'
PLAIN = r"[^\s,\{\}\[\]\"]++"  # a number or a word
CHANGED = r'\A(?:-?\d+\.\d+(?:E-?\d+)?|-?\d+E-?\d+|0|["{\[][\s\S]*)\z'  # a value that from_json may have changed


def _nest(depth: int) -> str:
    deeper = rf"|{_nest(depth - 1)}" if depth else ""
    return rf"[\{{\[](?:[^\"\{{\}}\[\]]++|{STRING}{deeper})*+[\}}\]]"


VALUE = rf"(?:{STRING}|{_nest(DEEPEST)}|{PLAIN})"
ITEM = rf"\G\s*+[\[,]\s*+({VALUE})\s*+"
ENTRY = rf"\G\s*+[{{,]\s*+{STRING}\s*+:\s*+({VALUE})\s*+"
FIELD = (
    rf"\G\s*+(?:\[\s*+)?[{{,]\s*+({STRING})\s*+:\s*+({VALUE})\s*+"  # from_json reads a list of one object as the object
)
LAST = r"\A\}\s*+(?:\]\s*+)?,?\s*+\z"  # what follows the last field
ESCAPED = (("\\", r"\\"), ('"', r"\""), ("\n", r"\n"), ("\r", r"\r"), ("\t", r"\t"))
AGAIN = "again"


def has_texts(kind: "DataType") -> bool:
    """Return whether a type contains text within other values."""
    return kind.typeName() != "string" and _holds(kind, "string")


def restore_texts(
    frame: "DataFrame", others: Sequence[str], kind: "StructType", parse: "Callable[[Column], Column]"
) -> "DataFrame":
    """Return the frame with the text fields of its column `record` as they are written in its column `written`.

    The plan has one expression for all fields: one for each field would exhaust Spark's memory at 3,000 fields.

    Args:
        others: the other columns of the frame.
        kind: the type of the record.
        parse: returns the record of a text.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = [f.name for f in kind.fields if f.dataType.typeName() == "string" and f.name != CORRUPT]
    if not names:
        return frame
    record = F.col("record")
    texts = F.array(*(record[name] for name in names))
    changed = F.exists(texts, lambda one: F.coalesce(one.rlike(CHANGED), F.lit(False)))
    again = F.when(record[CORRUPT].isNull() & changed, parse(_quote_values(F.col("written"), names)))
    sound = F.col(AGAIN).isNotNull() & F.col(AGAIN)[CORRUPT].isNull()
    chosen = F.when(sound, F.col(AGAIN)).otherwise(record).alias("record")
    return frame.withColumn(AGAIN, again).select(chosen, *others)


def _quote_values(text: "Column", names: Sequence[str]) -> "Column":
    """Return the text of an object with numbers, objects and lists in these fields as strings; null if in doubt."""
    from pyspark.sql import functions as F  # noqa: N812

    def unescape(key: "Column") -> "Column":
        plain = F.substring(key, F.lit(2), F.length(key) - 2)
        coded = F.from_json(F.concat(F.lit("["), key, F.lit("]")), "array<string>")[0]
        return F.when(F.contains(key, F.lit("\\")), coded).otherwise(plain)

    def quote(key: "Column", value: "Column") -> "Column":
        within = reduce(lambda one, pair: F.replace(one, F.lit(pair[0]), F.lit(pair[1])), ESCAPED, value)
        quoted = F.concat(F.lit('"'), within, F.lit('"'))
        put = F.when(value.rlike(r"\A[-0-9\[{]") & unescape(key).isin(names), quoted).otherwise(value)
        return F.concat(key, F.lit(":"), put)

    keys, values = (F.regexp_extract_all(text, F.lit(FIELD), F.lit(n)) for n in (1, 2))
    whole = F.concat(F.lit("{"), F.concat_ws(",", F.zip_with(keys, values, quote)), F.lit("}"))
    return F.when(F.regexp_replace(text, FIELD, "").rlike(LAST), whole)


def restore(value: "Column", record: "Column", name: str, kind: "DataType") -> "Column":
    """Return a column that `from_json` parsed from the text `record`, with texts within its values as they are written."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(_is_changed(value, kind), _restore(value, _cut(record, name), kind)).otherwise(value)


def merge_names(value: "Column", kind: "DataType") -> "Column":
    """Return the value with each name of a map once: the last value wins."""
    from pyspark.sql import functions as F  # noqa: N812

    if not _holds(kind, "map"):
        return value
    match kind.typeName():
        case "struct":
            return _rebuild(value, ((one.name, merge_names(value[one.name], one.dataType)) for one in kind.fields))
        case "array":
            return F.transform(value, lambda one: merge_names(one, kind.elementType))
    keys, values = F.map_keys(value), F.map_values(value)
    single = F.array_distinct(keys)

    def last(key: "Column") -> "Column":
        return F.element_at(values, F.size(keys) + 1 - F.array_position(F.reverse(keys), key).cast("int"))

    merged = F.map_from_arrays(single, F.transform(single, last))
    merged = F.when(F.size(single) < F.size(keys), merged).otherwise(value)
    return (
        F.transform_values(merged, lambda _, one: merge_names(one, kind.valueType))
        if _holds(kind.valueType, "map")
        else merged
    )


def has_maps(kind: "DataType") -> bool:
    """Return whether a type contains a map."""
    return _holds(kind, "map")


def _restore(value: "Column", text: "Column", kind: "DataType") -> "Column":
    """Return the value of this type, with `text` as its written form."""
    from pyspark.sql import functions as F  # noqa: N812

    if not _holds(kind, "string"):
        return value
    name = kind.typeName()
    if name == "struct":
        cut = ((f.name, _restore(value[f.name], _cut(text, f.name), f.dataType)) for f in kind.fields)
        return _rebuild(value, cut)
    if name == "string":
        put, found = text, ~text.startswith('"') & (text != "")
    else:
        of_list = name == "array"
        held, inner = (value, kind.elementType) if of_list else (F.map_values(value), kind.valueType)
        items = F.regexp_extract_all(text, F.lit(ITEM if of_list else ENTRY), F.lit(1))
        put = F.zip_with(held, items, lambda one, item: _restore(one, item, inner))
        put = put if of_list else F.map_from_arrays(F.map_keys(value), put)
        found = F.size(items) == F.size(held)
    return F.when(_is_changed(value, kind) & found, put).otherwise(value)


def _is_changed(value: "Column", kind: "DataType") -> "Column":
    """Return whether a text in the value may come from another type."""
    from pyspark.sql import functions as F  # noqa: N812

    name = kind.typeName()
    if not _holds(kind, "string"):
        return F.lit(False)
    if name == "struct":
        return reduce(or_, (_is_changed(value[f.name], f.dataType) for f in kind.fields))
    if name == "string":
        return F.coalesce(value.rlike(CHANGED), F.lit(False))
    of_list = name == "array"
    held, inner = (value, kind.elementType) if of_list else (F.map_values(value), kind.valueType)
    return F.coalesce(F.exists(held, lambda one: _is_changed(one, inner)), F.lit(False))


def _cut(text: "Column", name: str) -> "Column":
    """Return the written form of the last value of this name in an object; empty if it is not found."""
    from pyspark.sql import functions as F  # noqa: N812

    mark = f'"{"".join(map(_match, name))}"'
    other = rf"(?!{mark}\s*+:){STRING}\s*+:\s*+{VALUE}"
    begin = r"\G\s*+(?:\[\s*+)?[{,]\s*+"  # see `FIELD`
    found = F.regexp_extract_all(text, F.lit(rf"{begin}(?:{other}|{mark}\s*+:\s*+({VALUE}))\s*+"), F.lit(1))
    return F.coalesce(F.try_element_at(F.filter(found, lambda one: one != ""), F.lit(-1)), F.lit(""))


def _match(character: str) -> str:
    """Return a regular expression for a character of a name in JSON, plain or as an escape of its UTF-16 units."""
    as_it_is = "".join(rf"\x{{{ord(one):x}}}" for one in json.dumps(character, ensure_ascii=False)[1:-1])
    escaped = re.sub("(.{4})", r"\\\\u(?i:\1)", character.encode("utf-16-be", "surrogatepass").hex())
    return f"(?:{as_it_is}|{escaped})"


def _rebuild(value: "Column", fields: "Iterable[tuple[str, Column]]") -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(value.isNotNull(), F.struct(*(one.alias(name) for name, one in fields)))


def _holds(kind: "DataType", wanted: str) -> bool:
    """Return whether a type is of this kind or contains one that is."""
    name = kind.typeName()
    if name == "struct":
        return any(_holds(one.dataType, wanted) for one in kind.fields)
    inner = {"array": ("elementType",), "map": ("keyType", "valueType")}.get(name, ())
    return name == wanted or any(_holds(getattr(kind, one), wanted) for one in inner)
