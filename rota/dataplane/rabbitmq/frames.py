"""Messages as a frame of Spark: staged as Parquet beside the table, and parsed by Spark's own JSON or CSV.

Law: a message is one record, good if and only if a line of a landed file with this text would be (`parsing`), and if it is
whole. JSON holds one object: an array, a blank text, `null` and what follows a first value make it bad. CSV is one line,
which may end as lines do: a blank one, one that is a comment, and a second line make it bad. Never is a part of it dropped.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane import names
from rota.dataplane.files.lines import LOOKS, explain_text
from rota.dataplane.files.options import LONG_TEXTS, keep_nuls
from rota.dataplane.files.staging import escape
from rota.dataplane.rabbitmq.declaration import Format
from rota.record import CORRUPT, OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXT, WHOLE, RECORD = "text", "whole", "record"
STAGED = pa.schema([(TEXT, pa.string()), (WHOLE, pa.bool_()), (PARTITION, pa.string()), (OFFSET, pa.int64())])
JOINED = re.compile(LOOKS)
TOKEN = re.compile(
    r"""[][{}]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL
)  # what may hold a bracket, and a bracket
ENDED = re.compile(r"(\r\n|\n|\r)\Z")  # how a line ends


def stage(folder: Path, partition: str, messages: Iterable[tuple[int, bytes]], format: Format) -> None:
    """Writes a partition's messages, pairs of offset and body, where Spark reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    is_whole = is_one if format == "json" else is_line
    texts = [(offset, decode(body) if format == "json" else ENDED.sub("", decode(body))) for offset, body in messages]
    columns = [
        [text for _, text in texts],
        [is_whole(text) for _, text in texts],
        [names.split(partition)] * len(texts),
        [offset for offset, _ in texts],
    ]
    table = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, STAGED, strict=True)], schema=STAGED)
    pq.write_table(table, folder / f"{names.split(partition)}.parquet")


def read_staged(
    spark: "SparkSession", folder: Path, schema: str, format: Format, options: Mapping[str, str]
) -> "DataFrame":
    """The staged messages as records of the schema, with `_corrupt`, `_partition` as `names.split` has it, and `_offset`."""
    from pyspark.sql import functions as F  # noqa: N812

    staged = f"{TEXT} string, {WHOLE} boolean, {PARTITION} string, {OFFSET} bigint"
    frame = spark.read.schema(staged).parquet(escape(folder))
    kept = {
        "enableDateTimeParsingFallback": "false",
        **(keep_nuls(options) if format == "csv" else {**LONG_TEXTS, **options}),
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
    }
    parse = F.from_json if format == "json" else F.from_csv
    record = F.when(frame[WHOLE], parse(frame[TEXT], f"{schema}, {CORRUPT} string", kept))
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
    """Whether nothing follows the first object or list. Few texts look so, and only those are read here: without a parser,
    for however deep they are, Spark judges them."""
    depth = 0
    for found in TOKEN.finditer(text) if JOINED.search(text) else ():
        depth += found[0] in "{["
        depth -= found[0] in "}]"
        if depth <= 0 and found[0] in "}]":
            return not text[found.end() :].strip()
    return True


def is_line(text: str) -> bool:
    """Whether it is one line that is not blank; its end may have been cut off."""
    return bool(text.strip()) and not {"\r", "\n"} & set(ENDED.sub("", text))


def explain_bad(text: str, format: Format) -> str:
    """Why a text is no record of the schema, as far as it alone shows."""
    if format == "csv":
        return "more or fewer fields than columns, or one of another type" if is_line(text) else "not one line"
    return explain_text(text) or (
        "a field is not of its declared type" if text.strip()[:1] == "{" else "no JSON object"
    )
