"""The oracle's rules, each pinned to what a probe of Spark 4.3 by hand showed."""

from decimal import Decimal

import pytest

from tests.conservation import rules
from tests.conservation.case import Case, File
from tests.conservation.jsons import Lines
from tests.conservation.oracle import BAD, EITHER, GOOD, Broken, Oracle
from tests.conservation.rules import Bad, Unclear
from tests.conservation.shape import Column, Type

DAY = 86_400_000_000


def read_value(kind: Type, text: str) -> object:
    try:
        return rules.of_csv(kind)(text)
    except Bad:
        return BAD
    except Unclear:
        return EITHER


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("byte", "127", 127), ("byte", "128", BAD), ("byte", "-128", -128), ("int", "+1", 1), ("int", "007", 7),
        ("int", " 1", BAD),
        ("int", "1.0", BAD), ("int", "١", 1), ("int", "1_0", BAD), ("long", "9223372036854775808", BAD),
        ("long", "9" * 5000, BAD),
        ("double", " 1.5 ", 1.5), ("double", "1e400", float("inf")), ("double", "NaN", "NaN"),
        ("double", "nan", BAD), ("double", "1d", 1.0),
        ("double", "Inf", float("inf")), ("double", "+Inf", BAD), ("double", ".5", 0.5), ("double", "1_0", BAD),
        ("double", "0x1p3", EITHER),
        ("float", "1e39", float("inf")), ("float", "16777217", 16777216.0), ("boolean", "TRUE", True),
        ("boolean", "1", BAD),
        ("date", "2026-1-1", BAD), ("date", "2026", BAD), ("date", "0000-01-01", -719528),
        ("date", "10000-01-01", BAD),
        ("date", "2026-02-30", BAD), ("date", "2026-01-01x", BAD), ("date", "2026-01-01 x", BAD),
        ("date", "5881580-07-12", BAD),
        ("date", " 2026-01-01", BAD), ("date", "123", BAD), ("date", "1900-02-29", BAD),
        ("date", "-0001-01-01", -719893),
        ("date", "2026-01-01", 20454),
        ("timestamp", "1970-01-02T00:00:00+02:00", DAY - 7_200_000_000), ("timestamp", "1970-01-02", DAY),
        ("timestamp", "1970", 0),
        ("timestamp", "1970-01-01T00:00:00.1234567", 123_456),
        ("timestamp", "294247-01-10T04:00:54.775807", 2**63 - 1),
        ("timestamp", "294247-01-10T04:00:54.775808", BAD), ("timestamp", "1970-01-01T24:00:00", BAD),
        ("timestamp", "1", BAD),
        ("timestamp", "10:00:00", EITHER), ("timestamp", "1970-01-01T00:00:00+19:00", BAD),
        ("timestamp", "1970-01-01t00:00:00", BAD),
        ("timestamp_ntz", "1970-01-01T00:00:00Z", BAD), ("timestamp_ntz", "10:00:00", BAD),
        ("timestamp_ntz", "1970-01-02T00:00", DAY),
        ("binary", "YQ==", b"YQ=="), ("string", " x ", " x "),
    ],
)  # fmt: skip
def test_a_csv_field(kind: str, text: str, value: object) -> None:
    assert read_value(Type(kind), text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.005", "1.01"), ("-1.005", "-1.01"), ("999.994", "999.99"), ("999.995", BAD), ("1e2", "100"), ("1e-9", "0"),
     ("NaN", BAD),
     (" 1", BAD), ("+1.5", "1.5"), ("1,5", EITHER), ("1d", BAD), ("0.1e1", "1")],
)  # fmt: skip
def test_a_decimal_is_rounded_half_up_and_bad_when_it_does_not_fit(text: str, value: str) -> None:
    found = read_value(Type("decimal", 5, 2), text)
    assert found == (value if value in (BAD, EITHER) else Decimal(value))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "1", 1), ("int", '"1"', BAD), ("int", "1.0", BAD), ("int", "1e2", BAD), ("int", "01", BAD),
        ("int", "true", BAD), ("int", "-0", 0),
        ("short", "32768", BAD), ("short", "32767", 32767), ("long", "1e0", BAD), ("double", '"1.5"', BAD),
        ("double", '"NaN"', "NaN"),
        ("double", "NaN", "NaN"), ("double", "1e400", float("inf")), ("double", '"INF"', BAD),
        ("double", '"+INF"', float("inf")),
        ("boolean", '"true"', BAD), ("boolean", "1", BAD), ("string", "1.50", "1.50"), ("string", "true", "true"),
        ("string", '{"a": 1,  "b":[1, 2]}', '{"a": 1,  "b":[1, 2]}'), ("string", '"\\ud83d"', "?"),
        ("string", '"\\ud83d\\ude00"', "😀"),
        ("binary", '"YWI="', b"ab"), ("binary", '"YWI"', BAD), ("binary", '"-_-_"', BAD), ("binary", '""', b""),
        ("date", '"123"', BAD), ("date", '"10000-1-1"', 2932897), ("date", "1", BAD), ("date", '""', BAD),
        ("date", '"5881580-07-11"', 2**31 - 1), ("date", '"2026-01-01 x"', 20454), ("date", '"5881580-07-12"', BAD),
        ("timestamp", "1", 1_000_000), ("timestamp", "1.5", BAD), ("timestamp", '"1"', BAD),
        ("timestamp", "9223372036855", EITHER),
        ("timestamp_ntz", "1", BAD), ("int", "null", None), ("int", '"\\q"', BAD), ("int", "[1]", BAD),
    ],
)  # fmt: skip
def test_a_json_value(kind: str, text: str, value: object) -> None:
    try:
        ((found,),) = Lines((Column("x", Type(kind)),)).rows(f'{{"x": {text}}}')
    except Bad:
        found = BAD
    except Unclear:
        found = EITHER
    assert found == value


def verdicts(format: str, data: bytes, name: str = "0", **options: str) -> object:
    schema = (Column("k", Type("int")), Column("x", Type("string")))
    found = Oracle(Case("", format, schema, options, 1.0, ())).read(File("a", name, data))
    return (
        found
        if isinstance(found, Broken)
        else [(r.line, r.verdict, *r.rows) for r in found if r.rows or r.verdict == BAD]
    )


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (b"{}", [(1, GOOD, (None, None))]), (b"[]", []), (b" \t", []), (b"\0", [(1, EITHER, ())]),
        (b"null", [(1, BAD)]), (b"[1]", [(1, BAD)]),
        (b'[{"k": 1}, {"k": 2}]', [(1, GOOD, (1, None), (2, None))]), (b'[{"k": 1}, {"k": "x"}]', [(1, BAD)]),
        (b'{"k": 1', [(1, BAD)]),
        (b'{"k": 1, "k": 2}', [(1, GOOD, (2, None))]), (b'{"k": "x", "k": 2}', [(1, BAD)]),
        (b'{"K": 1}', [(1, GOOD, (None, None))]),
        (b'{"k": 1, "deep": ' + b"[" * 500 + b"]" * 500 + b"}", [(1, GOOD, (1, None))]),
        (b'{"k": 1, "deep": ' + b"[" * 1500 + b"]" * 1500 + b"}", [(1, BAD)]),
        (b'{"k": 1, "x": "' + b"[" * 1500 + b'"}', [(1, GOOD, (1, "[" * 1500))]),
        (b'{"k": 1} {"k": 2}', [(1, BAD)]), (b'{"k": "x"} {"k": 2}', [(1, BAD)]),
        (b'{"k": 1},', [(1, EITHER, ())]), (b"{'k': 1}", [(1, EITHER, ())]),
        (b'{"x": "\xff"}', [(1, BAD)]), (b'{"k": 1}]', [(1, BAD)]),
        (b'{"k": 1}\r{"k": 2}', [(1, GOOD, (1, None)), (2, GOOD, (2, None))]),
        (b'\xef\xbb\xbf{"k": 1}', [(1, GOOD, (1, None))]),
    ],
)  # fmt: skip
def test_a_line_of_json(line: bytes, verdict: object) -> None:
    assert verdicts("json", line) == verdict


@pytest.mark.parametrize(
    ("data", "options", "verdict"),
    [
        (b"1,a\r\n2,\n \n,\n", {}, [(1, GOOD, (1, "a")), (2, GOOD, (2, None)), (4, GOOD, (None, None))]),
        (b"1\n1,a,b\n,,\n", {}, [(1, BAD), (2, BAD), (3, BAD)]),
        (b'1,"a\\"b"\n2,""\n3,"a\\\\"', {"escape": "\\"},
         [(1, GOOD, (1, 'a"b')), (2, GOOD, (2, None)), (3, GOOD, (3, "a\\"))]),
        (b'1,"a,""b"""', {"escape": '"'}, [(1, GOOD, (1, 'a,"b"'))]),
        (b'1,"\n2,NULL', {"nullValue": "NULL"}, [(1, EITHER, ()), (2, GOOD, (2, None))]),
        (b'1,""\n2,', {"nullValue": "NULL"}, [(1, GOOD, (1, "")), (2, GOOD, (2, None))]),
        (b'1,"a\nb"\nx,"c\r\nd"\n\n3,e', {"multiLine": "true"}, [(0, GOOD, (1, "a\nb")), (0, BAD),
        (0, GOOD, (3, "e"))]),
        (b'1,"a\r\nb"\r\n', {"multiLine": "true"}, [(0, GOOD, (1, "a\nb"))]),
        (b"1||a|b", {"sep": "||"}, [(1, GOOD, (1, "a|b"))]),
        (b'1,"a\0b"\n2,a\0b', {"escape": '"'}, [(1, GOOD, (1, "a\0b")), (2, GOOD, (2, "a\0b"))]),
        (b'1,"a\0b"', {"escape": '"', "multiLine": "true"}, [(0, GOOD, (1, "a\0b"))]),
        (b'1||"a\0b"', {"sep": "||"}, [(1, EITHER, ())]),
        (b'"1"||\n1||', {"sep": "||"}, [(1, EITHER, ()), (2, GOOD, (1, None))]),
        (b'1,"a\0b"', {"escape": "\\"}, [(1, GOOD, (1, "a\0b"))]),
        (b"\n K,X\n1,a".replace(b" ", b""), {"header": "true"}, [(3, GOOD, (1, "a"))]),
        ("1,é\n".encode("utf-16"), {"encoding": "UTF-16", "multiLine": "true"}, [(0, GOOD, (1, "é"))]),
        (b"1,\xed\xa0\x80", {}, [(1, BAD)]), (b"1\ta\n\t", {"sep": "\t"}, [(1, GOOD, (1, "a")), (2, GOOD, (None, None))]),
        (b"x,k\na,1", {"header": "true"}, Broken("header")),
    ],
)  # fmt: skip
def test_csv(data: bytes, options: dict[str, str], verdict: object) -> None:
    assert verdicts("csv", data, **options) == verdict


def test_a_compressed_file_that_ends_early_is_broken_as_a_whole() -> None:
    import gzip

    whole = gzip.compress(b'{"k": 1}\n' * 100, mtime=0)
    assert len(verdicts("json", whole, "0.gz")) == 100  # type: ignore[arg-type]
    assert isinstance(verdicts("json", whole[:-9], "0.gz"), Broken)
    assert verdicts("json", b"", "0.gz") == []
