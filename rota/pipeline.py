"""What the user declares: a source, a transform and a table, and groups. `catalog` loads the files that do."""

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rota.errors import ConfigError
from rota.ids import checked_id, key_of, partition_id, pipeline_of
from rota.record import CORRUPT, OFFSET, PARTITION
from rota.settings import checked_address
from rota.stores import READ_BY_SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["csv", "json", "parquet"]
Start = Literal["earliest", "latest"] | int
WRAPPED = re.compile(r"(?i)[\s:<](?:tinyint|byte)\s*(?:[,>]|$|not\b|comment\b|default\b)")  # a type, not a name


class DeclaredSource(Protocol):
    """What a declaration of any source says. Its type chooses the implementation: see `rota/registry.py`."""

    @property
    def schema(self) -> str:
        """The columns of a record, as Spark DDL."""
        ...

    @property
    def texts(self) -> tuple[str, ...]:
        """What may hold `${VAR}`."""
        ...


def name_columns(schema: str) -> list[str]:
    """The names of the columns of a schema in DDL, without those of their parts."""
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
    """Raises ConfigError for what no record could be of these formats."""
    if format not in known:
        raise ConfigError(f"Unknown format {format!r} of {where}. Known: {', '.join(known)}")
    if format == "json" and WRAPPED.search(re.sub("`[^`]*`", "c", schema)):
        raise ConfigError(f"tinyint in {where}: of JSON, Spark takes 200 for -56. Say smallint")
    if format == "bytes" and not re.fullmatch(r"(?i)\s*(`[^`]+`|\w+)[\s:]+binary\s*", schema):
        raise ConfigError(
            f"schema={schema!r} of {where}: of bytes each record is one value. Say one column, 'value binary'"
        )
    check_names(schema, format, where)
    check_encoding(options, format, where)
    if format == "csv":
        check_escape(options, where)


def check_after(after: str, where: str) -> None:
    """Raises ConfigError where `after` is none, or names an archive whose files would be read again."""
    if after in ("keep", "delete"):
        return
    kind, _, prefix = after.partition(":")
    parts = prefix.split("/")
    if kind != "archive" or not prefix:
        raise ConfigError(f"after={after!r} of {where}: give 'keep', 'delete' or 'archive:_PREFIX'")
    if any(part in ("", ".", "..") for part in parts) or not prefix.startswith(("_", ".")):
        raise ConfigError(
            f"after={after!r} of {where}: the archive lies below the landing folder, and its name begins with _ or ., so "
            f"that nobody reads it. Give one such as 'archive:_consumed'"
        )


def check_new_columns(new_columns: str, format: str, where: str) -> None:
    """Raises ConfigError for a policy that is none, or that nobody could keep."""
    if new_columns not in ("ignore", "refuse", "add"):
        raise ConfigError(f"new_columns={new_columns!r} of {where}: give 'ignore', 'refuse' or 'add'")
    if new_columns != "ignore" and format != "parquet":
        why = (
            "a header with another column always stops its partition" if format == "csv" else "each text is parsed once"
        )
        raise ConfigError(f"new_columns={new_columns!r} of {where} is for Parquet; of {format}, {why}. Leave it out")


def check_names(schema: str, format: str, where: str) -> None:
    """Raises ConfigError where a column is called, in whatever case, like one of ours, which would take its place."""
    ours = (PARTITION, OFFSET) if format in ("parquet", "bytes") else (PARTITION, OFFSET, CORRUPT)
    if taken := [name for name in name_columns(schema) if name.lower() in ours]:
        raise ConfigError(
            f"Column {', '.join(taken)} of {where} is called like one of rota's own. Leave it out of the schema, or land it "
            f"under another name"
        )


def check_encoding(options: Mapping[str, str], format: str, where: str) -> None:
    """Raises ConfigError for a wide encoding where Spark, or rota beside it, takes a byte for the end of a line or value."""
    given = {name.lower(): text.lower() for name, text in options.items()}
    wide = [given[name] for name in ("encoding", "charset") if re.match(r"utf-?(16|32)", given.get(name, ""))]
    if wide and format == "json":
        raise ConfigError(
            f"{wide[0]} in {where}: of two records on a line, the second would be lost. Land JSON as UTF-8"
        )
    if wide and format == "csv" and given.get("multiline") != "true":
        raise ConfigError(
            f"{wide[0]} in {where}: Spark cuts its lines at bytes. Give the option multiLine, or land UTF-8"
        )


def check_escape(options: Mapping[str, str], where: str) -> None:
    """Raises ConfigError where `escape` of CSV is empty. Spark's parser takes NUL in its place, and a quoted field loses
    those that it has; any other character in its place reads quotes that do not match otherwise."""
    if any(name.lower() == "escape" and not text for name, text in options.items()):
        raise ConfigError(
            f"Option escape of {where} is empty, and Spark then takes NUL for it: a field would lose those it has. Give "
            f"escape='\"' where quotes are doubled; else leave it out"
        )


@dataclass(frozen=True, slots=True)
class Files:
    """Declares landing folders as a source: each folder below `path` is a partition, each file in it an offset.

    `path` is a local folder or `s3://bucket/prefix`; it may hold `${VAR}`, which a run fills in from its environment.
    `format` is the format of the files: "csv", "json" (a record a line) or "parquet".
    `schema` is Spark DDL, such as "id long, shop string". A CSV header or a Parquet file without a declared column stops
    its partition (with the option `mergeSchema` "true" the column is null in Parquet). A column that a JSON record lacks
    is null.
    `start` is where a partition begins that the pipeline sees for the first time: "earliest", "latest" or an offset.
    "latest" holds for the partitions that are there at the pipeline's first run; in one that appears later all is new.
    `settle` is in seconds: a file that changed more recently waits. An object of a bucket never does. 0 is right where each
    file is renamed into place.
    `max_files` and `max_bytes` bound what one batch takes of one partition; it takes one file at least.
    `max_job_files` and `max_job_bytes` bound one Spark job over all partitions; a run is one job or more, each a commit.
    `options` go to Spark's reader as they are. Without `enableDateTimeParsingFallback` a date is read by its format alone.
    `after` says what becomes of a file once it is consumed: "keep", "delete", or "archive:_PREFIX", a folder below `path`
    whose name begins with _ or .
    `new_columns` says what becomes of a column of a Parquet file that `schema` does not name: "ignore"; "refuse": its
    partition stops, and says which; or "add": the transform gets it, and the table, as null of files that lack it. (A CSV
    header with another column always stops its partition. Of JSON other fields are ignored.)

    Raises ConfigError on a bad value.
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

    def __post_init__(self) -> None:
        checked_address(self.path, READ_BY_SPARK)
        check_new_columns(self.new_columns, self.format, f"files({self.path!r})")
        check_after(self.after, f"files({self.path!r})")
        check_format(self.format, ("csv", "json", "parquet"), self.schema, self.options, f"files({self.path!r})")
        if self.start not in ("earliest", "latest") and (type(self.start) is not int or self.start < 0):
            raise ConfigError(
                f"start={self.start!r} of files({self.path!r}): give 'earliest', 'latest' or an offset >= 0"
            )
        if self.settle < 0 or min(self.max_files, self.max_bytes, self.max_job_files, self.max_job_bytes) < 1:
            raise ConfigError(
                f"files({self.path!r}): settle must be >= 0, max_files, max_bytes, max_job_files and max_job_bytes >= 1"
            )

    @property
    def texts(self) -> tuple[str, ...]:
        """See `DeclaredSource.texts`."""
        return self.path, *map(str, self.options.values())


@dataclass(frozen=True, slots=True)
class Delta:
    """Declares the Delta table that a pipeline writes.

    `path` is a local folder, `s3://bucket/prefix` or `az://container/prefix`; it may hold `${VAR}`, which a run fills in
    from its environment. The rows are in `main/` below it; `quarantine/` holds the records that could not be read, `index/`
    which file has which offset. Two pipelines never share a table. Raises ConfigError on another address."""

    path: str

    def __post_init__(self) -> None:
        checked_address(self.path)


files, delta = Files, Delta  # as pipeline files call them


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A source, a transform and a table.

    `transform(df) -> df` maps row by row and keeps `_partition` and `_offset`. Make UDFs inside it.
    `group` is the group of workers that serves the pipeline.
    `max_bad_ratio` is the greatest ratio of bad records in a batch. Above it the partition is parked with the reason.
    `deadline` is in seconds: a Spark job that takes longer is ended, and the partition on which it hangs is parked.
    `requires` are the labels that a worker must have for the partitions.
    `owners` (mail addresses or `team:NAME`), `tags`, `kinds`, `freshness` (a `dg.FreshnessPolicy`) and `automation` (a
    `dg.AutomationCondition`) are Dagster's own, for the pipeline's assets; `kinds` and `freshness` for `records` alone.
    `load` fills in `name` and `module` from the file.
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
        """The partition id of a source key: `<pipeline>:<key>`."""
        return partition_id(self.name, key)

    def key(self, partition: str) -> str:
        """The source key of one of this pipeline's partition ids."""
        if pipeline_of(partition) != self.name:
            raise ConfigError(
                f"Partition {partition!r} is not of pipeline {self.name!r}. Its ids start with {self.name}:"
            )
        return key_of(partition)


@dataclass(frozen=True, slots=True)
class Group:
    """A group of workers that is balanced together, and how.

    `protocol`: "assigned", where Dagster decides who gets which partition, by the `assignor`; or one in which the workers
    decide alone, without assignor, budget, cooldown and grace (docs/protocols.md).
    `options` are the assignor's own, or the protocol's.
    `budget` is the greatest number of voluntary moves in one epoch (None: no limit).
    `cooldown` is the least time between two voluntary plans, in seconds.
    `grace` is how long the partitions of a lost worker wait for it, in seconds.
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
                f"Group {self.name!r}: protocol {self.protocol!r} knows no {', '.join(given)}. Leave them out, or take "
                f"protocol 'assigned'"
            )


def rename_command(old: str, new: str, group: str) -> str:
    """What a person types to give a pipeline's table another name."""
    return f"rota rename {old} {new}{'' if group == 'default' else f' --group {group}'}"


def suggest_path(owner: str, name: str, group: str) -> str:
    """What the pipeline `name` can do whose table is `owner`'s."""
    return (
        f"Give {name!r} another path; or, if it is {owner!r} under a new name, take {owner}.py away, then: "
        f"{rename_command(owner, name, group)}"
    )
