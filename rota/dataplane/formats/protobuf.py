"""Decode Protobuf values into columns. The module is sent to Spark's workers as code: it needs pyarrow, protobuf and
grpcio-tools there, and nothing of rota but `registered_columns`.

Law: protobuf decodes a value by the reader's message: fields have numbers, and a number that the reader lacks is passed
over. The writer's schema names the message of a value, which must have the reader's name. A field without presence that a
value lacks has its default, and any other is null. A value is good if it decodes and each declared column holds it.

| Protobuf | column |
|---|---|
| bool, string, bytes | boolean, string, binary |
| float, double | float or double, double |
| int32, sint32, sfixed32 | int or bigint |
| uint32, fixed32, int64, sint64, sfixed64 | bigint |
| uint64, fixed64 | decimal(20,0) |
| enum | string: the name, or the number if it has none |
| repeated, map, message | array, map with string keys, struct |
| google.protobuf.Timestamp; a wrapper such as StringValue | timestamp; the type within, or null |
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from rota.dataplane.formats.registered_columns import HEADER, ColumnDecoder, Mismatch, Undecodable, Writers, read_id

Convert = Callable[[Any], Any]
NAME = "value.proto"
LONG, DIGITS = (pa.int64(),), (pa.decimal128(20, 0),)
HOLDS: Mapping[int, tuple[str, tuple[pa.DataType, ...]]] = {  # FieldDescriptor.type -> DDL, columns
    1: ("double", (pa.float64(),)), 2: ("float", (pa.float32(), pa.float64())), 3: ("bigint", LONG),
    4: ("decimal(20,0)", DIGITS), 5: ("int", (pa.int32(), pa.int64())), 6: ("decimal(20,0)", DIGITS), 7: ("bigint", LONG),
    8: ("boolean", (pa.bool_(),)), 9: ("string", (pa.string(),)), 12: ("binary", (pa.binary(),)), 13: ("bigint", LONG),
    14: ("string", (pa.string(),)), 15: ("int", (pa.int32(), pa.int64())), 16: ("bigint", LONG),
    17: ("int", (pa.int32(), pa.int64())), 18: ("bigint", LONG),
}  # fmt: skip
STRING, MESSAGE, ENUM = 9, 11, 14
STAMP = "google.protobuf.Timestamp"
WRAPPERS = {
    f"google.protobuf.{of}Value"
    for of in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


def compile_text(text: str, imports: Mapping[str, str]) -> bytes:
    """Return the compiled descriptors of a .proto file and of those that it imports, by name.

    protoc is a process of its own: loaded into this process, it and ortools, which rota's assignor loads, end the process.
    Raises: ValueError, if protoc does not compile it; OSError, if protoc cannot run.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for at, one in {**imports, NAME: text}.items():
            path = (folder / at).resolve()
            if not path.is_relative_to(folder):
                raise ValueError(f"it imports {at!r}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(one, encoding="utf-8")
        made = folder / "descriptors"
        words = (f"-I{folder}", "--include_imports", f"--descriptor_set_out={made}", str(folder / NAME))
        command = [sys.executable, "-m", "grpc_tools.protoc", *words]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode < 0:
            raise OSError(f"protoc was ended by signal {-done.returncode}")
        if done.returncode:
            lines = done.stderr.replace(f"{folder}/", "").splitlines() or [""]
            about = (line for line in lines if ".proto:" in line)  # lines of its log are before those about the file
            raise ValueError(f"protoc does not compile it: {next(about, lines[-1])}")
        return made.read_bytes()


def parse(compiled: bytes) -> Any:
    """Return the descriptor of a compiled .proto file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compiled).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(NAME)


def choose_message(compiled: bytes, name: str = "") -> Any:
    """Return the descriptor of the message of this full name, or of the first one of the file. Raises: ValueError."""
    file = parse(compiled)
    found = file.pool.FindMessageTypeByName(name) if name else next(iter(file.message_types_by_name.values()), None)
    if found is None:
        raise ValueError("it has no message")
    return found


def write_ddl(of: Any, depth: int = 4) -> str:
    """Return the type of the column that holds a field, as Spark DDL."""
    if is_map(of):
        return f"map<string,{write_ddl(of.message_type.fields_by_name['value'], depth)}>"
    if of.type != MESSAGE:
        one = HOLDS.get(of.type, ("string", ()))[0]
    elif of.message_type.full_name == STAMP:
        one = "timestamp"
    elif of.message_type.full_name in WRAPPERS:
        one = write_ddl(of.message_type.fields_by_name["value"])
    else:
        fields = ",".join(f"{f.name}:{write_ddl(f, depth - 1)}" for f in of.message_type.fields) if depth else "..."
        one = f"struct<{fields}>"
    return f"array<{one}>" if of.is_repeated else one


def is_map(of: Any) -> bool:
    """Return whether a field is a map."""
    return bool(of.type == MESSAGE and of.message_type.GetOptions().map_entry)


def read_message_path(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of a value's message in its schema, and where the message begins. Raises: Undecodable."""
    count, at = _read_number(value, HEADER)
    path: list[int] = []
    for _ in range(count):
        number, at = _read_number(value, at)
        path.append(number)
    return tuple(path) or (0,), at


def _read_number(value: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number, and where it ends."""
    number = shift = 0
    for byte in value[at : at + 5]:
        number, shift, at = number | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128 and not number & 1:
            return number >> 1, at
        if byte < 128:
            break
    raise Undecodable(f"schema id {read_id(value)}: it does not name its message")


@dataclass
class Decoder(ColumnDecoder):
    """Decodes values into the columns `kinds`.

    Args:
        reader: the compiled file with the reader's message.
        message: its full name; empty: the first of the file.
        find_writer: returns the compiled file of an id. Its OSError ends the task; any other error is the value's.

    Raises: Mismatch, if the columns cannot hold the reader's message.
    """

    kinds: pa.Schema
    reader: bytes
    message: str
    find_writer: Callable[[int], bytes]

    def __post_init__(self) -> None:
        import grpc_tools  # noqa: F401  # without it the task fails, and no value counts as bad
        from google.protobuf.message_factory import GetMessageClass

        found = choose_message(self.reader, self.message)
        self._name, self._make_message, self.raw = found.full_name, GetMessageClass(found), pa.struct(list(self.kinds))
        self._convert, self._messages = _plan_message(self.kinds, found, ""), Writers(self._check)

    def read(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a value. Raises: Undecodable."""
        id = read_id(value)
        path, begin = read_message_path(value)
        self._messages.find(id, (id, path))
        message = self._make_message()
        try:
            message.ParseFromString(value[begin:])
            found: dict[str, Any] = self._convert(message)
        except MemoryError:
            raise
        except Exception as error:  # protobuf raises an error of its own
            raise Undecodable(f"schema id {id}: {type(error).__name__}: {error}") from None
        return found

    def _check(self, key: tuple[int, tuple[int, ...]]) -> None:
        """Raise ValueError if the message at this path in the schema of this id is not the reader's."""
        id, (first, *inner) = key
        found = [*parse(self.find_writer(id)).message_types_by_name.values()][first]
        for one in inner:
            found = found.nested_types[one]
        if found.full_name != self._name:
            raise ValueError(f"message {found.full_name}, and not {self._name}")


def _plan_message(kind: Iterable[pa.Field], of: Any, at: str) -> Convert:
    """Return the function from a message to the fields of a struct. Raises: Mismatch."""
    if lacking := [at + one.name for one in kind if one.name not in of.fields_by_name]:
        held = ", ".join(f"{f.name} {write_ddl(f)}" for f in of.fields)
        raise Mismatch(f"{', '.join(lacking)} is not in it. It has: {held}")
    gets = {one.name: _plan_field(one.type, of.fields_by_name[one.name], f"{at}{one.name}.") for one in kind}
    return lambda message: {name: get(message) for name, get in gets.items()}


def _plan_field(kind: pa.DataType, of: Any, at: str) -> Convert:
    """Return the function from a message to the value of a field."""
    name = of.name
    if is_map(of) and pa.types.is_map(kind) and of.message_type.fields_by_name["key"].type == STRING:
        of_map = _plan_value(kind.item_type, of.message_type.fields_by_name["value"], at)
        return lambda message: {key: of_map(one) for key, one in getattr(message, name).items()}
    if of.is_repeated:
        if is_map(of) or not pa.types.is_list(kind):
            raise Mismatch(f"{at.rstrip('.')} is of another type in it. Declare {write_ddl(of)}")
        each = _plan_value(kind.value_type, of, at)
        return lambda message: [each(one) for one in getattr(message, name)]
    convert = _plan_value(kind, of, at)
    if of.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _plan_value(kind: pa.DataType, of: Any, at: str) -> Convert:
    """Return the function of one value of a field."""
    if of.type == MESSAGE:
        message = of.message_type
        if message.full_name == STAMP and pa.types.is_timestamp(kind) and kind.tz:
            return lambda one: one.seconds * 1_000_000 + one.nanos // 1000
        if message.full_name in WRAPPERS:
            convert = _plan_value(kind, message.fields_by_name["value"], at)
            return lambda one: convert(one.value)
        if pa.types.is_struct(kind):
            return _plan_message(kind, message, at)
    elif kind in HOLDS.get(of.type, ("", ()))[1]:
        if of.type == ENUM:
            names = {number: one.name for number, one in of.enum_type.values_by_number.items()}
            return lambda one: names.get(one, str(one))
        return Decimal if pa.types.is_decimal(kind) else _keep
    raise Mismatch(f"{at.rstrip('.')} is of another type in it. Declare {write_ddl(of)}")


def _keep(one: Any) -> Any:
    return one
