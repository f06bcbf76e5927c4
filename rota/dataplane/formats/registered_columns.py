"""Columns of values in Confluent's wire format, whatever the format of the record in them is. The module is sent to Spark's
workers as code: it needs pyarrow there, and nothing of rota.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

HEADER = 5  # bytes before the record: 0, and the id of the writer's schema
Batches = Iterable[pa.RecordBatch]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Undecodable(ValueError):
    """A value that is bad, and why."""


class Mismatch(ValueError):
    """The declared columns cannot hold what a schema describes."""


def read_id(value: bytes) -> int:
    """Return the schema id of a value in Confluent's wire format. Raises: Undecodable."""
    if len(value) < HEADER or value[0]:
        raise Undecodable("it does not begin with a byte 0 and the id of a schema in four bytes")
    return int.from_bytes(value[1:HEADER], "big")


@dataclass
class Writers(Generic[K, V]):
    """What a task needs of each writer's schema, made by `make` once for each key.

    An error of `make` makes the values of that key bad, except an OSError such as ConnectionError, which ends the task.
    """

    make: Callable[[K], V]
    _known: dict[K, V | Undecodable] = field(default_factory=dict)

    def find(self, id: int, key: K) -> V:
        """Return what was made for `key`, of the schema `id`. Raises: Undecodable, OSError."""
        if key not in self._known:
            try:
                self._known[key] = self.make(key)
            except OSError:
                raise
            except Exception as error:  # an unknown id, or a text that is no schema
                why = (str(error) or type(error).__name__).splitlines()[0]
                self._known[key] = Undecodable(f"schema id {id}: {why}")
        if isinstance(known := self._known[key], Undecodable):
            raise known
        return known


class ColumnDecoder:
    """Decodes values into the columns `kinds`. `raw` are Arrow's types of what `read` returns."""

    kinds: pa.Schema
    raw: pa.StructType

    def read(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a value. Raises: Undecodable; OSError, which ends the task."""
        raise NotImplementedError

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[pa.Array], list[bool]]:
        """Return the columns of these values, and which values are bad. An absent value is bad, and its columns are null."""
        rows: list[dict[str, Any]] = []
        bad = [False] * len(values)
        for n, value in enumerate(values):
            row: dict[str, Any] = {}
            try:
                row = self.read(value or b"")
            except Undecodable:
                bad[n] = True
            rows.append(row)
        return self.make_columns(rows, bad), bad

    def make_columns(self, rows: Sequence[Mapping[str, Any]], bad: list[bool]) -> list[pa.Array]:
        """Return the columns of these rows. `bad` is set for a row with a value that its column does not hold."""
        return [self._make_column(one, rows, bad) for one in self.kinds]

    def explain_row(self, row: Mapping[str, Any]) -> str:
        """Return which column does not hold its value in a row; empty if each does."""
        return next(filter(None, (self._explain_cell(one, row.get(one.name)) for one in self.kinds)), "")

    def _make_column(self, column: pa.Field, rows: Sequence[Mapping[str, Any]], bad: list[bool]) -> pa.Array:
        """Return a column. A value that it does not hold is null, and its record is bad."""
        cells = [row.get(column.name) for row in rows]
        try:
            return self._make(column, cells)
        except (pa.ArrowException, ValueError, OverflowError):
            for n, cell in enumerate(cells):
                if self._explain_cell(column, cell):
                    bad[n], cells[n] = True, None
            return self._make(column, cells)

    def _make(self, column: pa.Field, cells: Sequence[Any]) -> pa.Array:
        return pa.array(cells, self.raw.field(column.name).type).cast(column.type)

    def _explain_cell(self, column: pa.Field, cell: Any) -> str:
        try:
            self._make(column, [cell])
        except (pa.ArrowException, ValueError, OverflowError) as error:
            return f"{column.name}: {error}"
        return ""

    def explain(self, value: bytes) -> str:
        """Return why a value is bad; empty if it is good."""
        try:
            row = self.read(value)
        except Undecodable as error:
            return str(error)
        why = self.explain_row(row)
        return why and f"schema id {read_id(value)}: {why}"


def make_decoder(
    read: Callable[[Batches], Batches], make: Callable[[], ColumnDecoder], keep_absent: bool
) -> Callable[[Batches], Batches]:
    """Return the function for `mapInArrow` that reads batches with `read`, and decodes their first column.

    Its columns take the place of the value, and `_corrupt`, the bytes of a bad value, is before partition and offset.
    """

    def decode(batches: Batches) -> Batches:
        decoder = make()
        for batch in read(batches):
            value, *beside, partition, offset = batch.columns
            values = value.to_pylist()
            columns, bad = decoder.decode(values)
            corrupt = [
                (one or b"") if failed and not (keep_absent and one is None) else None
                for one, failed in zip(values, bad, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(
                [*columns, *beside, pa.array(corrupt, pa.binary()), partition, offset],
                names=[*decoder.kinds.names, *batch.schema.names[1:-2], "_corrupt", *batch.schema.names[-2:]],
            )

    return decode
