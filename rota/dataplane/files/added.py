"""Columns of landed Parquet files that are not declared and are added to the table: `new_columns="add"`.

Law: no value of a landed file is lost or null without an error. A job reads the declared columns, those that were added
before, and those that its own files bring. Only an added column is null for a file that lacks it.

Law: it has one type for ever, in which each value of the file that brought it has an equal one. A file of which that is not
so stops its partition. So does one with another field in it, with names that differ in case only, or with the name of a
column of rota's own.

The table's schema marks such a column with the name that it has in files, and with the file that brought it. Spark passes
the marks on with the column, also where a transform renames it, and not to what a transform makes of it.
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
Field = Mapping[str, Any]  # as a schema of Spark has it in JSON


@dataclass(frozen=True, slots=True)
class Added:
    """What a job reads beside the declared columns: `chosen`, by name in small letters. `declared` are those names."""

    declared: frozenset[str]
    chosen: dict[str, Field]

    @classmethod
    def of(cls, declared: str, table: str | None) -> "Added":
        """Return the columns that were added to the table of this schema (JSON) before. `declared` is a DDL."""
        names = frozenset(name.lower() for name in name_columns(declared))
        there = {field["name"].lower(): field for field in (list_added(json.loads(table)) if table else ())}
        return cls(names, {name: field for name, field in there.items() if name not in names})

    def take(self, path: str, footer: Footer | None) -> str:
        """Take the columns that this file brings. Return why its partition stops; empty if it does not.

        Whether the file fits the columns of other files is checked once all files are taken.
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
    """Why a column of this name does not get into the table; `same` are the file's names that differ from it in case only,
    and itself."""
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
    """Return the columns of a DDL and those that are added, as Spark's reader takes them. An added column replaces a
    declared one of its name."""
    if not (fields := {field["name"].lower(): field for field in added}):
        return schema
    from pyspark.sql.types import StructField, StructType

    declared = [fields.pop(one.name.lower(), one.jsonValue()) for one in spark.createDataFrame([], schema).schema]
    return StructType([StructField.fromJson(dict(field)) for field in (*declared, *fields.values())])
