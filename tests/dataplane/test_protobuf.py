"""Protobuf values as columns: what protobuf reads."""

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.formats.protobuf import Decoder, choose_message, compile_text, write_ddl
from rota.dataplane.formats.registered_columns import Mismatch

ADDRESS = 'syntax = "proto3"; package shop; message Address { string street = 1; }'
HEAD = 'syntax = "proto3"; package shop; import "address.proto"; import "google/protobuf/timestamp.proto";'
ALL = f"""{HEAD} import "google/protobuf/wrappers.proto"; message Order {{
    bool b = 1; int32 i = 2; sint64 l = 3; uint32 u = 4; uint64 v = 5; float f = 6; double d = 7; string s = 8;
    bytes y = 9; enum Kind {{ NONE = 0; SOME = 1; }} Kind k = 10; optional int32 oi = 11;
    oneof either {{ string left = 12; int32 right = 13; }}
    repeated sfixed32 many = 14; map<string, Address> places = 15; Address home = 16; google.protobuf.Timestamp at = 17;
    google.protobuf.StringValue w = 18; message Line {{ fixed64 n = 1; }} repeated Line lines = 19;
}}
message Other {{ int32 i = 1; message Inner {{ int32 i = 1; }} }}"""
IMPORTS = {"address.proto": ADDRESS}
STREET = pa.struct([("street", pa.string())])
COLUMNS = pa.schema([
    ("b", pa.bool_()), ("i", pa.int32()), ("l", pa.int64()), ("u", pa.int64()), ("v", pa.decimal128(20, 0)),
    ("f", pa.float32()), ("d", pa.float64()), ("s", pa.string()), ("y", pa.binary()), ("k", pa.string()),
    ("oi", pa.int64()), ("left", pa.string()), ("right", pa.int32()), ("many", pa.list_(pa.int32())),
    ("places", pa.map_(pa.string(), STREET)), ("home", STREET), ("at", pa.timestamp("us", "UTC")), ("w", pa.string()),
    ("lines", pa.list_(pa.struct([("n", pa.decimal128(20, 0))]))),
])  # fmt: skip
COMPILED = compile_text(ALL, IMPORTS)
ORDER = choose_message(COMPILED)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
VALUES = st.fixed_dictionaries({}, optional={
    "b": st.booleans(), "i": st.integers(-(2**31), 2**31 - 1), "l": st.integers(-(2**63), 2**63 - 1),
    "u": st.integers(0, 2**32 - 1), "v": st.integers(0, 2**64 - 1), "f": st.floats(width=32, allow_nan=False),
    "d": st.floats(allow_nan=False), "s": TEXTS, "y": st.binary(max_size=4), "k": st.sampled_from([0, 1, 7]),
    "oi": st.integers(-5, 5), "right": st.integers(-5, 5), "many": st.lists(st.integers(-5, 5), max_size=3),
    "home": TEXTS.map(lambda text: {"street": text}),
    "lines": st.lists(st.integers(0, 2**64 - 1).map(lambda n: {"n": n}), max_size=2),
})  # fmt: skip


def encode(message: Any, path: bytes = b"\x00", id: int = 1) -> bytes:
    return b"\x00" + id.to_bytes(4, "big") + path + message.SerializeToString()


def open_decoder(columns: pa.Schema, message: str = "") -> Decoder:
    return Decoder(columns, COMPILED, message, lambda _: COMPILED)


@given(VALUES)
def test_each_value_is_protobufs(given: dict[str, Any]) -> None:
    message = GetMessageClass(ORDER)(**given)
    message.places["x"].street = "y"
    message.at.seconds, message.at.nanos = -5, 123_456_789
    message.w.value = ""
    arrays, bad = open_decoder(COLUMNS).decode([encode(message)])
    row = pa.RecordBatch.from_arrays(arrays, schema=COLUMNS).to_pylist()[0]
    assert bad == [False]
    for name in ("b", "i", "l", "u", "v", "f", "d", "s", "y"):
        assert row[name] == getattr(message, name), name
    assert row["k"] == {0: "NONE", 1: "SOME"}.get(message.k, str(message.k))
    for name in ("oi", "left", "right"):
        assert row[name] == (getattr(message, name) if message.HasField(name) else None)
    assert row["home"] == ({"street": message.home.street} if message.HasField("home") else None)
    assert (row["many"], row["w"]) == (list(message.many), "")
    assert row["places"] == [("x", {"street": "y"})]
    assert row["lines"] == [{"n": one.n} for one in message.lines]
    assert arrays[16].cast(pa.int64()).to_pylist() == [-5_000_000 + 123_456]


def test_a_message_is_found_by_its_place_and_read_by_numbers() -> None:
    head = "syntax = 'proto3'; package shop; message"
    writer = f"{head} First {{ int32 a = 1; }} message Order {{ int32 n = 1; string gone = 2; }}"
    reader = f"{head} Order {{ int64 number = 1; optional string neu = 3; string also = 4; }}"
    of_writer, of_reader = compile_text(writer, {}), compile_text(reader, {})
    columns = pa.schema([("number", pa.int64()), ("neu", pa.string()), ("also", pa.string())])
    decoder = Decoder(columns, of_reader, "", lambda _: of_writer)
    message = GetMessageClass(choose_message(of_writer, "shop.Order"))(n=5, gone="x")
    assert decoder.read(encode(message, b"\x02\x02")) == {"number": 5, "neu": None, "also": ""}
    assert decoder.explain(encode(message, b"\x00")) == "schema id 1: message shop.First, and not shop.Order"
    assert decoder.explain(encode(message, b"\x02\x08")) == "schema id 1: list index out of range"
    for path in (b"", b"\x01", b"\x80\x80\x80\x80\x80\x80", b"\x02"):
        assert decoder.explain(b"\x00\x00\x00\x00\x01" + path) == "schema id 1: it does not name its message"
    nested = GetMessageClass(choose_message(COMPILED, "shop.Other.Inner"))(i=7)
    inner = open_decoder(pa.schema([("i", pa.int32())]), message="shop.Other.Inner")
    assert inner.read(encode(nested, b"\x04\x02\x00")) == {"i": 7}


def test_what_does_not_decode_is_bad_and_the_reason_names_the_id() -> None:
    decoder = open_decoder(COLUMNS)
    good = encode(GetMessageClass(ORDER)(s="text"), id=9)
    assert not decoder.explain(good)
    assert decoder.explain(good[:-1]).startswith("schema id 9: DecodeError")
    assert decoder.explain(b"\x01" + good[1:]).startswith("it does not begin with a byte 0")
    late = GetMessageClass(ORDER)()
    late.at.seconds = 2**62
    assert decoder.explain(encode(late)).startswith("schema id 1: at: ")
    assert decoder.decode([good, good[:-1], encode(late)])[1] == [False, True, True]
    broken = Decoder(COLUMNS, COMPILED, "", lambda _: compile_text("no file", {}))
    assert broken.explain(good).startswith("schema id 9: protoc does not compile it: value.proto:1:1: ")


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("v", pa.int64(), "v is of another type in it. Declare decimal(20,0)"),
        ("many", pa.int32(), "Declare array<int>"),
        ("places", pa.list_(STREET), "Declare map<string,struct<street:string>>"),
        ("home", pa.struct([("town", pa.string())]), "home.town is not in it. It has: street string"),
        ("at", pa.timestamp("us"), "Declare timestamp"),
        ("w", pa.int32(), "Declare string"),
        ("lines", pa.list_(pa.int64()), "Declare array<struct<n:decimal(20,0)>>"),
        ("nope", pa.int32(), "nope is not in it. It has: b boolean, i int"),
    ],
)
def test_columns_that_do_not_fit_are_refused_with_what_to_declare(name: str, kind: pa.DataType, line: str) -> None:
    with pytest.raises(Mismatch) as caught:
        open_decoder(pa.schema([(name, kind)]))
    assert line in str(caught.value)


def test_a_message_within_itself_is_described_to_a_depth() -> None:
    node = "syntax = 'proto3'; message Node { Node next = 1; }"
    assert write_ddl(choose_message(compile_text(node, {})).fields[0]).startswith("struct<next:struct<next:")
    with pytest.raises(ValueError, match="it imports"):
        compile_text(node, {"../x.proto": ADDRESS})


LOADING = """
from ortools.graph.python import min_cost_flow
{first}
from rota.dataplane.formats.protobuf import choose_message, compile_text
print(choose_message(compile_text("syntax = 'proto3'; message A {{ int32 n = 1; }}", {{}})).name)
"""


@pytest.mark.parametrize("first", ["", "from grpc_tools import protoc"], ids=["", "ablation"])
def test_a_process_may_rebalance_and_read_protobuf(first: str) -> None:
    """The assignor loads ortools. Ablation: with protoc in the same process, a signal ends the process."""
    command = [sys.executable, "-c", LOADING.format(first=first)]
    done = subprocess.run(command, capture_output=True, check=False)
    if first:
        assert done.returncode < 0, done.stdout
    else:
        assert (done.returncode, done.stdout) == (0, b"A\n"), done.stderr


def test_a_protoc_that_cannot_run_makes_no_value_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else good records would be put into the quarantine while a machine has no process or memory left."""
    decoder = Decoder(COLUMNS, COMPILED, "", lambda _: compile_text(ALL, IMPORTS))
    value = encode(GetMessageClass(ORDER)(s="text"))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(OSError, match="nowhere"):
            decoder.decode([value])
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, -9, "", ""))
        with pytest.raises(OSError, match="protoc was ended by signal 9"):
            decoder.decode([value])
    assert decoder.decode([value])[1] == [False]
