"""Arrow's parser returns what Spark's parser returns, or refuses: over generated values, and over each known difference."""

import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from rota.dataplane.formats import plain_json, values
from rota.dataplane.formats.plain_json import NotPlain, Parser
from tests.dataplane.json_lines import ASIDE, JOINED, SINGLE

DDL = (
    "n bigint, i int, h smallint, d double, b boolean, s string, t timestamp, z timestamp_ntz, day date, "
    "l array<double>, r struct<a: bigint, s: string>, rs array<struct<s: string, l: array<int>>>"
)
NAMES = ("n", "i", "h", "d", "b", "s", "t", "z", "day", "l", "r", "rs")
TIMES = (
    "2024-02-29T23:59:59Z", "2024-01-01 00:00:00.123456+05:30", "1582-10-10T00:00:00Z", "0001-01-01T00:00:00Z",
    "2024-01-01T00:00:00", "2024-01-01 10:20:30.5", "2024-01-01", "2024-02-30", "2024-1-1", "2024-01-01T24:00:00Z",
    "2024-01-01T00:00Z", "2024-01-01T00:00:00.1234567Z", "2024-01-01T00:00:00+19:00", "2024-01-01T00:00:00-17:59",
    "0000-01-01", "9999-12-31", "10000-01-01", "now", "12:30", "2024-06-31T00:00:00Z", "1969-12-31 23:59:59.999999Z",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "-0.0", "1", "-1", "1.0", "1.5", "1e2", "1E-2", "01", "1.", ".5", "+1", "-", "0x1", "1e400", "-1e400",
    "1e-400", "32767", "32768", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", "123456789012345678901234567890", "0.1", "4.9e-324", "2.4e-324", "1.7976931348623159e308",
    "NaN", "Infinity", "-Infinity", "Inf", "INF", "+INF", "1_0", "1d",
)  # fmt: skip
TEXTS = (
    '""', '"a"', '"\\u0000"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\udc00"', '"é😀"', '"\\n\\t\\/\\b"', '"\\x"', '"\t"',
    '"\x7f"', '"1.10"', '"{\\"a\\": 1}"', '"}{"', '"NaN"', '"Infinity"', '"true"', "'a'", '"a', '"a\\"', '", Inf}"',
    '"\u2028"', '"\\u007d"',
)  # fmt: skip

numbers = st.sampled_from(NUMBERS) | st.integers(-(2**70), 2**70).map(str) | st.floats(width=64).map(repr)
texts = (
    st.sampled_from(TEXTS) | st.text(max_size=6).map(lambda one: f'"{one}"') | st.sampled_from(TIMES).map('"{}"'.format)
)
words = st.sampled_from(("null", "true", "false", "nul", "True", "", "{}", "[]", "[[]]", "{", "]"))
names = st.sampled_from((*NAMES, "x", "N", "\\u006e", "a", "s", "l")).map('"{}"'.format)
blanks = st.sampled_from(("", "", "", "", " ", "\t", "\n", "\r"))
plain = numbers | texts | words


def _hold(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(inner, max_size=3).map(lambda them: f"[{', '.join(them)}]")
    pairs = st.tuples(names, blanks, inner).map(lambda one: f"{one[0]}{one[1]}:{one[2]}")
    return lists | st.lists(pairs, max_size=4).map(lambda them: f"{{{','.join(them)}}}")


anything = st.recursive(plain, _hold, max_leaves=6)
RIGHT: dict[str, st.SearchStrategy[str]] = {
    "n": numbers, "i": numbers, "h": numbers, "d": numbers, "b": st.sampled_from(("true", "false", "null")), "s": texts,
    **dict.fromkeys(("t", "z", "day"), st.sampled_from(TIMES).map('"{}"'.format)),
    "l": st.lists(numbers, max_size=3).map(lambda them: f"[{','.join(them)}]"),
    "r": st.tuples(numbers, texts).map(lambda one: f'{{"a":{one[0]},"s":{one[1]}}}'),
    "rs": st.tuples(texts, numbers).map(lambda one: f'[{{"s":{one[0]}}},null,{{"l":[{one[1]}]}}]'),
}  # fmt: skip
fields = st.one_of(
    *(st.tuples(st.just(f'"{name}"'), of) for name, of in RIGHT.items()), st.tuples(names, anything)
).map(":".join)
objects = st.lists(fields, max_size=3).map(lambda them: f"{{{','.join(them)}}}")
lines = st.tuples(blanks, objects | objects | objects | anything, blanks).map("".join)


def cut(text: str, at: int, bytes_put: bytes) -> bytes:
    """The text with some bytes in place of one."""
    data = text.encode("utf-8", "surrogatepass")
    return data[: at % (len(data) + 1)] + bytes_put + data[at % (len(data) + 1) + 1 :]


hurt = st.builds(cut, objects, st.integers(0, 200), st.binary(max_size=2))
records = lines.map(lambda one: one.encode("utf-8", "surrogatepass")) | hurt


class Both:
    """Both parsers."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        kind = values.read_ddl(spark.range(1), DDL)
        self.kinds = to_arrow_schema(kind, timezone="UTC")
        self.parser = Parser(self.kinds)

    def parse(self, *given: bytes) -> list[tuple[Any, ...]] | None:
        """The rows by Arrow; None if it refuses."""
        try:
            columns = self.parser.parse(pa.array(given, pa.binary()))
        except NotPlain:
            return None
        assert [one.type for one in columns] == self.kinds.types
        return [tuple(row.values()) for row in pa.RecordBatch.from_arrays(columns, schema=self.kinds).to_pylist()]

    def ask_spark(self, given: Sequence[bytes]) -> list[tuple[Any, ...] | None]:
        """The rows by Spark; None for a bad record."""
        found = {"p:0": enumerate(given)}
        with values.read_staged(self.spark, self.folder / "stage", found, DDL, "json", {}) as frame:
            table = frame.orderBy("_offset").toArrow()
        bad = table.column("_corrupt").is_valid().to_pylist()  # its bytes may be no text
        rows = table.select(self.kinds.names).cast(self.kinds).to_pylist()
        return [None if failed else tuple(row.values()) for row, failed in zip(rows, bad, strict=True)]


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(spark, tmp_path_factory.mktemp("plain"))


def show(row: Any) -> str:
    """The row, such that -0.0 differs from 0.0, and NaN equals NaN."""
    return repr(row)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(records, min_size=40, max_size=80))
def test_what_arrow_reads_spark_reads_alike(both: Both, given: list[bytes]) -> None:
    found = {one: rows for one in given if (rows := both.parse(one)) is not None}
    wanted = dict(zip(found, both.ask_spark(list(found)), strict=True))
    for one, rows in found.items():
        assert show(rows) == show([wanted[one]]), one
    assert show(both.parse(*found)) == show(list(wanted.values())), "together"


def test_plain_values_are_read_without_spark(both: Both) -> None:
    """Arrow refuses none of these, and Spark reads them alike."""
    given = [
        b"{}",
        b'{"n": 1, "i": -2, "h": 3, "d": 0.5, "b": true, "s": "a}{b", "x": {"y": [1, "z", null]}}',
        b'{"t": "2024-02-29T23:59:59.5Z", "z": "2024-01-01 00:00:00", "day": "2024-02-29", "l": [1, 2.5, null]}',
        b'{"r": {"a": 1, "s": "b", "more": 1}, "rs": [{"s": "c", "l": [1, null]}, null], "s": "\\ud83d\\ude00\\n"}',
        b'{"s": null, "x": ", Inf ", "d": 1E2, "n": -0}',
        b'{"x": "' + b"y" * 2000 + b'", "n": 5}',
    ]
    rows = both.parse(*given)
    assert rows is not None
    assert show(rows) == show(both.ask_spark(given))


def test_what_is_no_single_object_is_left_to_spark(both: Both) -> None:
    given = [text.encode() for text in (*JOINED, *SINGLE, *ASIDE)]
    for one, wanted in zip(given, both.ask_spark(given), strict=True):
        found = both.parse(one)
        assert found is None or show(found) == show([wanted]), one


def _skip(*_: Any) -> None:
    """A guard that is taken away."""


def _keep(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A conversion that asks for no form."""
    return column.cast(kind)


DEEP = b'{"n": 1, "x": ' + b"[" * 1100 + b"]" * 1100 + b"}"
LONG = b'{"n": 1, "x": ' + b"1" * 1100 + b"}"
NAME = b'{"n": 1, "' + b"x" * 50_100 + b'": 1}'
GUARDS: dict[str, tuple[bytes, str, Callable[..., Any]]] = {
    "levels": (DEEP, "check_limits", _skip),
    "digits": (LONG, "check_limits", _skip),
    "a name": (NAME, "check_limits", _skip),
    "zero": (b'{"d": -0}', "check_zeros", _skip),
    "a zero in a list": (b'{"l": [1, -0]}', "check_zeros", _skip),
    "a zone": (b'{"t": "2024-01-01T00:00:00+19:00"}', "convert", _keep),
    "bytes": (b'{"n": 1, "x": "\xff"}', "check_lines", _skip),
    "Inf": (b'{"n": 1, "x": Inf}', "check_lines", _skip),
}


@pytest.mark.parametrize("name", GUARDS)
def test_each_guard_leaves_a_value_to_spark(both: Both, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: without the guard, Arrow returns another row than Spark."""
    value, guard, without = GUARDS[name]
    assert both.parse(value) is None
    monkeypatch.setattr(plain_json, guard, without)
    found = both.parse(value)
    assert found is not None
    assert show(found) != show(both.ask_spark([value]))


def test_two_objects_and_a_blank_are_not_two_values(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as values prove nothing if a value may be blank."""
    given = [b'{"n": 1}{"n": 2}', b" "]
    assert both.parse(*given) is None
    monkeypatch.setattr(plain_json, "check_lines", _skip)
    assert both.parse(*given) is not None
    assert both.ask_spark(given) == [None, None]


def test_each_number_is_read_as_spark_reads_it_or_not_at_all(both: Both) -> None:
    given = [f'{{"{name}": {text}}}'.encode() for name in ("n", "d", "s", "x") for text in NUMBERS]
    for one, wanted in zip(given, both.ask_spark(given), strict=True):
        found = both.parse(one)
        assert found is None or show(found) == show([wanted]), one


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_the_nearest_one(number: float) -> None:
    parser = Parser(pa.schema([("d", pa.float64())]))
    if number == 0 and math.copysign(1, number) < 0:
        return
    (column,) = parser.parse(pa.array([f'{{"d": {number!r}}}'.encode()]))
    assert struct.pack("<d", column[0].as_py()) == struct.pack("<d", number)


def test_types_that_spark_has_to_parse() -> None:
    kinds = (pa.float32(), pa.decimal128(5, 2), pa.binary(), pa.map_(pa.string(), pa.int64()), pa.struct([]))
    nested = (pa.list_(pa.date32()), pa.struct([("t", pa.timestamp("us"))]))
    assert not any(map(plain_json.can_read, (*kinds, *nested)))
