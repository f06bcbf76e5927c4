"""Columns: their names in Spark's SQL, those that rota adds, and values without Arrow views."""

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def quote_name(name: str) -> str:
    """Return a name as Spark's SQL quotes it."""
    return f"`{name.replace('`', '``')}`"


def keep_ids(frame: "DataFrame") -> "DataFrame":
    """The frame, which has the partition ids, as a step of its own: `origins` reads the columns of a step."""
    return frame.select("*")


def without_views(rows: pa.Table) -> pa.Table:
    """Return the same values without Arrow's string views, which Arrow cannot filter."""
    plain = plain_schema(rows.schema)
    return rows if plain == rows.schema else rows.cast(plain)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema without string views."""
    return pa.schema([field.with_type(_without_views(field.type)) for field in schema], schema.metadata)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        return pa.map_(_without_views(kind.key_type), _without_views(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    return kind
