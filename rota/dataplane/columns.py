"""The columns of a table against the columns of a batch.

Law: a batch may bring new columns, which the table gets before the commit; one that lacks a column of the table, or has
it in another type, is refused before anything is written. Nullability is not compared: every column may be null.
"""

import json
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Field, Schema

from rota.dataplane.delta.commit_info import OFFSET, PARTITION
from rota.errors import BadTransform, EnvironmentFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPLIT = "rota_partition"  # the column that splits a written folder by partition; it is in no file
PLAIN = re.compile(
    r"byte|short|integer|long|float|double|boolean|string|binary|date|timestamp|timestamp_ntz|decimal\(\d+,-?\d+\)"
)
NEEDED = {PARTITION: "string", OFFSET: "long"}
WRITTEN = {  # how Spark's writer leaves files, and nothing beside them
    "compression": "snappy",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Without a file of checksums for each, which nobody reads: Hadoop starts a `chmod` for every file that it makes, so
    # these were a quarter of what it costs to write few rows of a hundred partitions (2.1 CPU seconds, 1.6 without).
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # of this write alone
}
FIRST = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in NEEDED.items()],
    }
)


def check_columns(batch: str, table: str | None, *, whole: bool = True) -> None:
    """Raises BadTransform where a batch of this schema cannot go into a table of that one (both JSON; None: no table).

    `whole`: it must have every column of the table. It need not have those that others added while its job ran.
    """
    found, there = _types(batch), _types(table) if table else {}
    for name, kind in {**NEEDED, **there}.items():
        if name not in found:
            if name not in NEEDED and not whole:
                continue
            raise BadTransform(f"The transform dropped the column {name}, which the table has. Keep it in the result")
        if found[name] != kind:
            raise BadTransform(
                f"Column {name} is {_shown(found[name])} and was {_shown(kind)} in the table. Cast it back, or "
                f"give it a new name"
            )
    if SPLIT in map(str.lower, found):  # Spark would put ours in its place, whatever its case
        raise BadTransform(f"The column name {SPLIT} is taken by rota. Give yours another name")
    low = [name.lower() for name in found]
    if twice := sorted({name for name in low if low.count(name) > 1}):
        raise BadTransform(f"Columns {', '.join(twice)} stand twice in the transform's result. Drop or rename one")


def split(frame: "DataFrame") -> "DataFrame":
    """The frame with the column by which a writer splits it into folders: a number, which no two partitions share. Of an id
    as text, which may be null, Spark's writer would copy each row once more; `footers` names the folders after the ids."""
    from pyspark.sql import functions as F  # noqa: N812

    return frame.withColumn(SPLIT, F.xxhash64(frame[PARTITION]))


def restore_ids(frame: "DataFrame") -> "DataFrame":
    """The frame with the partition ids instead of what their folders are called: see `names.split`."""
    from pyspark.sql import functions as F  # noqa: N812

    return frame.withColumn(PARTITION, F.unhex(PARTITION).cast("string"))


def find_added(table: str, batches: Iterable[str]) -> list[Field]:
    """The columns that these batches have and the table has not. Raises BadTransform for a column of another type."""
    there = set(_types(table))
    fields: dict[str, Field] = {}
    for batch in set(batches):
        check_columns(batch, table, whole=False)
        fields.update({f.name: f for f in _fields(batch, set(_types(batch)) - there - set(fields))})
    return list(fields.values())


def count_rows(files: Sequence[Path]) -> int:
    """The rows that Parquet files hold, by their footers; one of no bytes has none, as Spark reads it. Raises
    EnvironmentFailed for one that cannot be read."""
    try:
        with ThreadPoolExecutor(8) as pool:
            return sum(pool.map(_rows, files))
    except (OSError, pa.ArrowException) as error:
        raise EnvironmentFailed(f"The footer of a Parquet file cannot be read ({error}). It is tried again") from error


def _rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows) if file.stat().st_size else 0


def _fields(schema: str, names: set[str]) -> list[Field]:
    wanted = [
        {"name": f["name"], "type": _nullable(f["type"]), "nullable": True, "metadata": {}}
        for f in json.loads(schema)["fields"]
        if f["name"] in names
    ]
    return list(Schema.from_json(json.dumps({"type": "struct", "fields": wanted})).fields)


def _types(schema: str) -> dict[str, Any]:
    return {f["name"]: _nullable(f["type"]) for f in json.loads(schema)["fields"]}


def _nullable(kind: Any) -> Any:
    """The type with every part of it nullable and without metadata: the same data, whatever Spark inferred."""
    if isinstance(kind, str):
        kind = kind.partition(" collate ")[0]  # what a Python function returns; the collation is not of the data
        if PLAIN.fullmatch(kind):
            return kind
        raise BadTransform(f"A Delta table cannot hold a column of type {kind}. Cast or drop it")
    if kind["type"] == "struct":
        fields = [
            {"name": f["name"], "type": _nullable(f["type"]), "nullable": True, "metadata": {}} for f in kind["fields"]
        ]
        return {"type": "struct", "fields": fields}
    if kind["type"] == "array":
        return {"type": "array", "elementType": _nullable(kind["elementType"]), "containsNull": True}
    if kind["type"] == "map":
        types = {"keyType": _nullable(kind["keyType"]), "valueType": _nullable(kind["valueType"])}
        return {"type": "map", **types, "valueContainsNull": True}
    raise BadTransform(f"A Delta table cannot hold a column of type {kind['type']}. Cast or drop it")


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)
