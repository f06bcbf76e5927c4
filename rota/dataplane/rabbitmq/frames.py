"""Messages as a frame of Spark: staged as Parquet beside the table, and parsed by Spark's own JSON.

Law: a message is one record, good if and only if a line of a landed JSON file with this text would be (`parsing`), and if it
holds one object: an array, a blank text, `null` and what follows a first value make it bad. Never is a part of it dropped.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane import names
from rota.dataplane.delta.commit_info import OFFSET, PARTITION
from rota.dataplane.files.lines import LOOKS
from rota.dataplane.files.staging import escape
from rota.dataplane.spark.spark_source import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXT, WHOLE, RECORD = "text", "whole", "record"
STAGED = pa.schema([(TEXT, pa.string()), (WHOLE, pa.bool_()), (PARTITION, pa.string()), (OFFSET, pa.int64())])
JOINED = re.compile(LOOKS)


def stage(folder: Path, partition: str, messages: Iterable[tuple[int, bytes]]) -> None:
    """Writes a partition's messages, pairs of offset and body, where Spark reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [(offset, decode(body)) for offset, body in messages]
    columns = [
        [text for _, text in texts],
        [is_one(text) for _, text in texts],
        [partition] * len(texts),
        [offset for offset, _ in texts],
    ]
    table = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, STAGED, strict=True)], schema=STAGED)
    pq.write_table(table, folder / f"{names.split(partition)}.parquet")


def read_staged(spark: "SparkSession", folder: Path, schema: str, options: Mapping[str, str]) -> "DataFrame":
    """The staged messages as records of the schema, with `_corrupt`, `_partition` and `_offset`."""
    from pyspark.sql import functions as F  # noqa: N812

    staged = f"{TEXT} string, {WHOLE} boolean, {PARTITION} string, {OFFSET} bigint"
    frame = spark.read.schema(staged).parquet(escape(folder))
    kept = {
        "enableDateTimeParsingFallback": "false",
        **options,
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
    }
    record = F.when(frame[WHOLE], F.from_json(frame[TEXT], f"{schema}, {CORRUPT} string", kept))
    frame = frame.select(record.alias(RECORD), TEXT, PARTITION, OFFSET)
    found = frame.select(f"{RECORD}.*").columns
    quoted = [f"`{name.replace('`', '``')}`" for name in found]
    columns = [F.col(f"{RECORD}.{name}") for name, plain in zip(quoted, found, strict=True) if plain != CORRUPT]
    bad = F.when(F.col(RECORD).isNull(), F.col(TEXT)).otherwise(F.col(f"{RECORD}.{CORRUPT}"))
    return frame.select(*columns, bad.alias(CORRUPT), PARTITION, OFFSET)


def decode(body: bytes) -> str:
    """The text of a body; as in a landed file, what is no UTF-8 is replaced."""
    return body.decode("utf-8", "replace")


def is_one(text: str) -> bool:
    """Whether no second value follows the first. Few texts look so, and only those are parsed here."""
    if not JOINED.search(text):
        return True
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def explain_bad(text: str) -> str:
    """Why a text is no record of the schema, as far as it alone shows."""
    try:
        found = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    return "a field is not of its declared type" if isinstance(found, dict) else "no JSON object"
