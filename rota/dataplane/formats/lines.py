"""Texts of JSON that hold something behind their first value: Spark's parser reads the first value, and drops the rest.

Law: `holds_one` is true of a text that is one value, and of no text in which more than a comma follows the first value. Most
texts show by a scan that they are one value (`FLAT`, `NESTED`). The others are parsed twice more, by Spark's own parser
under the options of the source: within a list and within an object. What ends the one early does not end the other.
"""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rota.dataplane.formats.quoting import Dialect
from rota.record import CORRUPT, FieldPath

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FLAT = r"\A[^}\]]*+[}\]]\s*+\z"  # the only end of a value is the last character
STRING = r'"(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+"'
TEXTS = "array<string>"  # of any values, without a look into them
KEYED = f"v string, {CORRUPT} string"
LIST = r"\A\s*+\["
DIGITS = 1000  # that Spark's parser takes of a number
NAMED = 5  # fields that a reason names
ILL = "a quote does not close, or something follows it within its field: see the options quote and escape"
BOM = "\ufeff"  # at the start of a line Spark's reader passes over it


def explain_bad(
    format: str, raw: str, nulls: Sequence[FieldPath], options: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Why a raw record is bad, as far as it shows, and `nulls`: the paths of the fields that Spark made null of it. Of JSON
    that names the fields that do not parse; of CSV those that are empty are among them."""
    if why := explain_bytes(raw):
        return why
    if format == "csv":
        if Dialect.of(options).find_ill(raw) >= 0:
            return ILL
        typed = f", or one is not of its declared type: {_name(nulls)}" if nulls else ""
        return f"the number of fields is wrong{typed}"
    said, why = _read(raw)
    if why:
        return why
    failed = [path for path in nulls if _find(said, path) is not None]
    return f"not of the declared type: {_name(failed)}" if failed else "a field is not of its declared type"


def _name(paths: Sequence[FieldPath]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(".".join(path) for path in paths[:NAMED]) + more


def _find(value: Any, path: FieldPath) -> Any:
    """What stands there in a value of JSON; None also where it has no such place."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def explain_bytes(raw: str) -> str:
    """Why a raw record, whose bytes that are not UTF-8 are surrogates, is no text; empty if it is."""
    try:
        raw.encode()
    except UnicodeEncodeError as error:
        byte = ord(raw[error.start]) & 0xFF
        return f"not in the declared encoding (by default UTF-8): byte 0x{byte:02x} behind {error.start} characters"
    return ""


def explain_text(text: str) -> str:
    """Why the text is no JSON, or is beyond a limit of Spark's parser; empty if neither."""
    return _read(text)[1]


def _read(text: str) -> tuple[Any, str]:
    """The value of JSON, its numbers as text, and what `explain_text` says of it. Nothing is raised: who wrote it nests as
    deep as he likes, and of a number, which Python reads up to some thousands of digits, the digits are taken."""
    longest = 0

    def take(number: str) -> str:
        nonlocal longest
        longest = max(longest, len(number))
        return number

    try:
        said = json.loads(text, parse_int=take, parse_float=take)
    except ValueError as error:
        return None, f"no JSON: {error}"
    except RecursionError:
        return None, "no JSON: nested too deep"
    return said, f"a number has more than {DIGITS:,} digits, and Spark reads no such" if longest > DIGITS else ""


def show(raw: bytes) -> str:
    """A text as an error shows it."""
    return raw.decode(errors="replace").replace("\0", "\\0")


def find_joined(lines: "DataFrame", schema: str, options: Mapping[str, str]) -> "DataFrame":
    """Those of `lines` (its column `value`) that begin with a good record, and hold more; `schema` is the record's DDL."""
    from pyspark.sql import functions as F  # noqa: N812

    def good(text: "Column") -> "Column":
        return F.from_json(text, f"{schema}, {CORRUPT} string", dict(options))[CORRUPT].isNull()

    text = skip_mark(lines["value"])
    of_list = F.forall(F.from_json(text, TEXTS, dict(options)), good)
    first = F.when(text.rlike(LIST), of_list).otherwise(good(text))
    return lines.where(text.rlike(r"\S") & ~holds_one(text, options) & first)


def skip_mark(text: "Column") -> "Column":
    """The text without a byte order mark at its start, as Spark's reader takes it."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(text.startswith(BOM), F.substr(text, F.lit(2))).otherwise(text)


def holds_one(text: "Column", options: Mapping[str, str]) -> "Column":
    """Whether nothing but a comma follows the first value of a text."""
    from pyspark.sql import functions as F  # noqa: N812

    body, given = F.regexp_replace(text, r",\s*\z", ""), dict(options)
    listed = F.from_json(enclose("[", body, "]", given), TEXTS, given)
    keyed = F.from_json(enclose('{"v":', body, "}", given), KEYED, given)
    parsed = F.size(listed).eqNullSafe(F.lit(1)) & keyed[CORRUPT].isNull()
    return F.when(text.rlike(FLAT) | text.rlike(NESTED), F.lit(True)).otherwise(parsed)


def enclose(start: str, text: "Column", end: str, options: Mapping[str, str]) -> "Column":
    """The text within others, behind the end of a comment if it may end in one: a plan with a line break is not read."""
    from pyspark.sql import functions as F  # noqa: N812

    comments = any(name.lower() == "allowcomments" and said.lower() == "true" for name, said in options.items())
    return F.concat(F.lit(start), text, F.lit("\n" * comments + end))


def _nest(depth: int) -> str:
    """An object or a list that holds others down to this depth."""
    deeper = rf"|{_nest(depth - 1)}" if depth else ""
    return rf"[\{{\[](?:[ \t,:0-9A-Za-z+.\-]++|{STRING}{deeper})*+[\}}\]]"


NESTED = rf"\A\s*+{_nest(8)}\s*+\z"  # each bracket has its place but for what a parser refuses
