"""Bad records: write them with reason, file and position into the quarantine table. Too many of them stop the partition.

Law: the ratio is checked before either table is written. A quarantined row counts if its attempt is the newest in main's
log that covers its offset. A row of a commit that was not made, or that a replay replaced, does not count.

If a job has bad records, its records are read once more. The texts of the bad ones go into a folder that no table names, and
are counted there. Those of each partition with few enough bad records then go into the quarantine table.

Law: a long text is stored once for all records that have it. One bad element makes all records of a list bad, and with
`multiLine` the text of each is the whole file: n records would store n files.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane import footers, names
from rota.dataplane.columns import quote_name
from rota.dataplane.formats import values
from rota.dataplane.ports import Source
from rota.dataplane.spark import parsing, writing
from rota.dataplane.spark.parsing import Parsed, Tally
from rota.dataplane.spark.spark_source import Records
from rota.errors import DataError, TooManyBadRecords
from rota.ids import quote
from rota.ledger.schema import make_struct
from rota.ledger.values import DataFile
from rota.pipeline import Pipeline
from rota.record import CORRUPT, OFFSET, PARTITION, FieldPath
from rota.stores import delete_folder, open_files

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

KINDS = {
    PARTITION: "string",
    OFFSET: "long",
    "_position": "long",  # line of the file, from 1; null if it is unknown
    "_file": "string",
    "_reason": "string",
    "_raw": "string",
    "_attempt": "string",
    "_raw_bytes": "binary",  # of a record that is not UTF-8, in whose `_raw` such bytes are replaced; else null
}
ARROW = {"long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
SCHEMA = pa.schema(
    [(n, ARROW[t]) for n, t in KINDS.items()],
    metadata={footers.SPARK: json.dumps(make_struct(KINDS))},
)
LONG = 1000  # characters
NULLS = "_nulls"
Bad = tuple[int, str, Sequence[FieldPath]]  # offset, text as `values.decode` gives it, fields that are null


@dataclass(frozen=True, slots=True)
class BadRecords:
    """The result for the bad records of a job; `tally` counts all of its partitions."""

    tally: Tally
    counts: Mapping[str, int]
    files: tuple[DataFile, ...]
    refused: Mapping[str, DataError]


def set_aside(
    parsed: Parsed,
    tally: Tally | None,
    source: Source,
    read: Records,
    pipeline: Pipeline,
    table: str,
    attempt: str,
    ranges: Mapping[str, tuple[int, int]],
    good: Mapping[str, int] | None = None,
) -> BadRecords:
    """Write the bad records of the partitions that have few enough; refuse the others. `parsed` was not read yet. `tally`
    has the counts of the job that wrote the good records, and `good` their number in each partition; None if unknown.
    Raises EnvironmentFailed if the counts differ."""
    try:
        paths = list(_list_paths(parsed.frame.schema))
        texts = parsed.frame.where(_col(CORRUPT).isNotNull()).select(
            PARTITION, OFFSET, _col(CORRUPT).cast("binary").alias(CORRUPT), _number_nulls(paths)
        )
        raw = defaultdict[str, list[DataFile]](list)
        for file in writing.write(texts, table, f"raw/{attempt}", shared=True):
            raw[file.partition].append(file)
        bad = {p: sum(file.rows for file in files) for p, files in raw.items()}
        again, records = _count(parsed, bad, good, pipeline)
        if tally:
            parsing.require_same(tally.records, again.records, "records that Spark read", "it read again")
            parsing.require_same(tally.bad, again.bad, "bad records", "it found again")
        parsing.require_same(again.bad, sum(bad.values()), "bad records", "were found in the files that Spark wrote")
        much = {p for p, n in bad.items() if n > pipeline.max_bad_ratio * records[p]}
        refused = {
            p: _refuse(p, bad[p], records[p], _read_texts(table, raw[p], paths), source, read, pipeline)
            for p in sorted(much)
        }
        kept = {p: n for p, n in bad.items() if p not in refused}
        files = tuple(
            footers.write_file(table, f"data/{attempt}/{names.split(p)}/part-0.parquet", rows)
            for p in kept
            if (
                rows := explain_all(_read_texts(table, raw[p], paths), p, attempt, source, read)
            ).num_rows  # otherwise the count of them fails
        )
    finally:
        delete_folder(table, f"raw/{attempt}")
    if not kept:
        return BadRecords(again, {}, (), refused)
    footers.check_ranges(files, ranges)
    for partition, count in kept.items():
        held = sum(f.rows for f in files if f.partition == partition)
        parsing.require_same(count, held, f"bad records of {partition}", "were set aside")
    return BadRecords(again, kept, files, refused)


def _count(
    parsed: Parsed, bad: Mapping[str, int], good: Mapping[str, int] | None, pipeline: Pipeline
) -> tuple[Tally, Mapping[str, int]]:
    """Return what was read, and a number of records for each partition with `bad` ones, at most its own.

    The records are read once more if Spark reported no counts, or if the ratio of bad records matters and `good`, the
    number of good records of each partition, is unknown.
    """
    from pyspark.sql import functions as F  # noqa: N812

    again = parsed.tally()
    if again and (good is not None or pipeline.max_bad_ratio >= 1):
        return again, {p: n + (good or {}).get(p, 0) for p, n in bad.items()}
    counts = F.count(F.lit(1)), F.count(parsing.mark_whole(parsed.frame))
    found = [tuple(row) for row in parsed.frame.groupBy(PARTITION).agg(*counts).collect()]
    records = dict.fromkeys(bad, 0) | {partition: n for partition, n, _ in found}
    return Tally(sum(records.values()), sum(n for _, _, n in found)), records


def _refuse(
    partition: str, bad: int, records: int, raw: Iterable[Bad], source: Source, read: Records, pipeline: Pipeline
) -> TooManyBadRecords:
    first = _example(source, read, partition, *min(raw, key=lambda one: one[0]))
    return TooManyBadRecords(
        f"{bad} of {records} records of {partition} are bad, more than max_bad_ratio={pipeline.max_bad_ratio:g}: {first}. "
        "Nothing was written",
        step=f"Mend the files or the schema, then: rota retry {quote(partition)}",
        partition=partition,
    )


def _read_texts(table: str, files: Iterable[DataFile], paths: Sequence[FieldPath]) -> Iterator[Bad]:
    """Return offset, text and null fields of one partition's bad records. Records with equal texts share one object."""
    known: dict[str, str] = {}
    for file in files:
        with pq.ParquetFile(file.path, read_dictionary=[CORRUPT], filesystem=open_files(table)) as opened:
            for batch in opened.iter_batches(columns=[OFFSET, CORRUPT, NULLS]):
                texts = [values.decode(bytes(text)) for text in batch[CORRUPT].dictionary.to_pylist()]
                texts = [known.setdefault(text, text) for text in texts]
                rows = (batch[OFFSET].to_pylist(), batch[CORRUPT].indices.to_pylist(), batch[NULLS].to_pylist())
                for offset, at, nulls in zip(*rows, strict=True):
                    yield offset, texts[at], [paths[int(n)] for n in nulls.split()]


def _col(name: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(name)


def _list_paths(kind: "StructType", above: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of the declared fields, each struct before its own."""
    for field in kind.fields:
        if above or field.name not in (CORRUPT, PARTITION, OFFSET):
            yield (path := (*above, field.name))
            if field.dataType.typeName() == "struct":
                yield from _list_paths(cast("StructType", field.dataType), path)


def _number_nulls(paths: Sequence[FieldPath]) -> "Column":
    """Return the numbers of the fields that are null in a record while the struct around them is not. A field that does
    not parse is null.

    It is one text of SQL: PySpark's functions take 0.1 ms a call, which are seconds for thousands of fields.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def name(path: FieldPath) -> str:
        return ".".join(map(quote_name, path))

    def write(number: int, path: FieldPath) -> str:
        above = f" AND {name(path[:-1])} IS NOT NULL" if path[1:] else ""
        return f"IF({name(path)} IS NULL{above}, '{number}', NULL)"

    return F.expr(f"concat_ws(' ', {', '.join(starmap(write, enumerate(paths)))})").alias(NULLS)


def _example(source: Source, read: Records, partition: str, offset: int, raw: str, nulls: Sequence[FieldPath]) -> str:
    """Return where one bad record is, and why it is bad."""
    (line,) = _positions(read, partition, offset, [raw])
    at = f"line {line} of " if line else ""
    return f"such as {at}{source.locate(partition, offset)} (offset {offset}), {read.find_reason(raw, nulls)}"


def explain_all(raw: Iterable[Bad], partition: str, attempt: str, source: Source, read: Records) -> pa.Table:
    """Return one partition's bad records, with the columns by which a person finds them."""
    texts: dict[int, list[str]] = defaultdict(list)
    nulls: dict[str, Sequence[FieldPath]] = {}
    for offset, text, fields in raw:
        texts[offset].append(text)
        nulls[text] = fields
    found: list[tuple[object, ...]] = []
    for offset, bad in sorted(texts.items()):
        where = _positions(read, partition, offset, bad)
        file_name = source.locate(partition, offset)
        reasons = {text: read.find_reason(text, nulls[text]) for text in bad}
        before: tuple[str, int | None] | None = None
        for text, at in sorted(zip(bad, where, strict=True), key=lambda pair: pair[1] or 0):
            again = len(text) > LONG and (text, at) == before
            said, held = (None, None) if again else show(text)
            found.append((partition, offset, at, file_name, reasons[text], said, attempt, held))
            before = text, at
    columnar = [list(column) for column in zip(*found, strict=True)] or [[] for _ in SCHEMA]
    arrays = [pa.array(values, field.type) for values, field in zip(columnar, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def show(text: str) -> tuple[str, bytes | None]:
    """Return a raw record as text, and its bytes if the text does not represent all of them."""
    held = text.encode("utf-8", "surrogateescape")
    try:
        return held.decode(), None
    except UnicodeDecodeError:
        return held.decode("utf-8", "replace"), held


def _positions(read: Records, partition: str, offset: int, bad: list[str]) -> list[int | None]:
    """Return the place of each bad record in its offset; None if the offset is one record.

    Equal records take their places in order, and those beyond share the last.
    """
    records = read.list_raw(partition, offset) if read.list_raw else ()
    places: dict[str, list[int]] = defaultdict(list)
    wanted = set(bad)
    for number, record in enumerate(records, 1):
        if record in wanted:
            places[record].append(number)
    taken = (places[text] for text in bad)
    return [at.pop(0) if len(at) > 1 else next(iter(at), None) for at in taken]
