"""Read landed Avro files by Spark's tasks, once their blocks show how many records there are.

Law: a file is read as a whole or not at all: no record is bad by itself. The run counts the records that the blocks state,
and reads each header. It refuses a file whose schema has no value for a declared column. A task refuses what only decoding
shows.

Law: a value never becomes another one: `avro_schemas` lists which column holds the values of which type. Each file is read
by its own schema, or resolved to the reader's schema of the option `avroSchema`, by Avro's rules.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rota import stores
from rota.dataplane.files import avro_container
from rota.dataplane.files.avro_container import Share, Source, UnreadableAvroError
from rota.dataplane.files.landing import LandedBytes, Landing, Refuse
from rota.dataplane.formats import avro, avro_schemas, registered_columns, values
from rota.dataplane.formats.options import check_library
from rota.dataplane.formats.registered_columns import Mismatch
from rota.dataplane.spark import on_executors, plans
from rota.dataplane.spark.spark_source import Records
from rota.errors import ConfigError
from rota.pipeline import AVRO_SCHEMA, Files, name_columns
from rota.record import OFFSET, PARTITION
from rota.stores import describe_to_executors, hide_credentials, join, name_inside, open_executors_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRAVEL = (
    avro_container,
    avro,
    avro_schemas,
    registered_columns,
    on_executors,
    stores,
)  # modules that tasks get as code
UNREADABLE = re.compile(r"UnreadableAvroError: (.*)")
PIECE = 64 << 20  # bytes of a file that one task reads at least
AT_ONCE = 16  # files that are counted at a time
CHANGE = f"Change the schema of files(...), or give a reader's schema: options={{{AVRO_SCHEMA!r}: ...}}"


@dataclass(frozen=True, slots=True)
class Counted:
    """What a file has: its records, and its schema as JSON. `cuts`: the places between blocks at which it is divided, each
    with the number of records before it. `broken`: why it cannot be read."""

    records: int
    schema: str
    cuts: tuple[tuple[int, int], ...] = ()
    broken: str = ""


def parse_reader(declared: Files) -> Any:
    """Return the declared reader's schema, parsed; None if there is none. Raises: ConfigError."""
    check_library(declared.format, "fastavro", "fastavro")
    if not (text := declared.options.get(AVRO_SCHEMA)):
        return None
    where = f"Option {AVRO_SCHEMA} of files({declared.path!r})"
    try:
        found = avro_schemas.parse(json.loads(text))
    except Exception as error:  # fastavro raises any of Python's
        raise ConfigError(f"{where} is no schema ({type(error).__name__}: {error}). Give one as JSON") from None
    fields = [one["name"] for one in found["fields"]] if avro_schemas.name_type(found) == "record" else []
    if lacking := [name for name in name_columns(declared.schema) if name not in fields]:
        raise ConfigError(f"{where} has no field {', '.join(lacking)}. Give it a field for each column")
    return found


def count_records(file: LandedBytes, size: int) -> Counted | None:
    """Count the records that the blocks of a file state, and decode none. Return None if the file cannot be read now: the
    task that reads it reports that."""
    try:
        with file.open("rb") as raw:
            source = Source(raw, size)
            header = avro_container.read_header(source)
            cuts, before = [(0, 0)], 0
            for at, records, _ in avro_container.take_blocks(source, header.marker, size):
                if at - cuts[-1][0] > PIECE:
                    cuts.append((at, before))
                before += records
            return Counted(before, header.schema, tuple(cuts))
    except UnreadableAvroError as error:
        return Counted(0, "", broken=str(error))
    except OSError:
        return None


def explain_misfit(schema: str, kinds: pa.Schema, reader: Any) -> str:
    """Return why files of this schema cannot be read as declared; empty if they can. Raises: ConfigError, if the columns
    do not fit the reader's schema."""
    try:
        writer = avro_schemas.parse(json.loads(schema))
    except Exception as error:  # fastavro raises any of Python's
        return f"has a schema that is none ({type(error).__name__}: {error}). {avro_container.AGAIN}"
    if avro_schemas.name_type(writer) != "record":
        return f"has values of type {avro_schemas.name_type(writer)}, and no records. Land records"
    try:
        avro.Decoder(kinds, reader or writer, lambda _: writer)
    except Mismatch as error:
        if reader:
            raise ConfigError(f"The schema of files(...) does not fit option {AVRO_SCHEMA}: {error}") from None
        return f"has another schema than files(...): {error}. {CHANGE}"
    return ""


@contextmanager
def read(
    spark: "SparkSession",
    landing: Landing,
    declared: Files,
    landed: Mapping[str, tuple[str, int, int, LandedBytes]],
    refuse: Callable[[Refuse], None],
) -> Iterator[Records]:
    """Let tasks read the files while the context lasts: at most as many as Spark has slots.

    Args:
        landed: path -> partition, offset, size, file.
        refuse: raises SourceChanged for the first file for which its argument returns a reason.

    Raises: ConfigError, SourceChanged.
    """
    from pyspark import cloudpickle
    from pyspark.sql.pandas.types import to_arrow_schema

    reader = parse_reader(declared)
    kind = values.read_ddl(spark.range(1), f"{declared.schema}, {PARTITION} string, {OFFSET} bigint")
    kinds = to_arrow_schema(type(kind)(kind.fields[:-2]), timezone="UTC")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        counted = dict(zip(landed, pool.map(lambda of: count_records(of[3], of[2]), landed.values()), strict=True))
    misfits = {one.schema: explain_misfit(one.schema, kinds, reader) for one in counted.values() if one and one.schema}
    refuse(lambda _, path: ((one := counted[path]) is not None and (one.broken or misfits[one.schema])) or "")
    for module in TRAVEL:
        cloudpickle.register_pickle_by_value(module)
    hide_credentials()
    whole = [
        Share(name_inside(join(landing.place, path)), path, size, partition, offset, 0, size)
        for path, (partition, offset, size, _) in landed.items()
    ]
    pieces = [piece for one in whole for piece in _cut(one, counted[one.name])]
    shares = _divide(pieces, plans.count_slots(spark))
    open_files = partial(open_executors_files, describe_to_executors(landing.place))
    read_avro = avro_container.make_reader(open_files, shares, kinds, reader)
    frame = spark.range(0, len(shares), 1, len(shares)).mapInArrow(read_avro, kind)
    try:
        known = [one.records for one in counted.values() if one]
        yield Records(frame, None, (lambda: sum(known)) if len(known) == len(counted) else None)
    except Exception as error:
        if found := UNREADABLE.search(str(error)):
            refuse(lambda _, path: found[1][len(path) + 1 :] if found[1].startswith(f"{path} ") else "")
        raise


def _cut(whole: Share, counted: Counted | None) -> Iterator[Share]:
    """Yield the pieces of a file; all of it if it could not be counted."""
    cuts = counted.cuts if counted else ((0, 0),)
    ends = [*(at for at, _ in cuts[1:]), whole.end]
    yield from (replace(whole, start=at, before=n, end=end) for (at, n), end in zip(cuts, ends, strict=True))


def _divide(pieces: Sequence[Share], tasks: int) -> list[list[Share]]:
    """Return the pieces, in their order, as at most `tasks` parts of about the same size."""
    ends = list(accumulate(one.end - one.start for one in pieces))
    parts: list[list[Share]] = [[] for _ in range(tasks)]
    for one, end in zip(pieces, ends, strict=True):
        parts[min(tasks - 1, (end - (one.end - one.start)) * tasks // max(1, ends[-1]))].append(one)
    return [part for part in parts if part]
