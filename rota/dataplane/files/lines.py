"""Lines of JSON, with `multiLine` files, that hold more than one value: Spark's reader takes the first, and the rest is in
no table.

Law: `find_joined` finds a line if Spark reads its first value as a good record and an object, a list or other text follows;
it never finds one that is a single value, nor one that Spark sets aside. Few lines look so (`LOOKS`, which costs a scan of
the text by Spark), and only those are parsed, by Spark's own parser under the options of the source. Not found: what
follows a comma and opens neither an object nor a list, and lines in UTF-16 or UTF-32.

Law: of a file that `is_single`, `find_joined` finds no line, whatever the schema: each of its `}` and `]` ends a line, or
each of its lines is blank or `ONE` object or list, in which everything has its place but for what a parser refuses. Bytes
alone say so, at a fiftieth of what their parse costs. In doubt a file is not single, and Spark is asked.
"""

import gzip
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc

from rota.dataplane.files.staging import find_suffix
from rota.dataplane.spark.spark_source import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LOOKS = r"[}\]]\s*(?:[^\s,}\]]|,\s*[{\[])"  # behind the end of a value what can begin another
TEXTS = "array<string>"  # of any values, without a look into them
BOM = "^\ufeff"  # at the start of a line Spark's reader passes over it

READ = 1 << 18  # bytes at a time: they stay in the processor's cache
LONGEST = 1 << 22  # bytes of a line; a longer one is in doubt
DEEPEST = 8  # levels of objects and lists below the first; a deeper one is in doubt
OPENED = {".gz": gzip.open} | dict.fromkeys(
    ("", ".json", ".jsonl", ".ndjson", ".txt", ".log"), open
)  # others may be packed
UNSURE = {"multiline", "linesep", "encoding", "charset"}  # options under which bytes do not say where a line ends


def _nest(inside: bytes, depth: int) -> bytes:
    """An object or a list that holds what is `inside`, and others of its kind down to this depth."""
    deeper = b"|" + _nest(inside, depth - 1) if depth else b""
    return rb"[{\[](?:" + inside + deeper + rb")*[}\]]"


STRING = rb'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*"'
ONE = _nest(
    rb"[ \t,:0-9A-Za-z+.\-]|" + STRING, DEEPEST
)  # no single quote, and no sign of a comment, outside of a string
LINE = rb"[ \t]*(?:" + ONE + rb"[ \t]*)?\r?"
LINES = rb"\A(?:" + LINE + rb"\n)*" + LINE + rb"\z"


def are_single(paths: Iterable[Path], options: Mapping[str, str]) -> bool:
    """Whether each of these files `is_single`."""
    with ThreadPoolExecutor(8) as pool:
        return all(pool.map(partial(is_single, options=options), paths))


def is_single(path: Path, options: Mapping[str, str]) -> bool:
    """Whether no line of the file holds more than one value for sure, under these options of Spark's reader. False for what
    cannot be read."""
    opened = cast("Callable[[Path, str], BinaryIO] | None", OPENED.get(find_suffix(path.name)))
    if not opened or UNSURE & {name.lower() for name in options}:
        return False
    rest = b""
    try:
        with opened(path, "rb") as file:
            while found := file.read(READ):
                lines, _, rest = (rest + found).rpartition(b"\n")
                if len(rest) > LONGEST or not is_clean(lines):
                    return False
    except (OSError, EOFError, zlib.error):
        return False
    return is_clean(rest)


def is_clean(lines: bytes) -> bool:
    """The same of bytes that are whole lines."""
    import numpy as np  # `rota status` opens sources, and does without

    codes = np.frombuffer(lines, np.uint8)
    closing = (codes[:-1] | ord(" ")) == ord("}")  # this bit alone parts `]` from `}`
    closing &= codes[1:] != ord("\n")
    return not closing.any() or bool(pc.match_substring_regex(pa.scalar(lines, pa.large_binary()), LINES).as_py())


def find_joined(lines: "DataFrame", schema: str, options: Mapping[str, str]) -> "DataFrame":
    """Those of `lines` (its column `value`) that hold more than one value; `schema` is DDL of what each should be."""
    from pyspark.sql import functions as F  # noqa: N812

    given = dict(options)

    def good(text: "Column") -> "Column":
        return F.from_json(text, f"{schema}, {CORRUPT} string", given)[CORRUPT].isNull()

    text = F.regexp_replace("value", BOM, "")
    of_list = F.forall(F.from_json(text, TEXTS, given), good)
    first = F.when(text.rlike(r"^\s*\["), of_list).otherwise(good(text))
    alone = F.size(F.from_json(F.concat(F.lit("["), text, F.lit("\n]")), TEXTS, given)).eqNullSafe(F.lit(1))
    return lines.where(F.when(lines["value"].rlike(LOOKS), first & ~alone).otherwise(F.lit(False)))
