"""Whether a Parquet file holds what `files(...)` declares, by its footer.

Law: a value never becomes another one. `EQUAL` lists the pairs of (physical type, logical type) and declared type that
Spark reads with equal values. Any other pair is refused, whatever the transform uses of the column. Spark itself refuses
some of them, and returns other numbers for the rest without an error: a decimal of 1.50 as `double` is 150.0, 70000 as
`short` is 4464, an unsigned 4294967295 as `double` is -1.0, the number 20260101 as `date` is a day of the year 57440.

Law: a file without a declared column or field is refused, since Spark would read null. A file without rows has no values;
Spark refuses it only where a list, map or struct is declared as something else.

Law: `new_columns="refuse"` refuses a file with a column or field that is not declared: its values would be in no table.
With `new_columns="add"` (`added`), the declared columns in this module are all columns that a job reads.

Law: a file is refused if its footer cannot be read or states other rows than its row groups have, and if it has no bytes.
Spark would read nothing of such a file where the transform does not need it, and report no error.

Law: a declared map whose key is marked optional is read, unless a key is null (see `optional_keys`).

Equal are the same number, the same bytes of a text, the same point in time. A date equals its midnight. A time without a
zone equals that time in UTC, since Spark's session is in UTC. Of INT96, the old form of a time, Spark drops fractions of a
microsecond: no type of Spark has nanoseconds.
"""

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import SEEK_END
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane.files import optional_keys
from rota.dataplane.files.landing import LandedBytes
from rota.ledger.schema import BROUGHT, list_added, make_struct

SIGNED = ("integer", "long", "double", "decimal>10")  # `decimal>10`: with ten digits before the point, or more
UNSIGNED = ("integer", "long", "double")
NULLS, NANOS = ("INT32", "Null"), ("INT64", "Timestamp nanoseconds")
TEXTS, TIMES = ("string", "binary"), ("timestamp", "timestamp_ntz")
EQUAL: dict[tuple[str, str], tuple[str, ...]] = {  # the first is what an error advises
    ("BOOLEAN", "None"): ("boolean",),
    ("INT32", "None"): SIGNED,
    ("INT32", "Int 8"): ("byte", "short", *SIGNED),
    ("INT32", "Int 16"): ("short", *SIGNED),
    ("INT32", "Int 32"): SIGNED,
    ("INT32", "UInt 8"): ("short", *UNSIGNED),
    ("INT32", "UInt 16"): UNSIGNED,
    ("INT32", "UInt 32"): ("long",),
    ("INT32", "Decimal"): ("decimal", "byte", "short", *UNSIGNED),  # of the integer types, those with enough digits
    ("INT32", "Date"): ("date", "timestamp_ntz"),
    NULLS: ("byte", "short", *UNSIGNED, "date"),  # every value is null
    ("INT64", "None"): ("long", "decimal>20"),
    ("INT64", "Int 64"): ("long", "decimal>20"),
    ("INT64", "UInt 64"): ("decimal(20,0)",),
    ("INT64", "Decimal"): ("decimal", "long"),
    ("INT64", "Timestamp milliseconds"): TIMES,
    ("INT64", "Timestamp microseconds"): TIMES,
    ("INT96", "None"): TIMES,
    ("FLOAT", "None"): ("float", "double"),
    ("DOUBLE", "None"): ("double",),
    **{("BYTE_ARRAY", logical): TEXTS for logical in ("String", "Enum", "JSON")},
    **{("BYTE_ARRAY", logical): TEXTS[::-1] for logical in ("None", "BSON")},
    ("BYTE_ARRAY", "Decimal"): ("decimal",),
    **{("FIXED_LEN_BYTE_ARRAY", logical): ("binary",) for logical in ("None", "UUID")},
    ("FIXED_LEN_BYTE_ARRAY", "Decimal"): ("decimal",),
}
DIGITS = {"byte": 2, "short": 4, "integer": 9, "double": 9, "long": 18}  # that always fit into the type
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
NARROW, MIDDLE = 9, 18  # digits of a decimal for which Spark takes 32 bits, and 64
OPTIONAL_KEY = "Map keys must be annotated as required"
NANOSECONDS = (
    "No type of Spark has nanoseconds. Declare it as timestamp, with nanoseconds='truncate'; or write the file with "
    "microseconds: in pandas, df.to_parquet(..., coerce_timestamps='us', allow_truncated_timestamps=True)"
)
SHOWN = 200  # characters of Arrow's reason
AT_ONCE = 16  # footers that are read at a time


@dataclass(frozen=True, slots=True)
class Node:
    """A column of a file, or a part of one. `sort`: array, map or struct, with its `parts`; empty for a leaf. A leaf has a
    `key` of EQUAL, and a decimal has `digits`, of which `scale` are behind the point. `local`: a time without a zone."""

    shown: str
    sort: str = ""
    parts: "tuple[tuple[str, Node], ...]" = ()
    key: tuple[str, str] = ("", "")
    digits: int = 0
    scale: int = 0
    local: bool = False


@dataclass(frozen=True, slots=True)
class Footer:
    """The number of rows of a file, and its columns as parts of `whole`. `broken`: why the file cannot be read.
    `optional_keys`: the paths of the map keys that are marked optional."""

    rows: int
    whole: Node
    broken: str = ""
    optional_keys: tuple[str, ...] = ()


def read_footer(file: LandedBytes) -> Footer | None:
    """Return the file's footer; None if the file cannot be opened: the job that reads the file reports that."""
    try:
        with file.open("rb") as raw:
            if not raw.seek(0, SEEK_END):
                return Footer(0, Node("", "struct"), "has no bytes, which is no Parquet. Write the file again")
            metadata, whole, keys = _open(raw)
            held = sum(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))
            if held != metadata.num_rows:
                why = f"states {metadata.num_rows} rows in its footer, and its row groups have {held}. Write the file again"
                return Footer(0, Node("", "struct"), why)
            return Footer(metadata.num_rows, whole, optional_keys=keys)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno:
            return None
        why = f"is no Parquet ({_take_first_line(error)}). Bring a whole file"
        return Footer(0, Node("", "struct"), why)


def read_footers(files: Mapping[str, LandedBytes]) -> dict[str, Footer | None]:
    """Return the footers of a job's files, by the keys of `files`. Footers with equal columns share one `Node`."""
    alike: dict[Node, Node] = {}

    def read(file: LandedBytes) -> Footer | None:
        footer = read_footer(file)
        return footer and replace(footer, whole=alike.setdefault(footer.whole, footer.whole))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(files, pool.map(read, files.values()), strict=True))


def explain_misfit(
    file: LandedBytes,
    declared: dict[str, Any],
    absent_is_null: bool,
    new_columns: str = "ignore",
    footer: Footer | None = None,
) -> str:
    """Return why Spark must not read the file as declared, with the next step; empty if it may.

    Args:
        declared: the columns to read, as a Spark schema in JSON.
        absent_is_null: whether a column that the file lacks is null.
        new_columns: what becomes of a column, or a field of one, that is not declared.
        footer: the file's footer; None if it is still to be read.
    """
    footer = footer or read_footer(file)
    if footer is None or footer.broken:
        return footer.broken if footer else ""
    rows, whole = footer.rows, footer.whole
    brought = {field["name"].lower(): field["metadata"][BROUGHT] for field in list_added(declared)}
    misfits = list(_find_misfits(whole, declared, ()))
    absent = [at for at, node, _ in misfits if node is None and not (len(at) == 1 and at[0].lower() in brought)]
    if absent and not absent_is_null:
        if first := brought.get(absent[0][0].lower()):
            return (
                f"has no {'.'.join(absent[0])}, and {first} brought {absent[0][0]} with it. Land it with all its fields"
            )
        return (
            f"has no column {', '.join(map('.'.join, absent))}, and the schema of files(...) has. Change the schema, or say "
            f"options={{'mergeSchema': 'true'}} for null"
        )
    if new := _list_unwanted(footer, declared, new_columns):
        what, into = ", ".join(map(".".join, new)), brought.get(new[0][0].lower())
        if into:
            return f"has {what}, and {into} brought {new[0][0]} without. Land it as a column of its own"
        return f"has {what}, and the schema of files(...) has not. Declare what you want of it, or say new_columns='ignore'"
    others = [(at, node, wanted) for at, node, wanted in misfits if node is not None and (rows or node.sort)]
    if not others:
        return _explain_null_key(file, declared, footer)
    for at, node, wanted in others:
        if first := brought.get(at[0].lower()):
            said = f"has {'.'.join(at)} as {node.shown}, and {first} brought it as {wanted}"
            return f"{said}. Land it with a type that fits, or under another name"
    said = ", ".join(f"{'.'.join(at)} as {_name_type(node, wanted)}, not {wanted}" for at, node, wanted in others)
    named = [(".".join(at), node) for at, node, _ in others]
    return f"has {said}: Spark would read other values, or none. {_advise(named)}"


def _explain_null_key(file: LandedBytes, declared: dict[str, Any], footer: Footer) -> str:
    """Return why a declared map of the file cannot be read, such as a null key; empty if it can."""
    wanted = {field["name"].lower() for field in declared["fields"]}
    if keys := [path for path in footer.optional_keys if path.partition(".")[0].lower() in wanted]:
        try:
            with file.open("rb") as raw:
                if path := optional_keys.find_null(raw, keys):
                    return f"has a null key in {path}, and no map has one. Write each entry with a key"
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            return f"has map keys that cannot be read ({_take_first_line(error)}). Bring a whole file"
    return ""


def _take_first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:SHOWN]


def _name_type(node: Node, wanted: str) -> str:
    """Return the type in the file, with Parquet's name if Arrow's name is that of the declared type."""
    return f"{node.shown} ({node.key[1]})" if node.shown == wanted else node.shown


def _list_unwanted(footer: Footer, declared: dict[str, Any], new_columns: str) -> list[tuple[str, ...]]:
    """List the columns and fields that are not declared and stop the partition. If new columns are added, all columns with
    values are declared here; a struct gets no new field."""
    if new_columns == "ignore" or (new_columns == "add" and not footer.rows):
        return []
    found = _find_new(footer.whole, declared, ())
    return [at for at, node in found if new_columns == "refuse" or (len(at) > 1 and node.key != NULLS)]


def find_type(node: Node) -> Any:
    """Return the type of Spark, as its JSON has it, in which each value of the column has an equal one.

    Raises: LookupError, with the name of the part that has no such type.
    """
    parts = {name: _find_part(name, part) for name, part in node.parts}
    match node.sort:
        case "struct":
            return make_struct(parts)
        case "map":
            return {"type": "map", "keyType": parts["key"], "valueType": parts["value"], "valueContainsNull": True}
        case "array":
            return {"type": "array", "elementType": parts["element"], "containsNull": True}
    if node.key not in EQUAL or node.key == NULLS:
        raise LookupError("")
    best = _find_best(node)
    return "timestamp_ntz" if node.local else best


def _find_part(name: str, part: Node) -> Any:
    try:
        return find_type(part)
    except LookupError as error:
        raise LookupError(f".{name}{error.args[0]}") from None


def _advise(found: list[tuple[str, Node]]) -> str:
    """Return the next step: the types to declare, if each column has one."""
    if any(node.sort for _, node in found):
        return "Change the schema of files(...)"
    if all(node.key == NANOS for _, node in found):
        return NANOSECONDS
    if lost := [name for name, node in found if node.key not in EQUAL or node.key == NULLS]:
        return f"No type of Spark has the values of {', '.join(lost)}: write the file with another type"
    return f"Declare {', '.join(f'{name} as {_find_best(node)}' for name, node in found)} in the schema of files(...)"


def _find_best(node: Node) -> str:
    best = EQUAL[node.key][0]
    if best != "decimal":
        return best
    digits = max(node.digits, MIDDLE + 1) if node.key[0] == "BYTE_ARRAY" else node.digits
    return f"decimal({digits},{node.scale})"


def _open(raw: BinaryIO) -> tuple[Any, Node, tuple[str, ...]]:
    """Return the footer's metadata, its columns, and the paths of the keys that are marked optional."""
    keys: tuple[str, ...] = ()
    try:
        opened = pq.ParquetFile(raw)
    except pa.ArrowInvalid as error:
        if OPTIONAL_KEY not in str(error):
            raise
        opened, keys = optional_keys.open_required(optional_keys.read_tail(raw)[1])
    leaves = map(opened.schema.column, range(len(opened.schema)))
    return opened.metadata, _read_node(pa.struct(list(opened.schema_arrow)), leaves), keys


def _read_node(kind: pa.DataType, leaves: Iterator[Any]) -> Node:
    """Return the node of an Arrow type. Take one of the file's `leaves` for each leaf of the type, in the same order."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        return Node(str(kind), "struct", tuple((one.name, _read_node(one.type, leaves)) for one in kind))
    if pa.types.is_map(kind):
        key = _read_node(kind.key_type, leaves)
        return Node(str(kind), "map", (("key", key), ("value", _read_node(kind.item_type, leaves))))
    if pa.types.is_nested(kind):
        return Node(str(kind), "array", (("element", _read_node(kind.value_type, leaves)),))
    leaf = next(leaves)
    logical = json.loads(leaf.logical_type.to_json())
    name = logical["Type"]
    if name == "Int":
        name = f"{'' if logical['isSigned'] else 'U'}Int {logical['bitWidth']}"
    elif name == "Timestamp":
        name = f"{name} {logical['timeUnit']}"
    return Node(
        str(kind.value_type if pa.types.is_dictionary(kind) else kind),
        key=(leaf.physical_type, name),
        digits=logical.get("precision", 0),
        scale=logical.get("scale", 0),
        local=logical["Type"] == "Timestamp" and not logical["isAdjustedToUTC"],
    )


def _find_misfits(node: Node, declared: Any, at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node | None, str]]:
    """Yield path, node in the file (None: absent) and declared type of each misfit. Case of names is ignored."""
    if isinstance(declared, str):
        if node.sort or not is_equal(node, declared):
            yield at, node, declared
        return
    if node.sort != declared["type"]:
        yield at, node, declared["type"]
        return
    there = {name.lower(): part for name, part in node.parts}
    for name, wanted in _list_parts(declared):
        path = (*at, name)
        if name.lower() in there:
            yield from _find_misfits(there[name.lower()], wanted, path)
        else:
            yield path, None, ""


def _find_new(node: Node, declared: Any, at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield each column or field that is not declared, with its path."""
    if not node.sort or isinstance(declared, str) or node.sort != declared["type"]:
        return
    wanted = {name.lower(): kind for name, kind in _list_parts(declared)}
    for name, part in node.parts:
        if name.lower() in wanted:
            yield from _find_new(part, wanted[name.lower()], (*at, name))
        else:
            yield (*at, name), part


def _list_parts(declared: dict[str, Any]) -> list[tuple[str, Any]]:
    match declared["type"]:
        case "struct":
            return [(field["name"], field["type"]) for field in declared["fields"]]
        case "map":
            return [("key", declared["keyType"]), ("value", declared["valueType"])]
    return [("element", declared["elementType"])]


def is_equal(leaf: Node, declared: str) -> bool:
    """Whether Spark reads each value of the leaf as an equal one of the declared type."""
    pairs = EQUAL.get(leaf.key, ())
    wide = DECIMAL.fullmatch(declared)
    if leaf.key[1] != "Decimal":
        before = int(wide[1]) - int(wide[2]) if wide else 0
        return declared in pairs or any(f"decimal>{n}" in pairs and before >= n for n in (10, 20))
    if leaf.key[0] == "INT64" and leaf.digits <= NARROW:  # Spark refuses other types where the page has a dictionary
        return declared == f"decimal({leaf.digits},{leaf.scale})"
    if not wide:
        return declared in pairs and not leaf.scale and leaf.digits <= DIGITS[declared]
    digits, scale = map(int, wide.groups())
    if leaf.key[0] == "BYTE_ARRAY" and digits <= MIDDLE:
        return False  # Spark refuses it
    return scale >= leaf.scale and digits - scale >= leaf.digits - leaf.scale
