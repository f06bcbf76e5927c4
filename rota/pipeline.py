"""Declarations of the user: a source, a transform, a table, and groups. `rota.catalog` loads the files that hold them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from rota.errors import ConfigError
from rota.ids import checked_id, key_of, partition_id, pipeline_of
from rota.record import CORRUPT, OFFSET, PARTITION
from rota.settings import checked_address
from rota.stores import READ_BY_SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["csv", "json", "parquet", "avro"]
Start = Literal["earliest", "latest"] | int
AVRO_SCHEMA = "avroSchema"  # the option of files of Avro: the reader's schema, as JSON
WRAPPED = re.compile(r"(?i)[\s:<](?:tinyint|byte)\s*(?:[,>]|$|not\b|comment\b|default\b)")  # a type, not a name


class DeclaredSource(Protocol):
    """A declaration of any source. Its type selects the implementation: see `rota/registry.py`."""

    @property
    def schema(self) -> str:
        """The columns of a record, as Spark DDL."""
        ...

    @property
    def texts(self) -> tuple[str, ...]:
        """The values that may contain `${VAR}`."""
        ...

    @property
    def start(self) -> str | int:
        """Where a partition begins that the pipeline reads for the first time: "earliest", "latest" or an offset."""
        ...


def name_columns(schema: str) -> list[str]:
    """Return the names of the top-level columns of a DDL schema."""
    names, depth = [], 0
    for found in re.finditer(r"`((?:[^`]|``)*)`|'(?:[^'\\]|\\.)*'|([<(])|([>)])|(,)|([^\s`'<>(),:]+)", f",{schema}"):
        quoted, opens, closes, comma, word = found.groups()
        depth += bool(opens) - bool(closes)
        if comma and not depth:
            names.append("")
        elif not names[-1]:
            names[-1] = word or (quoted or "").replace("``", "`")
    return names


def check_format(format: str, known: tuple[str, ...], schema: str, options: Mapping[str, str], where: str) -> None:
    """Raise ConfigError for a format, schema or options with which no record could be read."""
    if format not in known:
        raise ConfigError(f"Unknown format {format!r} of {where}. Known: {', '.join(known)}")
    if format in ("json", "json-schema") and WRAPPED.search(re.sub("`[^`]*`", "c", schema)):
        raise ConfigError(f"tinyint in {where}: Spark reads 200 in JSON as -56. Declare smallint")
    if format == "bytes" and not re.fullmatch(r"(?i)\s*(`[^`]+`|\w+)[\s:]+binary\s*", schema):
        raise ConfigError(
            f"schema={schema!r} of {where}: with format bytes a record is one value. Declare one column, 'value binary'"
        )
    check_names(schema, format, where)
    check_encoding(options, format, where)
    if format == "csv":
        check_escape(options, where)


def check_start(start: object, names: tuple[str, ...], where: str) -> None:
    """Raise ConfigError unless `start` is one of `names` or an offset."""
    if start not in names and (type(start) is not int or start < 0):
        raise ConfigError(f"start={start!r} of {where}: give {' or '.join([*map(repr, names), 'an offset >= 0'])}")


def check_limits(declared: object, names: tuple[str, ...], where: str) -> None:
    """Raise ConfigError if an attribute of these names is below 1."""
    if low := [name for name in names if getattr(declared, name) < 1]:
        raise ConfigError(f"{', '.join(low)} of {where}: give 1 or more")


def check_after(after: str, where: str) -> None:
    """Raise ConfigError if `after` is unknown, or names an archive whose files would be read again."""
    if after in ("keep", "delete"):
        return
    kind, _, prefix = after.partition(":")
    parts = prefix.split("/")
    if kind != "archive" or not prefix:
        raise ConfigError(f"after={after!r} of {where}: give 'keep', 'delete' or 'archive:_PREFIX'")
    if any(part in ("", ".", "..") for part in parts) or not prefix.startswith(("_", ".")):
        raise ConfigError(
            f"after={after!r} of {where}: the archive lies below the landing folder, and its name begins with _ or ., so "
            f"that no run reads it. Give one such as 'archive:_consumed'"
        )


def check_new_columns(new_columns: str, format: str, where: str) -> None:
    """Raise ConfigError for a policy that is unknown, or that the format cannot keep."""
    if new_columns not in ("ignore", "refuse", "add"):
        raise ConfigError(f"new_columns={new_columns!r} of {where}: give 'ignore', 'refuse' or 'add'")
    if new_columns != "ignore" and format != "parquet":
        why = (
            "a header with another column always stops its partition" if format == "csv" else "each text is parsed once"
        )
        raise ConfigError(f"new_columns={new_columns!r} of {where} is for Parquet; of {format}, {why}. Leave it out")


def check_nanoseconds(nanoseconds: str, format: str, where: str) -> None:
    """Raise ConfigError for a policy that is unknown, or that the format does not have."""
    if nanoseconds not in ("refuse", "truncate") or (nanoseconds != "refuse" and format != "parquet"):
        raise ConfigError(f"nanoseconds={nanoseconds!r} of {where}: give 'refuse', or, of Parquet, 'truncate'")


def check_names(schema: str, format: str, where: str) -> None:
    """Raise ConfigError if a column has the name of one of rota's columns, which would replace it. Case is ignored."""
    ours = (PARTITION, OFFSET) if format in ("parquet", "bytes") else (PARTITION, OFFSET, CORRUPT)
    if taken := [name for name in name_columns(schema) if name.lower() in ours]:
        raise ConfigError(
            f"Column {', '.join(taken)} of {where} is a name of rota's own. Leave it out of the schema, or land it "
            f"under another name"
        )


def check_encoding(options: Mapping[str, str], format: str, where: str) -> None:
    """Raise ConfigError for a wide encoding in which Spark or rota would mistake a byte for the end of a line or value."""
    given = {name.lower(): text.lower() for name, text in options.items()}
    wide = [given[name] for name in ("encoding", "charset") if re.match(r"utf-?(16|32)", given.get(name, ""))]
    if wide and format == "json":
        raise ConfigError(
            f"{wide[0]} in {where}: the second of two records on a line would be lost. Land JSON as UTF-8"
        )
    if wide and format == "csv" and given.get("multiline") != "true":
        raise ConfigError(
            f"{wide[0]} in {where}: Spark cuts its lines at bytes. Give the option multiLine, or land UTF-8"
        )


def check_escape(options: Mapping[str, str], where: str) -> None:
    """Raise ConfigError if `escape` of CSV is empty.

    Spark's parser then uses NUL, and a quoted field loses its NULs. No other character can replace it: unbalanced quotes
    would be read differently.
    """
    if any(name.lower() == "escape" and not text for name, text in options.items()):
        raise ConfigError(
            f"Option escape of {where} is empty. Spark then uses NUL, and fields would lose their NULs. Give escape='\"' "
            f"if quotes are doubled; else leave it out"
        )


@dataclass(frozen=True, slots=True)
class Files:
    """Declare landing folders as a source: each folder below `path` is a partition, each file in it has one offset.

    Args:
        path: a local folder or `s3://bucket/prefix`. It may contain `${VAR}`, which each run expands.
        format: the format of the files: "csv", "json" (one record per line), "parquet" or "avro" (object container files,
            for which fastavro must be installed): `files("/data/orders", format="avro", schema="id bigint, shop string")`.
        schema: the columns as Spark DDL, such as "id long, shop string". A CSV header or Parquet file without a declared
            column stops its partition (with the option `mergeSchema` "true", the column is null in Parquet). A column
            that a JSON record lacks is null. An Avro file is read by its own schema: each column has the name of a field.
        start: where a partition begins that the pipeline has never read: "earliest", "latest" or an offset. "latest"
            applies to partitions that exist at the pipeline's first run; a partition that appears later is read whole.
        settle: seconds for which a file must be unchanged before it is read. Objects in a bucket never wait. 0 is right
            if each file is renamed into place.
        max_files, max_bytes: limits of one partition in one batch. A batch takes at least one file.
        max_job_files, max_job_bytes: limits of one Spark job over all partitions. A run has one or more jobs, each with
            one commit.
        options: options of Spark's reader. Without `enableDateTimeParsingFallback`, dates are parsed by their format
            alone. Of Avro, the only option is `avroSchema`, the reader's schema as JSON, for files of several schemas.
        after: what happens to a consumed file: "keep", "delete", or "archive:_PREFIX", a folder below `path` whose name
            begins with _ or .
        new_columns: what happens to a column of a Parquet file that `schema` does not name: "ignore"; "refuse" stops the
            partition and names the column; "add" passes it to the transform and the table, as null for files that lack
            it. A CSV header with another column always stops its partition. Other fields of JSON are ignored.
        nanoseconds: what happens to a Parquet time of nanoseconds: "refuse" stops the partition; "truncate" reads it as
            microseconds, for columns that `schema` declares as timestamp.

    Raises:
        ConfigError: a value is not allowed.
    """

    path: str
    _: KW_ONLY
    format: Format
    schema: str
    start: Start = "earliest"
    settle: float = 2.0
    max_files: int = 1000
    max_bytes: int = 4 << 30
    max_job_files: int = 4000
    max_job_bytes: int = 4 << 30
    options: Mapping[str, str] = field(default_factory=dict)
    after: str = "keep"
    new_columns: str = "ignore"
    nanoseconds: str = "refuse"

    def __post_init__(self) -> None:
        checked_address(self.path, READ_BY_SPARK)
        check_nanoseconds(self.nanoseconds, self.format, f"files({self.path!r})")
        check_new_columns(self.new_columns, self.format, f"files({self.path!r})")
        check_after(self.after, f"files({self.path!r})")
        check_format(self.format, get_args(Format), self.schema, self.options, f"files({self.path!r})")
        if self.format == "avro" and (unknown := sorted(self.options.keys() - {AVRO_SCHEMA})):
            raise ConfigError(
                f"Option {', '.join(unknown)} of files({self.path!r}): of Avro, there is only {AVRO_SCHEMA}. Leave it out"
            )
        check_start(self.start, ("earliest", "latest"), f"files({self.path!r})")
        check_limits(self, ("max_files", "max_bytes", "max_job_files", "max_job_bytes"), f"files({self.path!r})")
        if self.settle < 0:
            raise ConfigError(f"settle={self.settle!r} of files({self.path!r}): give seconds >= 0")

    @property
    def texts(self) -> tuple[str, ...]:
        """See `DeclaredSource.texts`."""
        return self.path, *map(str, self.options.values())


@dataclass(frozen=True, slots=True)
class Delta:
    """Declare the Delta table that a pipeline writes. Two pipelines never share a table.

    Args:
        path: a local folder, `s3://bucket/prefix` or `az://container/prefix`. It may contain `${VAR}`, which each run
            expands. The rows are in `main/` below it, records that could not be read in `quarantine/`, and the offsets
            of files in `index/`.

    Raises:
        ConfigError: the address is not supported.
    """

    path: str

    def __post_init__(self) -> None:
        checked_address(self.path)


files, delta = Files, Delta  # the names in pipeline files


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A source, a transform and a table.

    Args:
        transform: `transform(df) -> df` maps row by row and keeps `_partition` and `_offset`. Create UDFs inside it.
        group: the group of workers that serves the pipeline.
        max_bad_ratio: the greatest ratio of bad records in a batch. A partition above it is parked with the reason.
        deadline: seconds after which a Spark job is cancelled and the partition that blocks it is parked.
        requires: labels that a worker needs for these partitions.
        owners, tags, kinds, freshness, automation: Dagster's own settings of the pipeline's assets: mail addresses or
            `team:NAME`, tags, kinds, a `dg.FreshnessPolicy`, a `dg.AutomationCondition`. `kinds` and `freshness` apply
            to `records` alone.
        name, module: set by `rota.catalog.load`.

    Raises:
        ConfigError: a value is not allowed.
    """

    source: DeclaredSource
    table: Delta
    transform: "Callable[[DataFrame], DataFrame] | None" = None
    group: str = "default"
    max_bad_ratio: float = 0.1
    deadline: float = 600.0
    requires: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    freshness: Any = None
    automation: Any = None
    name: str = ""
    module: ModuleType | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        checked_id("group", self.group)
        if not 0 <= self.max_bad_ratio <= 1:
            raise ConfigError(f"max_bad_ratio={self.max_bad_ratio!r}: give a ratio from 0 to 1")
        if not self.deadline > 0:
            raise ConfigError(f"deadline={self.deadline!r}: give seconds above 0")

    def partition(self, key: str) -> str:
        """Return the partition id of a source key: `<pipeline>:<key>`."""
        return partition_id(self.name, key)

    def key(self, partition: str) -> str:
        """Return the source key of one of this pipeline's partition ids."""
        if pipeline_of(partition) != self.name:
            raise ConfigError(
                f"Partition {partition!r} is not of pipeline {self.name!r}. Its ids start with {self.name}:"
            )
        return key_of(partition)


@dataclass(frozen=True, slots=True)
class Group:
    """A group of workers that is balanced together, and how.

    Args:
        protocol: "assigned": Dagster assigns the partitions with the `assignor`. In any other protocol the workers
            decide alone, without assignor, budget, cooldown and grace (docs/protocols.md).
        options: options of the assignor or of the protocol.
        budget: the greatest number of voluntary moves in one epoch (None: no limit).
        cooldown: the least time between two voluntary plans, in seconds.
        grace: how long the partitions of a lost worker wait for it, in seconds.
    """

    name: str
    assignor: str = "sticky"
    options: Mapping[str, object] = field(default_factory=dict)
    budget: int | None = None
    cooldown: float = 0.0
    grace: float = 0.0
    protocol: str = "assigned"

    def __post_init__(self) -> None:
        checked_id("group", self.name)
        if self.protocol == "assigned":
            return
        from rota.core.protocols.known_protocols import check_protocol

        check_protocol(self.protocol, self.options)
        plain = {"assignor": "sticky", "budget": None, "cooldown": 0.0, "grace": 0.0}
        if given := [name for name, default in plain.items() if getattr(self, name) != default]:
            raise ConfigError(
                f"Group {self.name!r}: protocol {self.protocol!r} has no {', '.join(given)}. Leave them out, or use "
                f"protocol 'assigned'"
            )


def rename_command(old: str, new: str, group: str) -> str:
    """Return the command that gives a pipeline's table another name."""
    return f"rota rename {old} {new}{'' if group == 'default' else f' --group {group}'}"


def suggest_path(owner: str, name: str, group: str) -> str:
    """Return the next step if the table of pipeline `name` belongs to `owner`."""
    return (
        f"Give {name!r} another path; or, if it is {owner!r} under a new name, delete {owner}.py, then: "
        f"{rename_command(owner, name, group)}"
    )
