"""Parses raw values into records: messages of a queue or topic, or lines of a landed file.

Law: a value is good if and only if it is complete and parses under the schema. The result is the same in every source.
- A value whose bytes are not in the declared encoding, UTF-8 by default, is bad.
- A leading byte order mark is skipped.
- A JSON value is one object. A blank text, `null`, or anything except a comma after the first value is bad. A line of a
  file may be a list of objects, each of which is a record; a message may not.
- A CSV value is one line with well-formed quotes (`quoting`). A message may end with a line end; a blank message, a comment
  or a second line is bad.
- A text column holds a number or an object of JSON as it is written. A map holds the last value of a name.

An absent value counts as a blank one. With format "bytes" each value is good, and is the one column of the schema.
"""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from rota.dataplane import names
from rota.dataplane.columns import quote_name
from rota.dataplane.formats import decoding, exact, lines, quoting
from rota.dataplane.formats.options import find_encoding, make_options
from rota.dataplane.formats.quoting import Dialect
from rota.deltalog.parquet import write_parquet
from rota.pipeline import name_columns
from rota.record import CORRUPT, OFFSET, PARTITION, FieldPath

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

VALUE, RECORD, GOOD, TEXT, WRITTEN = "value", "record", "good", "text", "written"
STAGED = pa.schema([(VALUE, pa.binary()), (PARTITION, pa.string()), (OFFSET, pa.int64())])
DDL = f"{VALUE} binary, {PARTITION} string, {OFFSET} bigint"
OURS = "_rota_text"
DECODED = ("encoding", "charset", "linesep")  # options by which bytes become lines of text: no parser needs them
ENDED = r"(\r\n|\n|\r)\z"  # the end of a line
SHOWN = r"[^\x00-\x20]"  # a character that is not blank


def stage(folder: Path, partition: str, found: Iterable[tuple[int, bytes]]) -> None:
    """Write a partition's values, pairs of offset and bytes, into a folder that Spark can read."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = tuple(found)
    columns = [[value for _, value in pairs], [partition] * len(pairs), [offset for offset, _ in pairs]]
    table = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, STAGED, strict=True)], schema=STAGED)
    path = str(folder / f"{names.split(partition)}.parquet")
    write_parquet(fs.LocalFileSystem(), path, [table], STAGED)


@contextmanager
def read_staged(
    spark: "SparkSession",
    folder: Path,
    found: Mapping[str, Iterable[tuple[int, bytes]]],
    schema: str,
    format: str,
    options: Mapping[str, str],
) -> "Iterator[DataFrame]":
    """Yield the records of the values of each partition. `folder` holds the values within the context."""
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
    lines_of_files: bool = False,
) -> "DataFrame":
    """Parse a frame of `value`, `_partition` and `_offset`.

    Args:
        beside: other columns of the frame, which stay as they are.
        keep_absent: an absent value is a good record whose columns are null.
        lines_of_files: the values are lines of landed files, without blank lines and comments.

    Returns: the columns of the schema, those `beside`, `_corrupt` (not for bytes), `_partition` and `_offset`. `_corrupt`
        holds the text of a bad record, or its bytes if they are not text.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if format == "bytes":
        (name,) = read_ddl(frame, schema).names
        return frame.select(F.col(VALUE).alias(name), *beside, PARTITION, OFFSET)
    encoding = find_encoding(options)
    frame = recode(frame, encoding) if encoding else frame
    raw = F.coalesce(F.col(VALUE).cast("string"), F.lit(""))  # Spark checks no bytes here
    text = F.col(TEXT) if encoding else F.when(F.is_valid_utf8(raw), raw)
    if format == "json" or not lines_of_files:
        text = lines.skip_mark(text)
    if format == "csv" and not lines_of_files:
        text = F.regexp_replace(text, ENDED, "")
    good = F.col(VALUE).isNull() if keep_absent else F.lit(False)
    texts = frame.select(raw.alias(VALUE), text.alias(TEXT), good.alias(GOOD), *beside, PARTITION, OFFSET)
    text, declared = F.col(TEXT), f"{schema}, {CORRUPT} string"
    kept = make_options(format, {name: text for name, text in options.items() if name.lower() not in DECODED})
    if format == "json":
        record = F.when(lines.holds_one(text, kept), F.from_json(text, declared, kept))
    else:
        record = F.when(_is_line(text, options, lines_of_files), F.from_csv(text, declared, kept))
    kind = read_ddl(frame, declared)
    names_found = [field.name for field in kind.fields]
    kept_beside = (VALUE, TEXT, GOOD, *beside, PARTITION, OFFSET)
    if format == "json" and lines_of_files:
        each = F.explode(_list_records(record, text, schema, kept)).alias(RECORD)
        parsed = texts.select(each, *kept_beside).select(f"{RECORD}.*", *kept_beside)
    else:
        parsed = texts.select(record.alias(RECORD), text.alias(WRITTEN), *kept_beside)
    if format == "json":
        read = partial(F.from_json, schema=declared, options=kept)
        parsed = exact.restore_texts(parsed, (WRITTEN, *kept_beside), kind, read)
    columns = [F.col(f"{RECORD}.{quote_name(name)}") for name in names_found if name != CORRUPT]
    failed = F.col(RECORD).isNull() | F.col(RECORD)[CORRUPT].isNotNull()
    bad = F.when(failed & ~F.col(GOOD), F.coalesce(F.col(TEXT), F.col(VALUE)))
    held = parsed.select(*columns, *beside, bad.alias(CORRUPT), PARTITION, OFFSET, F.col(WRITTEN).alias(OURS))
    return (_restore(held, schema, kind) if format == "json" else held).drop(OURS)


def read_ddl(frame: "DataFrame", ddl: str) -> "StructType":
    """Return the columns of a DDL, which Spark parses. All of them may be null. `frame` is any frame of the session."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    kind = frame.select(F.from_json(F.lit("{}"), ddl).alias(RECORD)).schema[RECORD].dataType
    assert isinstance(kind, StructType)
    return kind


def _restore(frame: "DataFrame", schema: str, kind: "StructType") -> "DataFrame":
    """Return the frame with columns restored from their text in the column `OURS`. Each change is a separate step, because
    Spark copies an expression into each place that uses it.
    """
    from pyspark.sql import functions as F  # noqa: N812

    given = {f.name: f.dataType for f in kind.fields if f.name != CORRUPT and exact.has_texts(f.dataType)}
    restored = {name: exact.restore(_column(name), F.col(OURS), name, of) for name, of in given.items()}
    return merge_names(frame.withColumns(restored) if restored else frame, schema, "json")


def _column(name: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(quote_name(name))


def _is_line(text: "Column", options: Mapping[str, str], of_file: bool) -> "Column":
    """Return whether a text is one record of CSV, by its quotes and line ends."""
    from pyspark.sql import functions as F  # noqa: N812

    dialect = Dialect.of(options)
    line = F.lit(True) if of_file else is_shown(text, dialect) & ~text.rlike(r"[\r\n]")
    if not dialect.pattern:
        return line
    return line & (~F.contains(text, F.lit(dialect.quote)) | text.rlike(dialect.pattern))


def is_shown(text: "Column", dialect: Dialect | None = None) -> "Column":
    """Return whether a text is not a blank line. Empty fields with a blank separator are a record."""
    from pyspark.sql import functions as F  # noqa: N812

    blank_fields = F.contains(text, F.lit(dialect.sep)) if dialect and dialect.is_blank else F.lit(False)
    return text.rlike(SHOWN) | blank_fields


def _list_records(record: "Column", text: "Column", schema: str, options: Mapping[str, str]) -> "Column":
    """Return the records of a line of JSON, each with its own text: those of a list of good objects, else the one value.

    A record of a list has no text if its text is not found.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def pair(one: "Column", written: "Column") -> "Column":
        return F.struct(one.alias(RECORD), written.alias(WRITTEN))

    whole = lines.enclose('{"r":', F.regexp_replace(text, r",\s*\z", ""), "}", options)
    listed = F.from_json(whole, f"r array<struct<{schema}>>, {CORRUPT} string", dict(options))
    sound = listed[CORRUPT].isNull() & F.forall(listed["r"], lambda one: one.isNotNull())
    items = F.regexp_extract_all(text, F.lit(exact.ITEM), F.lit(1))
    items = F.when(F.size(items) == F.size(listed["r"]), items).otherwise(F.lit(None))
    none = F.lit(None).cast("string")
    each = F.zip_with(listed["r"], items, lambda one, item: pair(one.withField(CORRUPT, none), item))
    each = F.when(items.isNotNull(), each).otherwise(
        F.transform(listed["r"], lambda one: pair(one.withField(CORRUPT, none), none))
    )
    is_list = text.rlike(lines.LIST) & lines.holds_one(text, options) & sound
    return F.when(is_list, each).otherwise(F.array(pair(record, text)))


def recode(frame: "DataFrame", encoding: str) -> "DataFrame":
    """Return the frame with a column `text`: its first column in this encoding; null if its bytes are not in it."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(decoding)
    kinds = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema.fields)
    return frame.mapInArrow(decoding.make_decoder(encoding), f"{kinds}, {TEXT} string")


def merge_names(frame: "DataFrame", schema: str, format: str) -> "DataFrame":
    """Return the frame of Spark's file reader, with the last value of each name in JSON maps."""
    if format != "json" or "map" not in schema.lower():
        return frame
    kinds = {f.name: f.dataType for f in frame.schema.fields if exact.has_maps(f.dataType)}
    return frame.withColumns({name: exact.merge_names(_column(name), of) for name, of in kinds.items()})


def drop_headers(frame: "DataFrame", schema: str, options: Mapping[str, str]) -> "DataFrame":
    """Return the lines of CSV files without their headers and without the column `begins`. A header that differs from
    the schema fails the job.
    """
    from pyspark import cloudpickle

    for module in (decoding, quoting):
        cloudpickle.register_pickle_by_value(module)
    encoding = find_encoding(options) or "utf-8"
    read = decoding.make_header_reader(name_columns(schema), Dialect.of(options).split, encoding)
    return frame.mapInArrow(read, DDL)


def decode(value: bytes) -> str:
    """Return the text of a value for `quarantine` and `explain_bad`: undecodable bytes are kept as surrogates."""
    return value.decode("utf-8", "surrogateescape")


def explain_bad(
    format: str, text: str, nulls: Sequence[FieldPath], options: Mapping[str, str] = MappingProxyType({})
) -> str:
    """See `lines.explain_bad`; the text may be more or less than a line."""
    if why := lines.explain_bytes(text):
        return why
    if format == "csv" and (not text.strip() or re.search(r"[\r\n]", re.sub(ENDED.replace("z", "Z"), "", text))):
        return "not one line"
    if format == "json" and text.strip()[:1] != "{":
        return lines.explain_text(text) or "no JSON object"
    return lines.explain_bad(format, text, nulls, options)
