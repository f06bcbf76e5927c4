"""What the user declares. Each file in `pipelines/` is a pipeline, and the file's name is the pipeline's name.

Laws:
1. A new file adds a pipeline and changes no other. A file that cannot be loaded stops its own pipeline only.
2. Two pipelines never share a table, however its path is spelled. The pipeline that owns the table is served, and the other
   is refused. If there is no table yet, the first pipeline by name is served.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from rota.errors import ConfigError, RotaError
from rota.ids import checked_id, key_of, partition_id, pipeline_of
from rota.settings import VARIABLE, local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["csv", "json", "parquet"]
Start = Literal["earliest", "latest"] | int
STAMP = "__rota_stamp__"
WRAPPED = re.compile(r"(?i)[\s:<](?:tinyint|byte)\s*(?:[,>]|$|not\b|comment\b|default\b)")  # a type, not a name


@dataclass(frozen=True, slots=True)
class Files:
    """Landing folders as a source: one folder a partition below `path`, and an offset is the ordinal of a file in it.

    `files` makes one and says what each option means. Raises ConfigError on a value that no run could work with."""

    path: str
    format: Format
    schema: str
    start: Start
    settle: float
    max_files: int
    max_bytes: int
    max_job_files: int
    max_job_bytes: int
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        local(self.path)
        if self.format not in ("csv", "json", "parquet"):
            raise ConfigError(f"Unknown format {self.format!r} of files({self.path!r}). Known: csv, json, parquet")
        if self.format == "json" and WRAPPED.search(re.sub("`[^`]*`", "c", self.schema)):
            raise ConfigError(f"tinyint in files({self.path!r}): of JSON, Spark takes 200 for -56. Say smallint")
        if self.start not in ("earliest", "latest") and (type(self.start) is not int or self.start < 0):
            raise ConfigError(
                f"start={self.start!r} of files({self.path!r}): give 'earliest', 'latest' or an offset >= 0"
            )
        if self.settle < 0 or min(self.max_files, self.max_bytes, self.max_job_files, self.max_job_bytes) < 1:
            raise ConfigError(
                f"files({self.path!r}): settle must be >= 0, max_files, max_bytes, max_job_files and max_job_bytes >= 1"
            )


@dataclass(frozen=True, slots=True)
class Delta:
    """A folder of three sibling Delta tables: `main/`, `quarantine/`, `index/`. `delta` makes one."""

    path: str

    def __post_init__(self) -> None:
        local(self.path)


def files(
    path: str,
    *,
    format: Format,
    schema: str,
    start: Start = "earliest",
    settle: float = 2.0,
    max_files: int = 1000,
    max_bytes: int = 4 << 30,
    max_job_files: int = 4000,
    max_job_bytes: int = 4 << 30,
    options: Mapping[str, str] | None = None,
) -> Files:
    """Declares landing folders as a source: each folder below `path` is a partition, each file in it an offset.

    `path` is a local folder; it may hold `${VAR}`, which a run fills in from its environment.
    `format` is the format of the files: "csv", "json" (a record a line) or "parquet".
    `schema` is Spark DDL, such as "id long, shop string". A CSV header or a Parquet file without a declared column stops
    its partition (with the option `mergeSchema` "true" the column is null in Parquet). A column that a JSON record lacks
    is null.
    `start` is where a partition begins that the pipeline sees for the first time: "earliest", "latest" or an offset.
    "latest" holds for the partitions that are there at the pipeline's first run; in one that appears later all is new.
    `settle` is in seconds: a file whose size or time changed more recently waits.
    `max_files` and `max_bytes` bound what one run takes of one partition; it takes one file at least.
    `max_job_files` and `max_job_bytes` bound one Spark job over all partitions; a run is one job or more, each a commit.
    `options` go to Spark's reader as they are. Without `enableDateTimeParsingFallback` a date is read by its format alone.

    Raises ConfigError on a bad value.
    """
    return Files(
        path=path,
        format=format,
        schema=schema,
        start=start,
        settle=settle,
        max_files=max_files,
        max_bytes=max_bytes,
        max_job_files=max_job_files,
        max_job_bytes=max_job_bytes,
        options=options or {},
    )


def delta(path: str) -> Delta:
    """Declares the Delta table that a pipeline writes.

    `path` is a local folder; it may hold `${VAR}`, which a run fills in from its environment. The rows are in `main/`
    below it; `quarantine/` holds the records that could not be read, `index/` which file has which offset. Two pipelines
    never share a table. Raises ConfigError on an address that is no local path."""
    return Delta(path)


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

    source: Files
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
        from rota.core.protocols.registry import check_protocol

        check_protocol(self.protocol, self.options)
        plain = {"assignor": "sticky", "budget": None, "cooldown": 0.0, "grace": 0.0}
        if given := [name for name, default in plain.items() if getattr(self, name) != default]:
            raise ConfigError(
                f"Group {self.name!r}: protocol {self.protocol!r} knows no {', '.join(given)}. Leave them out, or take "
                f"protocol 'assigned'"
            )


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything that the folder declares, by name and in name order. `refused`: file -> why it declares nothing."""

    pipelines: Mapping[str, Pipeline]
    groups: Mapping[str, Group]
    modules: tuple[ModuleType, ...]
    refused: Mapping[str, str]

    def of_group(self, group: str) -> tuple[Pipeline, ...]:
        """The pipelines that the group serves, by name."""
        return tuple(p for p in self.pipelines.values() if p.group == group)


def load(folder: Path) -> Catalog:
    """Loads every `*.py` of `folder` whose name does not start with `_` or `.`. Raises ConfigError without the folder.

    A file is refused if it raises, or declares a bad value, another pipeline's table or a group that an earlier file
    declares. `refused[file name]` is then one line, and the other files are served. If nobody can tell whose a table is, all
    files that declare it are refused.
    """
    if not folder.is_dir():
        raise ConfigError(f"No folder {str(folder)!r} with pipelines. Set ROTA_PIPELINES to the folder that holds them")
    pipelines: dict[str, Pipeline] = {}
    groups: dict[str, Group] = {}
    modules: list[ModuleType] = []
    refused: dict[str, str] = {}
    declared: dict[Path, tuple[ModuleType, tuple[Pipeline | Group, ...]]] = {}
    for path in sorted(folder.glob("[!_.]*.py")):
        try:
            module = _import_file(path)
            declared[path] = module, _find_declared(path, module)
        except ConfigError as error:
            refused[path.name] = str(error)
    others = _find_owners(one for _, found in declared.values() for one in found if isinstance(one, Pipeline))
    for path, (module, found) in declared.items():
        try:
            _check_unshared(path, found, others, groups)
        except ConfigError as error:
            refused[path.name] = str(error)
            continue
        modules.append(module)
        for item in found:
            if isinstance(item, Pipeline):
                pipelines[item.name] = item
            else:
                groups[item.name] = item
    for pipeline in pipelines.values():
        groups.setdefault(pipeline.group, Group(pipeline.group))
    return Catalog(pipelines, dict(sorted(groups.items())), tuple(modules), refused)


def has_changed(pipeline: Pipeline) -> bool:
    """Whether the file that declares the pipeline is gone or another one since it was loaded."""
    module = pipeline.module
    return module is not None and getattr(module, STAMP) != _read_stamp(Path(str(module.__file__)))


def _read_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _import_file(path: Path) -> ModuleType:
    """Imports the file as a module of its own, and keeps it in `sys.modules` so that Spark can be sent its functions."""
    name = f"rota_pipelines_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be read as Python. Check the file's name and rights")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    setattr(module, STAMP, _read_stamp(path))  # before it is read: a change meanwhile is a change
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:  # the user's file may raise anything; one bad file must not take the others along
        early = re.search("SESSION_OR_CONTEXT_NOT_EXISTS|NO_ACTIVE_OR_DEFAULT_SESSION", str(error))  # of the run: later
        mend = "Make UDFs and columns inside transform" if early else "Mend the file"
        said = " ".join(str(error).split())
        raise ConfigError(f"{path} raised {type(error).__name__}: {said}. {mend}; the others are served") from error
    return module


def _find_declared(path: Path, module: ModuleType) -> tuple[Pipeline | Group, ...]:
    found: list[Pipeline | Group] = [v for v in vars(module).values() if isinstance(v, Group)]
    pipeline = getattr(module, "pipeline", None)
    if isinstance(pipeline, Pipeline):
        found.append(replace(pipeline, name=_check_name(path), module=module))
    if not found:
        raise ConfigError(f"{path} declares neither `pipeline = Pipeline(...)` nor a Group. Add one or name it _...")
    return tuple(found)


def _check_name(path: Path) -> str:
    return checked_id("pipeline", path.stem)


def _check_unshared(
    path: Path, found: tuple[Pipeline | Group, ...], others: Mapping[str, str], groups: Mapping[str, Group]
) -> None:
    for item in found:
        if isinstance(item, Group) and item.name in groups:
            raise ConfigError(f"{path}: group {item.name!r} stands in an earlier file already. Declare it once")
        if isinstance(item, Pipeline) and item.name in others:
            raise ConfigError(f"{path}: its table {item.table.path!r} {others[item.name]}")


def _find_owners(pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """Pipeline -> who owns its table, if it does not own it itself, with the next step."""
    places: dict[str, list[Pipeline]] = {}
    for pipeline in pipelines:
        places.setdefault(_resolve_place(pipeline.table), []).append(pipeline)
    shared = {place: sharing for place, sharing in places.items() if len(sharing) > 1}
    return {name: why for place, sharing in shared.items() for name, why in _explain_refusals(place, sharing).items()}


def _explain_refusals(place: str, sharing: list[Pipeline]) -> dict[str, str]:
    from rota.dataplane.delta.identity import find_owner_among, suggest_path

    names = [one.name for one in sharing]
    try:
        owner = find_owner_among(Path(place) / "main", names) or names[0]
    except RotaError as error:
        why = f"stands in {', '.join(f'{name}.py' for name in names)}, and nobody can tell whose it is: {error}"
        return dict.fromkeys(names, why)
    return {
        one.name: f"is the one of pipeline {owner!r}. {suggest_path(owner, one.name, one.group)}"
        for one in sharing
        if one.name != owner
    }


def _resolve_place(table: Delta) -> str:
    """The resolved path of the table: the same for all spellings. A variable that is not set here is kept as text."""
    return os.path.realpath(VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), table.path))
