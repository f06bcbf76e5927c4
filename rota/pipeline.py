"""What the user declares: a pipeline is a file in `pipelines/`, read by path; the file's name is its name.

Law: adding a file adds a pipeline and edits nothing else; a file that cannot be loaded stops that pipeline only. Two
pipelines never share a table, however its path is spelled: each would consume into it what it reads. The one whose table it
is goes on, whatever the files are called; where there is no table yet, the first by name.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from rota.errors import ConfigError, RotaError
from rota.ids import checked_id, key_of, partition_id, pipeline_of
from rota.settings import VARIABLE, local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["csv", "json", "parquet"]
Start = Literal["earliest", "latest"] | int
WRAPPED = re.compile(r"(?i)[\s:<](?:tinyint|byte)\s*(?:[,>]|$|not\b|comment\b|default\b)")  # a type, not a name


@dataclass(frozen=True, slots=True)
class Files:
    """Landing folders: one folder a partition below `path`, files of one `format`; an offset is a file's ordinal.

    `schema` is Spark DDL. `start` holds for a partition first seen; `latest` for those that are there when the pipeline
    first runs: in a folder that appears later all is new. A file whose size or time moved within `settle` seconds waits.
    One run takes at most `max_files` files and `max_bytes` bytes of a partition, but at least one file; it does so in jobs
    of at most `max_job_files` files and `max_job_bytes` bytes of all partitions, each with a commit.
    `options` go to Spark's reader as they are; without `enableDateTimeParsingFallback` a date is read by its format alone.
    A CSV header or a Parquet file without a declared column stops its partition
    (`mergeSchema` "true": null in Parquet); what a JSON record lacks is null.
    """

    path: str
    format: Format
    schema: str
    start: Start = "earliest"
    settle: float = 2.0
    max_files: int = 1000
    max_bytes: int = 4 << 30
    max_job_files: int = 4000
    max_job_bytes: int = 4 << 30
    options: Mapping[str, str] = field(default_factory=dict)

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
    """A folder of three sibling Delta tables: `main/`, `quarantine/`, `index/`. `path` may hold `${VAR}`."""

    path: str

    def __post_init__(self) -> None:
        local(self.path)


def files(path: str, *, format: Format, schema: str, **more: object) -> Files:
    """A source of landing folders; see `Files` for the options."""
    return Files(path=path, format=format, schema=schema, **more)  # type: ignore[arg-type]


def delta(path: str) -> Delta:
    """A Delta table; see `Delta`."""
    return Delta(path)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A source, a transform and a table. `name` and `module` are filled in by `load` from the file.

    `transform(df) -> df` works row by row and keeps `_partition` and `_offset`; UDFs are made inside it. Past
    `max_bad_ratio` of bad records in a batch the partition stops and says so. A Spark job that is not done after `deadline`
    seconds is ended: the partition on which it hangs stops and says so. `requires` are the labels a worker must have for
    its partitions.
    """

    source: Files
    table: Delta
    transform: "Callable[[DataFrame], DataFrame] | None" = None
    group: str = "default"
    max_bad_ratio: float = 0.1
    deadline: float = 600.0
    requires: Mapping[str, str] = field(default_factory=dict)
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
    """A pool of workers balanced together. Durations in seconds; `budget` is the most voluntary moves of one epoch."""

    name: str
    assignor: str = "sticky"
    options: Mapping[str, object] = field(default_factory=dict)
    protocol: Literal["assigned", "claim", "race"] = "assigned"
    budget: int | None = None
    cooldown: float = 0.0
    grace: float = 0.0

    def __post_init__(self) -> None:
        checked_id("group", self.name)
        from rota.core.reconcile import MACHINES  # here: `rota --help` does not wait for numpy

        if self.protocol not in MACHINES:
            raise ConfigError(f"protocol={self.protocol!r} of group {self.name!r}: known is {', '.join(MACHINES)}")


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything the folder declares, by name, in name order; `refused` says why a file gives no pipeline."""

    pipelines: Mapping[str, Pipeline]
    groups: Mapping[str, Group]
    modules: tuple[ModuleType, ...]
    refused: Mapping[str, str]

    def of_group(self, group: str) -> tuple[Pipeline, ...]:
        """The pipelines that the group serves, by name."""
        return tuple(p for p in self.pipelines.values() if p.group == group)


def load(folder: Path) -> Catalog:
    """Every `*.py` of `folder` whose name does not start with `_` or `.`. Raises ConfigError if there is no such folder.

    A file that raises, declares a bad value, a table that is another's, or a group of an earlier file's name is refused by
    itself: `refused[file name]` is one line, and the other files are served. Where nobody can tell whose a table is, all who
    declare it are refused.
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
            module = _module(path)
            declared[path] = module, _declared(path, module)
        except ConfigError as error:
            refused[path.name] = str(error)
    others = _others(one for _, found in declared.values() for one in found if isinstance(one, Pipeline))
    for path, (module, found) in declared.items():
        try:
            _unshared(path, found, others, groups)
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


def _module(path: Path) -> ModuleType:
    """The file as a module of its own name, kept in `sys.modules` so that it can travel to Spark by value."""
    name = f"rota_pipelines_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be read as Python. Check the file's name and rights")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
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


def _declared(path: Path, module: ModuleType) -> tuple[Pipeline | Group, ...]:
    found: list[Pipeline | Group] = [v for v in vars(module).values() if isinstance(v, Group)]
    pipeline = getattr(module, "pipeline", None)
    if isinstance(pipeline, Pipeline):
        found.append(replace(pipeline, name=_name(path), module=module))
    if not found:
        raise ConfigError(f"{path} declares neither `pipeline = Pipeline(...)` nor a Group. Add one or name it _...")
    return tuple(found)


def _name(path: Path) -> str:
    return checked_id("pipeline", path.stem)


def _unshared(
    path: Path, found: tuple[Pipeline | Group, ...], others: Mapping[str, str], groups: Mapping[str, Group]
) -> None:
    for item in found:
        if isinstance(item, Group) and item.name in groups:
            raise ConfigError(f"{path}: group {item.name!r} stands in an earlier file already. Declare it once")
        if isinstance(item, Pipeline) and item.name in others:
            raise ConfigError(f"{path}: its table {item.table.path!r} {others[item.name]}")


def _others(pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """Pipeline -> whose its table is, where it is not its own, with the next step."""
    places: dict[str, list[Pipeline]] = {}
    for pipeline in pipelines:
        places.setdefault(_place(pipeline.table), []).append(pipeline)
    shared = {place: sharing for place, sharing in places.items() if len(sharing) > 1}
    return {name: why for place, sharing in shared.items() for name, why in _refusals(place, sharing).items()}


def _refusals(place: str, sharing: list[Pipeline]) -> dict[str, str]:
    from rota.dataplane.identity import instead, owner_among  # here: only who shares a table waits for delta-rs

    names = [one.name for one in sharing]
    try:
        owner = owner_among(Path(place) / "main", names) or names[0]
    except RotaError as error:
        why = f"stands in {', '.join(f'{name}.py' for name in names)}, and nobody can tell whose it is: {error}"
        return dict.fromkeys(names, why)
    return {
        one.name: f"is the one of pipeline {owner!r}. {instead(owner, one.name, one.group)}"
        for one in sharing
        if one.name != owner
    }


def _place(table: Delta) -> str:
    """Where the table is: one text for all spellings of a path. A variable that is not set here stays as it is."""
    return os.path.realpath(VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), table.path))
