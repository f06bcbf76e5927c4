"""The fate of a record in every source and on every path: its values, or `BAD`."""

from collections.abc import Mapping
from typing import Any, Final

from tests.dataplane.conftest import log
from tests.dataplane.world import World

BAD: Final = "bad"
Values = tuple[object, ...]
Fates = Mapping[bytes, Values | str]
EMOJI = b"\xed\xa0\xbd\xed\xb8\x80"  # an emoji as Java writes it: two surrogates of three bytes
MARK = b"\xef\xbb\xbf"

JSON_SCHEMA = "n int, s string, m map<string,int>, o struct<t:string>, l array<string>"
JSON: dict[bytes, Values | str] = {
    b'{"n": 1, "s": "x"}': (1, "x", None, None, None),
    b"{}": (None, None, None, None, None),
    b'  {"s": "a}b{c]"} \t': (None, "a}b{c]", None, None, None),
    '{"s": "Zürich 😀"}'.encode(): (None, "Zürich 😀", None, None, None),
    MARK + b'{"s": "marked"}': (None, "marked", None, None, None),
    # bytes that are not UTF-8
    b'{"s": "Z\xfcrich"}': BAD,
    b'{"s": "\xff"}': BAD,
    b'{"s": "' + EMOJI + b'"}': BAD,
    b'{"s": {"t": "' + EMOJI + b'"}}': BAD,
    b'{"s": {"t": "\xc0\xaf"}}': BAD,
    b'{"more": "' + EMOJI + b'"}': BAD,
    b'{"n": 1}\xfc': BAD,
    # what follows a value
    b'{"s": "x"}]': BAD,
    b'{"s": "x"}}': BAD,
    b'{"s": "x"}, "n": 7}': BAD,
    b'{"s": "x"}{"s": "y"}': BAD,
    b'{"s": "x"},{"s": "y"}': BAD,
    b'{"s": "x"} {': BAD,
    b'{"s": "x"}]}': BAD,
    b'{"s": "x"}},{}': BAD,
    b'{"s": "x"},,': BAD,
    b'{"s": "x"}x': BAD,
    b'{"s": "x"}\x00': BAD,
    b'{"s": "x"},': (None, "x", None, None, None),
    b'{"s": "x", "o": {"t": "y"}}': (None, "x", None, {"t": "y"}, None),
    b'{"s": "x", "o": {"t": "y"}}}': BAD,
    # what is no object
    b"null": BAD,
    b"5": BAD,
    b'{"n": 1': BAD,
    # numbers and values in a column of text
    b'{"s": 1.10}': (None, "1.10", None, None, None),
    b'{"s": 123456789012345678.90}': (None, "123456789012345678.90", None, None, None),
    b'{"s": 1e400}': (None, "1e400", None, None, None),
    b'{"s":-0}': (None, "-0", None, None, None),
    b'{"s": 1E5, "n": 2}': (2, "1E5", None, None, None),
    b'{"s": {"a" : 1.10, "b": [1e2, "x 1.5"]}}': (None, '{"a" : 1.10, "b": [1e2, "x 1.5"]}', None, None, None),
    b'{"s": [1.0, {"c": 2.50}], "n": 1}': (1, '[1.0, {"c": 2.50}]', None, None, None),
    b'{"s": "1.10"}': (None, "1.10", None, None, None),
    b'{"s": true}': (None, "true", None, None, None),
    b'{"x": {"s": 3.30}, "s": 1.10}': (None, "1.10", None, None, None),
    b'{"o": {"t": 2.50}, "l": [1.10, "2.0", null, {"a": 1.0}]}': (
        None, None, None, {"t": "2.50"}, ["1.10", "2.0", None, '{"a": 1.0}'],
    ),
    # a name twice
    b'{"s": "x", "s": "y"}': (None, "y", None, None, None),
    b'{"s": {"a": 1.0}, "n": 1, "s": 2.50, "l": [[1.0]], "l": [1.10]}': (1, "2.50", None, None, ["1.10"]),
    b'{"m": {"a": 1, "b": 2, "a": 3}}': (None, None, [("a", 3), ("b", 2)], None, None),
    b'{"m": {"a": 1, "a": "x"}}': BAD,
    b'{"n": 1.5}': BAD,
}  # fmt: skip

JSON_OF_A_FILE: dict[bytes, Values | str] = {  # a message that is no object is a bad record
    b' [ {"n": 1, "s": 1e2} ]': (1, "1e2", None, None, None),
}

CSV_SCHEMA = "n int, s string"
CSV: dict[bytes, Values | str] = {
    b"1,a": (1, "a"),
    b"2,": (2, None),
    b",": (None, None),
    '3,"Zürich, 😀"'.encode(): (3, "Zürich, 😀"),
    # bytes that are not UTF-8
    b"1,Z\xfcrich": BAD,
    b"1," + EMOJI: BAD,
    b"1,\xc0\xaf": BAD,
    # quotes
    b'1,"he said ""hi"" to"': (1, 'he said "hi" to'),
    b'1,""""': (1, '"'),
    b'1,""': (1, None),
    b'1,5" pipe': (1, '5" pipe'),
    b'1,a"b"': (1, 'a"b"'),
    b'"1","a"': (1, "a"),
    b'1,"a': BAD,
    b'1,"': BAD,
    b'world"': BAD,
    b'1,"a"b': BAD,
    b'1,"a" ': BAD,
    b'1,"a\\"b"': BAD,
    b'1,"a,b': BAD,
    b'"1,a': BAD,
    b"1,a\\": (1, "a\\"),
    b'1,"a\\"': (1, "a\\"),
    # the number of fields, and types
    b"1": BAD,
    b"1,a,b": BAD,
    b"x,a": BAD,
    b'1,"a\x00b"': (1, "a\0b"),
}

TABS: dict[bytes, Values | str] = {
    b"1\ta": (1, "a"),
    b"\t": (None, None),
    b"2\t": (2, None),
    b"\t\t": BAD,
    b'1\t"a': BAD,
}
CODED: dict[str, dict[bytes, Values | str]] = {
    "windows-1252": {"1,Zürich €".encode("cp1252"): (1, "Zürich €"), b"2,\x81": BAD, b"3,b": (3, "b")},
    "Shift_JIS": {"1,表 ソ".encode("shift_jis"): (1, "表 ソ"), b"2,\x83": BAD},
    "GBK": {"2,中文".encode("gbk"): (2, "中文"), b"3,\xff": BAD},
    "ISO-8859-1": {b"1,Z\xfcrich": (1, "Zürich"), b"2,\x81": (2, "\x81")},
}


def differ(table: Fates, found: Mapping[bytes, Any]) -> dict[bytes, tuple[Any, Any]]:
    """Return the records with another fate: wanted, found."""
    return {raw: (fate, found.get(raw)) for raw, fate in table.items() if found.get(raw) != fate}


def read_fates(world: World, key: str, records: list[bytes]) -> dict[bytes, Any]:
    """Return the fate of the records, one per file. The bytes of a bad record must be in the quarantine."""
    found: dict[bytes, Any] = {}
    for row in log(world.table / "main").rows():
        if row["_partition"] == f"p:{key}":
            at = int(str(row["_offset"]))
            assert records[at] not in found, "twice"
            found[records[at]] = tuple(value for name, value in row.items() if not name.startswith("_"))
    quarantine = world.table / "quarantine"
    for row in log(quarantine).rows() if quarantine.exists() else ():
        if row["_partition"] == f"p:{key}":
            raw = records[int(str(row["_offset"]))]
            kept = row["_raw_bytes"] if row["_raw_bytes"] is not None else str(row["_raw"]).encode()
            assert (raw, kept) == (raw, raw.removeprefix(MARK))
            assert raw not in found, "in both"
            found[raw] = BAD
    return found
