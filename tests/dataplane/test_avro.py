"""Avro values as columns: what fastavro reads, and nothing else."""

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.formats.avro import Decoder
from rota.dataplane.formats.avro_schemas import parse, write_ddl
from rota.dataplane.formats.registered_columns import Mismatch
from tests.dataplane import avro_cases as cases
from tests.dataplane.avro_cases import Record, encode


def decode(writer: Any, reader: Any, columns: pa.DataType, values: list[bytes]) -> tuple[list[Any], list[bool]]:
    """The rows of these values, and which are bad."""
    schema = pa.schema(list(columns))
    arrays, bad = Decoder(schema, parse(reader), lambda _: parse(writer)).decode(values)
    return pa.RecordBatch.from_arrays(arrays, schema=schema).to_pylist(), bad


@given(cases.records(2), st.data())
def test_each_value_is_fastavros(made: Record, data: st.DataObject) -> None:
    kind = made.kind
    records = data.draw(st.lists(kind.values, min_size=1, max_size=3))
    values = [encode(kind.schema, one) for one in records]
    rows, bad = decode(kind.schema, kind.schema, kind.column, values)
    assert not any(bad)
    assert rows == [cases.show(cases.read(one, kind.schema, kind.schema), kind.column) for one in values]


@given(cases.records(1), st.data())
def test_a_value_of_an_older_schema_is_what_fastavro_resolves(writer: Record, data: st.DataObject) -> None:
    reader = data.draw(cases.evolve(writer)).kind
    value = encode(writer.kind.schema, data.draw(writer.kind.values))
    (row,), (bad,) = decode(writer.kind.schema, reader.schema, reader.column, [value])
    expected = cases.show(cases.read(value, writer.kind.schema, reader.schema), reader.column)
    assert not bad
    for name, one in expected.items():  # fastavro leaves the default of a time a number
        kind = reader.column.field(name).type
        if isinstance(one, int) and pa.types.is_timestamp(kind):
            one = pa.array([one * (1000 if one in (5, 7) else 1)], kind)[0].as_py()
        assert row[name] == one


ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "street", "type": "string"}]}
COLOUR = {"type": "enum", "name": "Colour", "namespace": "shop", "symbols": ["red", "blue"]}
BOTH = pa.struct([("member0", pa.int32()), ("member1", pa.int64()), ("member2", pa.string())])
TEXT = pa.struct([("street", pa.string())])


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "namespace": "shop", **more} | {
        "fields": [{"name": name, "type": kind} for name, kind in fields]
    }


def test_a_union_of_several_types_is_a_struct_with_a_field_for_each() -> None:
    members = [("member0", pa.string()), ("member1", pa.string()), ("member2", TEXT), ("member3", pa.int64())]
    union = ["null", "string", COLOUR, ADDRESS, "long"]
    schema = record(
        ("u", union), ("a", ["null", "shop.Address"]), ("many", {"type": "array", "items": ["null", "int", "string"]})
    )
    column = pa.struct(
        [
            ("u", pa.struct(members)),
            ("a", TEXT),
            ("many", pa.list_(pa.struct([("member0", pa.int32()), ("member1", pa.string())]))),
        ]
    )
    assert write_ddl(parse(schema)["fields"][0]["type"]) == (
        "struct<member0:string,member1:string,member2:struct<street:string>,member3:bigint>"
    )
    given = [None, "red", ("shop.Colour", "red"), ("shop.Address", {"street": "x"}), 7]
    values = [encode(schema, {"u": one, "a": {"street": "y"}, "many": [None, 1, "s"]}) for one in given]
    rows, bad = decode(schema, schema, column, values)
    assert not any(bad)
    assert [row["u"] and {name: one for name, one in row["u"].items() if one is not None} for row in rows] == [
        None, {"member0": "red"}, {"member1": "red"}, {"member2": {"street": "x"}}, {"member3": 7}
    ]  # fmt: skip
    assert {str(row["a"]) for row in rows} == {"{'street': 'y'}"}
    assert rows[0]["many"] == [None, {"member0": 1, "member1": None}, {"member0": None, "member1": "s"}]


def test_a_type_that_has_a_name_in_one_schema_and_its_place_in_the_other_is_resolved() -> None:
    """fastavro fails where the writer's schema names a type and the reader's has it within a union."""
    writer = record(("one", ADDRESS), ("two", "shop.Address"), ("gone", {"type": "array", "items": "shop.Address"}))
    reader = record(("two", ["null", ADDRESS]))
    value = encode(writer, {"one": {"street": "a"}, "two": {"street": "b"}, "gone": []})
    with pytest.raises(TypeError):
        cases.read(value, writer, reader)
    assert decode(writer, reader, pa.struct([("two", TEXT)]), [value]) == ([{"two": {"street": "b"}}], [False])


def test_a_logical_type_is_the_readers() -> None:
    """fastavro takes the writer's: of a plain long that became a time it returns the number."""
    for before, after, expected in (
        ("long", cases.logical("long", "timestamp-millis"), 1_500_000),
        (cases.logical("long", "timestamp-micros"), cases.logical("long", "timestamp-millis"), 1_500_000),
        (cases.logical("long", "timestamp-millis"), cases.logical("long", "timestamp-micros"), 1500),
    ):
        value = encode(record(("at", "long")), {"at": 1500})
        rows, bad = decode(
            record(("at", before)), record(("at", after)), pa.struct([("at", pa.timestamp("us", "UTC"))]), [value]
        )
        assert bad == [False]
        assert pa.array([rows[0]["at"]]).cast(pa.int64()).to_pylist() == [expected]


def test_a_value_that_a_column_does_not_hold_is_bad_alone() -> None:
    """fastavro rounds a decimal with more digits than its schema has."""
    decimal = cases.logical("bytes", "decimal", precision=4, scale=2)
    times = record(("d", decimal), ("at", cases.logical("long", "timestamp-millis")))
    raw, column = (
        record(("d", "bytes"), ("at", "long")),
        pa.struct([("d", pa.decimal128(4, 2)), ("at", pa.timestamp("us", "UTC"))]),
    )
    values = [
        encode(raw, {"d": n.to_bytes(4, "big", signed=True), "at": at})
        for n, at in ((1234, 1), (123456, 1), (-99, 2**62))
    ]
    values += [values[0] + b"x", values[0][:-1], b"\x00\x00", b"\x01" + values[0][1:], b""]
    rows, bad = decode(times, times, column, values)
    assert bad == [False, *[True] * 7]
    assert str(rows[0]["d"]) == "12.34"
    decoder = Decoder(pa.schema(list(column)), parse(times), lambda _: parse(times))
    reasons = [decoder.explain(value) for value in values]
    assert not reasons[0]
    for reason, expected in zip(
        reasons[1:],
        (
            "schema id 1: d: ",
            "schema id 1: at: ",
            "schema id 1: 1 bytes follow",
            "schema id 1: EOFError",
            *["it does not begin"] * 3,
        ),
        strict=True,
    ):
        assert reason.startswith(expected)


def test_what_avro_does_not_resolve_is_bad_and_the_reason_names_the_id() -> None:
    writer = record(("n", "string"), ("c", COLOUR))
    value = encode(writer, {"n": "x", "c": "blue"}, id=9)
    for reader, column, reason in (
        (record(("n", "int")), pa.int32(), "schema id 9: SchemaResolutionError"),
        (record(("m", "int")), pa.int32(), "No default value for field m"),
        (record(("c", {**COLOUR, "symbols": ["red"]})), pa.string(), "blue not found"),
        ({**record(("n", "string")), "name": "Invoice"}, pa.string(), "schema id 9: SchemaResolutionError"),
    ):
        columns = pa.schema([(reader["fields"][0]["name"], column)])
        decoder = Decoder(columns, parse(reader), lambda _: parse(writer))
        assert decoder.decode([value])[1] == [True]
        assert reason in decoder.explain(value)
    fallback = record(("c", {**COLOUR, "symbols": ["red"], "default": "red"}))
    assert decode(writer, fallback, pa.struct([("c", pa.string())]), [value]) == ([{"c": "red"}], [False])


@pytest.mark.parametrize(
    ("schema", "column", "line"),
    [
        ("string", pa.int32(), "a is of another type in it. Declare string"),
        (cases.logical("bytes", "decimal", precision=9, scale=3), pa.decimal128(9, 2), "Declare decimal(9,3)"),
        (cases.logical("bytes", "decimal", precision=9, scale=3), pa.float64(), "Declare decimal(9,3)"),
        (cases.logical("long", "timestamp-millis"), pa.timestamp("us"), "Declare timestamp"),
        (cases.logical("long", "local-timestamp-micros"), pa.timestamp("us", "UTC"), "Declare timestamp_ntz"),
        (cases.logical("int", "date"), pa.int32(), "Declare date"),
        (cases.logical("int", "time-millis"), pa.string(), "Declare int"),
        ({"type": "array", "items": "long"}, pa.list_(pa.string()), "Declare bigint"),
        ({"type": "map", "values": COLOUR}, pa.string(), "Declare map<string,string>"),
        (["null", "string", "long"], pa.string(), "Declare struct<member0:string,member1:bigint>"),
        (["int", "long", "null"], pa.string(), "Declare bigint"),
        (["int", "long", "string"], BOTH, "a is a union whose values do not show which type they have"),
        (ADDRESS, pa.struct([("town", pa.string())]), "a.town is not in it. It has: street string"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused_with_what_to_declare(schema: Any, column: pa.DataType, line: str) -> None:
    with pytest.raises(Mismatch, match=re.escape(line)):
        Decoder(pa.schema([("a", column)]), parse(record(("a", schema))), lambda _: None)


def test_a_type_within_itself_is_passed_over() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    schema = record(("n", "int"), ("list", node))
    value = encode(schema, {"n": 5, "list": {"next": {"next": None}}})
    assert decode(schema, schema, pa.struct([("n", pa.int32())]), [value]) == ([{"n": 5}], [False])
    other = record(("x", "int"), ("list", node), ("n", "int"))
    value = encode(other, {"x": 1, "n": 5, "list": {"next": {"next": None}}})
    assert decode(other, schema, pa.struct([("n", pa.int32())]), [value]) == ([{"n": 5}], [False])
