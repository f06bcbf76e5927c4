"""Values of bytes as records: what a queue, a topic or a column of a database holds, one record each.

Law: a value is one record, good if and only if a line of a landed file with this text would be (`parsing`), and if it is
whole. JSON holds one object: an array, a blank text, `null` and what follows a first value make it bad. CSV is one line,
which may end as lines do: a blank one, one that is a comment, and a second line make it bad. Never is a part of it dropped.
What is no UTF-8 is replaced, as in a landed file; a value that is not there is a blank one. Of format "bytes" each value is
good, and is the one column of the schema.
"""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane import names
from rota.dataplane.formats import lines
from rota.dataplane.formats.options import make_options
from rota.record import CORRUPT, OFFSET, PARTITION, FieldPath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE, RECORD, GOOD = "value", "record", "good"
STAGED = pa.schema([(VALUE, pa.binary()), (PARTITION, pa.string()), (OFFSET, pa.int64())])
DDL = f"{VALUE} binary, {PARTITION} string, {OFFSET} bigint"
ENDED = r"(\r\n|\n|\r)\z"  # how a line ends
SHOWN = r"[^\x00-\x20]"  # what is not blank


def stage(folder: Path, partition: str, found: Iterable[tuple[int, bytes]]) -> None:
    """Writes a partition's values, pairs of offset and bytes, where Spark reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = tuple(found)
    columns = [[value for _, value in pairs], [names.split(partition)] * len(pairs), [offset for offset, _ in pairs]]
    table = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, STAGED, strict=True)], schema=STAGED)
    pq.write_table(table, folder / f"{names.split(partition)}.parquet")


@contextmanager
def read_staged(
    spark: "SparkSession",
    folder: Path,
    found: Mapping[str, Iterable[tuple[int, bytes]]],
    schema: str,
    format: str,
    options: Mapping[str, str],
) -> "Iterator[DataFrame]":
    """The records of what was found of each partition, which lies in `folder` while the context lasts."""
    try:
        for partition, values in found.items():
            stage(folder, partition, values)
        yield parse(spark.read.schema(DDL).parquet(names.escape_path(folder)), schema, format, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def parse(
    frame: "DataFrame",
    schema: str,
    format: str,
    options: Mapping[str, str],
    beside: Sequence[str] = (),
    keep_absent: bool = False,
) -> "DataFrame":
    """The records of a frame of `value`, `_partition` and `_offset`: the columns of the schema, those `beside`, `_corrupt`
    but for bytes, and the last two, all but the first as they are. `keep_absent`: a value that is not there is a good
    record whose columns are null."""
    from pyspark.sql import functions as F  # noqa: N812

    if format == "bytes":
        record = F.from_json(F.lit("{}"), schema)  # Spark reads its DDL, and so the name
        (name,) = frame.select(record.alias(RECORD)).select(f"{RECORD}.*").columns
        return frame.select(F.col(VALUE).alias(name), *beside, PARTITION, OFFSET)
    text = F.coalesce(F.make_valid_utf8(F.col(VALUE).cast("string")), F.lit(""))
    text = F.regexp_replace(text, ENDED, "") if format == "csv" else text
    good = F.col(VALUE).isNull() if keep_absent else F.lit(False)
    texts = frame.select(text.alias(VALUE), good.alias(GOOD), *beside, PARTITION, OFFSET)  # Spark makes each text once
    kept, text, declared = make_options(format, options), F.col(VALUE), f"{schema}, {CORRUPT} string"
    if format == "json":
        record = F.when(~lines.is_joined(text, schema, kept), F.from_json(text, declared, kept))
    else:
        record = F.when(text.rlike(SHOWN) & ~text.rlike(r"[\r\n]"), F.from_csv(text, declared, kept))
    parsed = texts.select(record.alias(RECORD), VALUE, GOOD, *beside, PARTITION, OFFSET)
    found = parsed.select(f"{RECORD}.*").columns
    quoted = [f"`{name.replace('`', '``')}`" for name in found]
    columns = [F.col(f"{RECORD}.{name}") for name, plain in zip(quoted, found, strict=True) if plain != CORRUPT]
    bad = F.when(F.col(RECORD).isNull(), F.col(VALUE)).otherwise(F.col(f"{RECORD}.{CORRUPT}"))
    return parsed.select(*columns, *beside, F.when(~F.col(GOOD), bad).alias(CORRUPT), PARTITION, OFFSET)


def decode(value: bytes) -> str:
    """The text of a value."""
    return value.decode("utf-8", "replace")


def explain_bad(format: str, text: str, nulls: Sequence[FieldPath]) -> str:
    """See `lines.explain_bad`, of a text that may be more or less than a line."""
    if format == "csv" and (not text.strip() or re.search(r"[\r\n]", re.sub(ENDED.replace("z", "Z"), "", text))):
        return "not one line"
    if format == "json" and text.strip()[:1] != "{":
        return lines.explain_text(text) or "no JSON object"
    return lines.explain_bad(format, text, nulls)
