"""Whether a Parquet file holds what `files(...)` declares, by its footer.

Law: what Spark would read as null, or as another number, is told. It reads a column or a field that a file has not as null,
and cuts a whole number to the bits of the declared type: 70000 as `short` is 4464, an unsigned 255 as `byte` is -1.

Law: a column of another sort (a number for a text, a list for a number) is told whatever the transform uses. Spark refuses
it only where it reads it. Which number, date or decimal it may read as which other, Spark alone says.

Law: so is a file whose footer cannot be read. Of one that the transform does not need Spark reads nothing.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}  # of Spark's whole numbers
NUMBERS = "numbers"
SORT_OF = dict.fromkeys((*BITS, "float", "double", "date", "timestamp", "timestamp_ntz"), NUMBERS) | {
    "string": "texts", "binary": "texts", "boolean": "boolean", "array": "array", "map": "map", "struct": "struct",
}  # fmt: skip
SORTS: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    (NUMBERS, pa.types.is_integer), (NUMBERS, pa.types.is_floating), (NUMBERS, pa.types.is_decimal),
    (NUMBERS, pa.types.is_date), (NUMBERS, pa.types.is_timestamp), ("boolean", pa.types.is_boolean),
    ("texts", pa.types.is_string), ("texts", pa.types.is_large_string), ("texts", pa.types.is_binary),
    ("texts", pa.types.is_large_binary), ("array", pa.types.is_list), ("array", pa.types.is_large_list),
    ("map", pa.types.is_map), ("struct", pa.types.is_struct),
)  # fmt: skip
SHOWN = 200  # characters of Arrow's reason
DIGITS = {"byte": 2, "short": 4, "integer": 9, "long": 18}  # that each of their values has room for


def explain_misfit(file: Path, declared: dict[str, Any], absent_is_null: bool) -> str:
    """What of the declared columns (a schema of Spark, as JSON has it) the file has not, has too wide, or has of another
    sort, or that it is no Parquet, and what to do; empty if nothing. Empty for a file of no bytes, which Spark takes for
    one without rows, and for one that the disk does not give: whoever reads it says so."""
    try:
        if not file.stat().st_size:
            return ""
        with pq.ParquetFile(file) as opened:
            found, rows = opened.schema_arrow, opened.metadata.num_rows
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno:
            return ""
        return f"is no Parquet ({str(error).partition(chr(10))[0][:SHOWN]}). Bring a whole file"
    misfits = list(_find_misfits(pa.struct(list(found)), declared, ()))
    if missing := [name for name, kind, _ in misfits if kind is None and not absent_is_null]:
        return (
            f"has no column {', '.join(missing)}, and the schema of files(...) has. Change the schema, or say "
            f"options={{'mergeSchema': 'true'}} for null"
        )
    others = [(name, kind, wanted) for name, kind, wanted in misfits if kind is not None]
    if not rows or not others:
        return ""
    said = "has " + ", ".join(f"{name} as {kind}, not {wanted}" for name, kind, wanted in others)
    if all(_find_sort(kind) == NUMBERS and wanted in BITS for _, kind, wanted in others):
        return f"{said}: Spark would read other numbers. Declare a wider type in the schema of files(...)"
    return f"{said}: Spark cannot read that. Change the schema of files(...)"


def _find_misfits(
    kind: pa.DataType, declared: Any, at: tuple[str, ...]
) -> Iterator[tuple[str, pa.DataType | None, str]]:
    """Path, type in the file (None where it has none) and declared type of each misfit. Names in any case are one."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    wanted = declared if isinstance(declared, str) else declared["type"]
    if _find_sort(kind) not in (None, NUMBERS if wanted.startswith("decimal") else SORT_OF.get(wanted)):
        yield ".".join(at), kind, wanted
    elif isinstance(declared, str):
        if not _fits(kind, declared):
            yield ".".join(at), kind, declared
    elif wanted == "struct" and pa.types.is_struct(kind):
        there = {one.name.lower(): one.type for one in kind}
        for field in declared["fields"]:
            path = (*at, field["name"])
            if field["name"].lower() in there:
                yield from _find_misfits(there[field["name"].lower()], field["type"], path)
            else:
                yield ".".join(path), None, ""
    elif wanted == "array" and hasattr(kind, "value_type"):
        yield from _find_misfits(kind.value_type, declared["elementType"], (*at, "element"))
    elif wanted == "map" and pa.types.is_map(kind):
        yield from _find_misfits(kind.key_type, declared["keyType"], (*at, "key"))
        yield from _find_misfits(kind.item_type, declared["valueType"], (*at, "value"))


def _find_sort(kind: pa.DataType) -> str | None:
    """None of a type of which only Spark knows how it reads it."""
    return next((sort for sort, of in SORTS if of(kind)), None)


def _fits(kind: pa.DataType, declared: str) -> bool:
    """Whether each value of the type is one of the declared type, if that is a whole number."""
    if declared not in BITS:
        return True
    if pa.types.is_decimal(kind):
        return bool(kind.scale == 0 and kind.precision <= DIGITS[declared])
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return bool(kind.bit_width + pa.types.is_unsigned_integer(kind) <= BITS[declared])
    return True
