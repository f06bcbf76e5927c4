"""Finds JSON texts with more than one value: Spark's parser reads the first value and drops the rest.

Law: `holds_one` is true of a text that is one value, and of no text in which more than a comma follows the first value.
A scan (`FLAT`, `NESTED`) proves this for most texts. Spark's own parser parses the others twice more, under the options
of the source: within a list and within an object. A text that ends the list early does not end the object.
"""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rota.dataplane.formats.quoting import Dialect
from rota.record import CORRUPT, FieldPath

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FLAT = r"\A[^}\]]*+[}\]]\s*+\z"  # an object or a list ends only at the last character
STRING = r'"(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+"'
TEXTS = "array<string>"  # a list of any values, as text
KEYED = f"v string, {CORRUPT} string"
LIST = r"\A\s*+\["
DIGITS = 1000  # the most that Spark's parser accepts in a number
MAX_NAMED_FIELDS = 5  # fields that a reason names
ILL = "a quote does not close, or something follows it within its field: see the options quote and escape"
BOM = "\ufeff"  # Spark's reader skips it at the start of a line


def explain_bad(
    format: str, raw: str, nulls: Sequence[FieldPath], options: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return why a raw record is bad, as far as it can be known.

    Args:
        nulls: the paths of the fields that Spark set to null. The reason names those that do not parse as JSON; of CSV
            it also names empty ones.
    """
    if why := explain_bytes(raw):
        return why
    if format == "csv":
        if Dialect.of(options).find_ill(raw) >= 0:
            return ILL
        typed = f", or one is not of its declared type: {_name(nulls)}" if nulls else ""
        return f"the number of fields is wrong{typed}"
    value, why = _read(raw)
    if why:
        return why
    failed = [path for path in nulls if _find(value, path) is not None]
    return f"not of the declared type: {_name(failed)}" if failed else "a field is not of its declared type"


def _name(paths: Sequence[FieldPath]) -> str:
    more = f" and {len(paths) - MAX_NAMED_FIELDS} more" if len(paths) > MAX_NAMED_FIELDS else ""
    return ", ".join(".".join(path) for path in paths[:MAX_NAMED_FIELDS]) + more


def _find(value: Any, path: FieldPath) -> Any:
    """Return the value at that path of a JSON value; None if there is no such path."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def explain_bytes(raw: str) -> str:
    """Return why a raw record with undecodable bytes (surrogates) is no text; empty if it is text."""
    try:
        raw.encode()
    except UnicodeEncodeError as error:
        byte = ord(raw[error.start]) & 0xFF
        return f"not in the declared encoding (by default UTF-8): byte 0x{byte:02x} behind {error.start} characters"
    return ""


def explain_text(text: str) -> str:
    """Return why the text is no JSON, or exceeds a limit of Spark's parser; empty if neither."""
    return _read(text)[1]


def _read(text: str) -> tuple[Any, str]:
    """Return the JSON value, with numbers as text, and the result of `explain_text`. It never raises, also for deeply nested
    values and for numbers that are too long for Python.
    """
    longest = 0

    def take(number: str) -> str:
        nonlocal longest
        longest = max(longest, len(number))
        return number

    try:
        found = json.loads(text, parse_int=take, parse_float=take)
    except ValueError as error:
        return None, f"no JSON: {error}"
    except RecursionError:
        return None, "no JSON: nested too deep"
    return found, f"a number has more than {DIGITS:,} digits, and Spark reads no such" if longest > DIGITS else ""


def show(raw: bytes) -> str:
    """Return a text as an error quotes it."""
    return raw.decode(errors="replace").replace("\0", "\\0")


def find_joined(lines: "DataFrame", schema: str, options: Mapping[str, str]) -> "DataFrame":
    """Return the `lines` (column `value`) that begin with a good record and contain more. `schema` is the record's DDL."""
    from pyspark.sql import functions as F  # noqa: N812

    def good(text: "Column") -> "Column":
        return F.from_json(text, f"{schema}, {CORRUPT} string", dict(options))[CORRUPT].isNull()

    text = skip_mark(lines["value"])
    of_list = F.forall(F.from_json(text, TEXTS, dict(options)), good)
    first = F.when(text.rlike(LIST), of_list).otherwise(good(text))
    return lines.where(text.rlike(r"\S") & ~holds_one(text, options) & first)


def skip_mark(text: "Column") -> "Column":
    """Return the text without a leading byte order mark, as Spark's reader does."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(text.startswith(BOM), F.substr(text, F.lit(2))).otherwise(text)


def holds_one(text: "Column", options: Mapping[str, str]) -> "Column":
    """Return whether only a comma may follow the first value of a text."""
    from pyspark.sql import functions as F  # noqa: N812

    body, given = F.regexp_replace(text, r",\s*\z", ""), dict(options)
    listed = F.from_json(enclose("[", body, "]", given), TEXTS, given)
    keyed = F.from_json(enclose('{"v":', body, "}", given), KEYED, given)
    parsed = F.size(listed).eqNullSafe(F.lit(1)) & keyed[CORRUPT].isNull()
    return F.when(text.rlike(FLAT) | text.rlike(NESTED), F.lit(True)).otherwise(parsed)


def enclose(start: str, text: "Column", end: str, options: Mapping[str, str]) -> "Column":
    """Return the text between `start` and `end`. If the options allow comments, a line break before `end` ends a comment.
    Without comments there is none: no parser reads EXPLAIN of a plan with a line break.
    """
    from pyspark.sql import functions as F  # noqa: N812

    comments = any(name.lower() == "allowcomments" and said.lower() == "true" for name, said in options.items())
    return F.concat(F.lit(start), text, F.lit("\n" * comments + end))


def _nest(depth: int) -> str:
    """Return the pattern of an object or list with nesting down to this depth."""
    deeper = rf"|{_nest(depth - 1)}" if depth else ""
    return rf"[\{{\[](?:[ \t,:0-9A-Za-z+.\-]++|{STRING}{deeper})*+[\}}\]]"


NESTED = rf"\A\s*+{_nest(8)}\s*+\z"  # one object or list, unless a parser refuses it
