"""Lines of JSON, with `multiLine` files, that hold more than one value: Spark's reader takes the first, and the rest is in
no table.

Law: `find_joined` finds a line if Spark reads its first value as a good record and an object, a list or other text follows;
it never finds one that is a single value, nor one that Spark sets aside. Few lines look so (`LOOKS`, which costs Spark a
scan of the text: see `texts`), and only those are parsed, by Spark's own parser under the options of the source. Not found:
what follows a comma and opens neither an object nor a list, and lines in UTF-16 or UTF-32.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rota.record import CORRUPT, FieldPath

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LOOKS = r"[}\]]\s*(?:[^\s,}\]]|,\s*[{\[])"  # behind the end of a value what can begin another
TEXTS = "array<string>"  # of any values, without a look into them
DIGITS = 1000  # that Spark's parser takes of a number
NAMED = 5  # fields that a reason names
BOM = "^\ufeff"  # at the start of a line Spark's reader passes over it


def explain_bad(format: str, raw: str, nulls: Sequence[FieldPath]) -> str:
    """Why a raw record is bad, as far as it shows, and `nulls`: the paths of the fields that Spark made null of it. Of JSON
    that names the fields that do not parse; of CSV those that are empty are among them."""
    if format == "csv":
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
    """Those of `lines` (its column `value`) that hold more than one value; `schema` is DDL of what each should be."""
    return lines.where(is_joined(lines["value"], schema, options))


def is_joined(value: "Column", schema: str, options: Mapping[str, str]) -> "Column":
    """Whether a text holds more than one value."""
    from pyspark.sql import functions as F  # noqa: N812

    given = dict(options)

    def good(text: "Column") -> "Column":
        return F.from_json(text, f"{schema}, {CORRUPT} string", given)[CORRUPT].isNull()

    text = F.regexp_replace(value, BOM, "")
    of_list = F.forall(F.from_json(text, TEXTS, given), good)
    first = F.when(text.rlike(r"^\s*\["), of_list).otherwise(good(text))
    alone = F.size(F.from_json(F.concat(F.lit("["), text, F.lit("\n]")), TEXTS, given)).eqNullSafe(F.lit(1))
    return F.when(value.rlike(LOOKS), first & ~alone).otherwise(F.lit(False))
