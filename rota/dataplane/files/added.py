"""Add undeclared columns of landed Parquet files to the table: `new_columns="add"`.

Law: no value of a landed file is lost or becomes null without an error. A job reads the declared columns, the columns added
before, and the columns that its own files bring. Only an added column is null for a file that lacks the column.

Law: an added column keeps its type. The type has an equal value for each value of the file that brought the column. A file
stops its partition if its values do not fit the type, or if its struct has other fields. So does a file with names that
differ in case only, or with the name of one of rota's own columns.

The table's schema marks an added column with its name in files, and with the file that brought it. Spark keeps the marks if
a transform renames the column, and drops them from columns that a transform computes.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.dataplane.files.parquet import NANOS, NANOSECONDS, NULLS, Footer, Node, find_type
from rota.ledger.schema import ADDED, BROUGHT, list_added
from rota.pipeline import name_columns
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

OURS = (PARTITION, OFFSET)
Field = Mapping[str, Any]  # a field of a Spark schema, in JSON


@dataclass(frozen=True, slots=True)
class Added:
    """The undeclared columns that a job reads: `chosen`, by lower-case name. `declared`: the declared lower-case names."""

    declared: frozenset[str]
    chosen: dict[str, Field]

    @classmethod
    def of(cls, declared: str, table: str | None) -> "Added":
        """Return the columns added before. `declared`: the declared columns (DDL). `table`: the table's schema (JSON)."""
        names = frozenset(name.lower() for name in name_columns(declared))
        there = {field["name"].lower(): field for field in (list_added(json.loads(table)) if table else ())}
        return cls(names, {name: field for name, field in there.items() if name not in names})

    def take(self, path: str, footer: Footer | None) -> str:
        """Add the columns that this file brings. Return why the file stops its partition; empty if it does not.

        `parquet.explain_misfit` later compares the file with the columns that other files brought.
        """
        whole = footer.whole if footer and footer.rows else Node("")
        alike: dict[str, list[str]] = {}
        for name, _ in whole.parts:
            alike.setdefault(name.lower(), []).append(name)
        for name, part in whole.parts:
            if name.lower() in self.declared or part.key == NULLS:
                continue
            if why := _explain_name(name, part, alike[name.lower()]):
                return why
            if name.lower() not in self.chosen:
                marks = {ADDED: name, BROUGHT: path}
                field = {"name": name, "type": find_type(part), "nullable": True, "metadata": marks}
                self.chosen[name.lower()] = field
        return ""


def _explain_name(name: str, part: Node, same: list[str]) -> str:
    """Return why this column cannot be added; empty if it can. `same`: the file's names that equal `name` but for case."""
    if name.lower() in OURS:
        return f"has a column {name}, which is called like one of rota's own. Land it under another name"
    if len(same) > 1:
        return f"has {' and '.join(same)}, which are one column to Spark. Land them under other names"
    try:
        find_type(part)
    except LookupError as error:
        if part.key == NANOS:
            return f"has {name} as {part.shown}. {NANOSECONDS}"
        lost = f"{name}{error.args[0]}"
        return (
            f"has {name} as {part.shown}. No type of Spark has the values of {lost}: write the file with another type"
        )
    return ""


def extend(spark: "SparkSession", schema: str, added: Iterable[Field]) -> "StructType | str":
    """Return the schema for Spark's reader: the columns of the DDL, and the added ones. An added column replaces a declared
    one of the same name."""
    if not (fields := {field["name"].lower(): field for field in added}):
        return schema
    from pyspark.sql.types import StructField, StructType

    declared = [fields.pop(one.name.lower(), one.jsonValue()) for one in spark.createDataFrame([], schema).schema]
    return StructType([StructField.fromJson(dict(field)) for field in (*declared, *fields.values())])
