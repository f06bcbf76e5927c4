"""Decode Avro values into columns. The module is sent to Spark's workers as code: it needs pyarrow and fastavro there, and
nothing of rota but `registered_columns`.

Law: fastavro resolves a value from its writer's schema to the reader's, by Avro's rules: fields by name or alias, defaults,
promoted types, unions, enums. A value is good if fastavro decodes it, no byte is left over, and each declared column holds
it. Columns and fields that are not declared are passed over, whatever their type is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import Any

import pyarrow as pa

from rota.dataplane.formats.avro_schemas import Planner, strip
from rota.dataplane.formats.registered_columns import HEADER, ColumnDecoder, Undecodable, Writers, read_id


@dataclass
class Decoder(ColumnDecoder):
    """Decodes values into the columns `kinds`.

    Args:
        reader: the reader's schema, parsed.
        find_writer: returns the parsed schema of an id. Its OSError ends the task; any other error is the value's.

    Raises: Mismatch, if the columns cannot hold the reader's schema.
    """

    kinds: pa.Schema
    reader: Any
    find_writer: Callable[[int], Any]

    def __post_init__(self) -> None:
        from fastavro import parse_schema, schemaless_reader

        planner = Planner()
        plan = planner.plan_record(self.kinds, self.reader)
        if planner.chooses:
            plan = Planner(named=True).plan_record(self.kinds, self.reader)
        self._parse, self._read, self._named = parse_schema, schemaless_reader, planner.chooses
        self._resolved, self.raw, self._convert = parse_schema(plan.schema), plan.raw, plan.convert
        self._writers = Writers(self._resolve)

    def read(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a value. Raises: Undecodable."""
        id = read_id(value)
        writer, reader = self._writers.find(id, id)
        stream = BytesIO(value)
        stream.seek(HEADER)
        try:
            found = self._read_next(stream, writer, reader)
        except Undecodable as error:
            raise Undecodable(f"schema id {id}: {error}") from None
        if left := len(value) - stream.tell():
            raise Undecodable(f"schema id {id}: {left} bytes follow the record")
        return found

    def read_all(self, data: bytes, count: int) -> Iterator[dict[str, Any]]:
        """Yield the fields of so many records, which follow each other. Their writer has the id 0. Raises: Undecodable."""
        writer, reader = self._writers.find(0, 0)
        stream = BytesIO(data)
        for _ in range(count):
            yield self._read_next(stream, writer, reader)
        if left := len(data) - stream.tell():
            raise Undecodable(f"{left} bytes follow the last one of {count} records")

    def _read_next(self, stream: BytesIO, writer: Any, reader: Any) -> dict[str, Any]:
        try:
            read: Any = self._read(stream, writer, reader, return_named_type=self._named)
            found: dict[str, Any] = self._convert(read) if self._convert else read
            return found
        except MemoryError:
            raise
        except Exception as error:  # fastavro raises any of Python's
            raise Undecodable(f"{type(error).__name__}: {error}".rstrip(": ")) from None

    def _resolve(self, id: int) -> tuple[Any, Any]:
        """Return the writer's schema, and the reader's unless both are the same."""
        found = self.find_writer(id)
        return self._parse(strip(found, count())), None if found == self.reader else self._resolved
