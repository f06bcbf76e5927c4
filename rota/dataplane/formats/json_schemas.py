"""Check JSON values against the schemas that they name. The module is sent to Spark's workers as code, with
`registered_columns`: it needs pyarrow and jsonschema-rs there, and nothing else of rota.

Law: a value is good only if it is valid under its writer's schema. Spark then parses its text as it does any JSON. A schema
without `$schema` is of draft 7, as in Confluent's clients.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rota.dataplane.formats.registered_columns import HEADER, Batches, Undecodable, Writers, read_id

WHOLE = "_rota_value"  # the column of the whole values
LONGEST = 200  # characters of a reason


@dataclass
class Checker:
    """Checks values. `find_schema` returns the schema of an id, and those that it refers to, by name. Its OSError
    ends the task; any other error is the value's."""

    find_schema: Callable[[int], tuple[Any, Mapping[str, Any]]]

    def __post_init__(self) -> None:
        self._validators = Writers(self._make_validator)

    def cut(self, value: bytes) -> bytes:
        """Return the text of a value. Raises: Undecodable, if it does not match its schema."""
        id, text = read_id(value), value[HEADER:]
        validator = self._validators.find(id, id)
        try:
            read = json.loads(text)
        except (ValueError, RecursionError):
            return text  # Spark's parser decides what is JSON
        if validator.is_valid(read):
            return text
        error = next(validator.iter_errors(read))
        at = ".".join(map(str, error.instance_path))
        raise Undecodable(f"schema id {id}: {f'{at}: ' if at else ''}{error.message[:LONGEST]}")

    def _make_validator(self, id: int) -> Any:
        from jsonschema_rs import Draft7Validator, validator_for

        schema, named = self.find_schema(id)
        make = validator_for if isinstance(schema, dict) and "$schema" in schema else Draft7Validator

        def retrieve(uri: str) -> Any:
            return next(one for name, one in named.items() if uri == name or uri.endswith(f"/{name}"))

        return make(schema, retriever=retrieve)

    def explain(self, value: bytes) -> str:
        """Return why a value does not match its schema; empty if it does."""
        try:
            self.cut(value)
        except Undecodable as error:
            return str(error)
        return ""


def make_checker(read: Callable[[Batches], Batches], make: Callable[[], Checker]) -> Callable[[Batches], Batches]:
    """Return the function for `mapInArrow` that reads batches with `read`, and takes their first column as values.

    The text of each value takes its place, which is empty if the value is bad. The whole values are the column after it.
    """

    def check(batches: Batches) -> Batches:
        checker = make()

        def cut(value: bytes | None) -> bytes | None:
            try:
                return None if value is None else checker.cut(value)
            except Undecodable:
                return b""

        for batch in read(batches):
            value, *others = batch.columns
            texts = pa.array(map(cut, value.to_pylist()), pa.binary())
            yield pa.RecordBatch.from_arrays(
                [texts, value, *others], names=[batch.schema.names[0], WHOLE, *batch.schema.names[1:]]
            )

    return check
