"""Loads what the files in `pipelines/` declare. Each file is a pipeline, and the file's name is the pipeline's name.

Laws:
1. A new file adds a pipeline and changes no other. A file that cannot be loaded stops its own pipeline only.
2. Two pipelines never share a table, however its path is spelled. The pipeline that owns the table is served, and the
   other is refused. If there is no table yet, the elder pipeline is served; `ages` decides. The same holds for two
   files that declare one group differently. A pipeline that runs is then served by the group as the elder file declares
   it.
3. No landing folder and table lie within each other, also of two pipelines. No table lies in a folder of another Delta
   table. Each would take the other's files for its own, and a vacuum would delete them.
4. No pipeline removes consumed files (`after`) from a landing folder that another pipeline reads.
5. The text of the file is loaded, never older bytecode.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from rota.ages import Ages, open_store
from rota.dataplane.spark.places import find_place
from rota.dataplane.spark.words import EARLY
from rota.errors import ConfigError, RotaError
from rota.ids import checked_id
from rota.pipeline import Files, Group, Pipeline, suggest_path
from rota.settings import VARIABLE
from rota.stores import is_url

if TYPE_CHECKING:
    from rota.coordination.store import Store

STAMP = "__rota_stamp__"
DELTAS = ("main", "quarantine", "index", "stage")  # what a vacuum of a table looks through


@dataclass(frozen=True, slots=True)
class Catalog:
    """All declarations of the folder, by name and in name order.

    `refused`: file -> why it declares nothing. `left_out`: file -> which part of it is not served, and why. `ages`
    orders colliding pipelines.
    """

    pipelines: Mapping[str, Pipeline]
    groups: Mapping[str, Group]
    modules: tuple[ModuleType, ...]
    refused: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    ages: Ages = field(default=Ages(()), compare=False, repr=False)

    @property
    def unserved(self) -> dict[str, str]:
        """Return file -> why not all of it is served."""
        return {**self.left_out, **self.refused}

    def of_group(self, group: str) -> tuple[Pipeline, ...]:
        """Return the pipelines that the group serves, by name."""
        return tuple(p for p in self.pipelines.values() if p.group == group)


def load(folder: Path, ask: "Callable[[], AbstractContextManager[Store]] | None" = None) -> Catalog:
    """Load each `*.py` of `folder` whose name does not start with `_` or `.`.

    A file is refused if it raises, or declares a bad value, another pipeline's table, or a group that an elder file
    declares differently. `refused[file name]` is then one line, and the other files are served. If the owner of a table
    is unknown, all files that declare the table are refused.

    Args:
        folder: the folder with the pipeline files.
        ask: opens ZooKeeper if files collide; None: as the environment names it.

    Raises:
        ConfigError: there is no such folder.
    """
    modules: dict[str, ModuleType] = {}
    refused: dict[str, str] = {}
    declared: dict[str, tuple[Pipeline | Group, ...]] = {}
    for path in _list_files(folder):
        try:
            module = _import_file(path)
            declared[path.name] = _find_declared(path, module)
            modules[path.name] = module
        except ConfigError as error:
            refused[path.name] = str(error)
    there = [one for found in declared.values() for one in found if isinstance(one, Pipeline)]
    ages = Ages((one for found in declared.values() for one in found), ask or open_store)
    others = {**_find_takers(there), **_find_nested(there), **_find_owners(there, ages)}
    for file, found in tuple(declared.items()):
        for pipeline in found:
            if isinstance(pipeline, Pipeline) and pipeline.name in others:
                refused[file] = f"{modules[file].__file__}: its {others[pipeline.name]}"
                declared.pop(file)
    groups, differ = _choose_groups(declared, ages)
    while newcomers := [file for file in differ if not ages.knows(declared[file])]:
        for file in newcomers:
            refused[file] = f"{modules[file].__file__}: {differ[file]}"
            declared.pop(file)
        groups, differ = _choose_groups(declared, ages)
    left_out = {
        file: f"{modules[file].__file__}: {why}. Its pipeline runs, and is served by the group as that file declares it"
        for file, why in differ.items()
    }
    pipelines = {one.name: one for found in declared.values() for one in found if isinstance(one, Pipeline)}
    for pipeline in pipelines.values():
        groups.setdefault(pipeline.group, Group(pipeline.group))
    kept = tuple(modules[file] for file in declared)
    return Catalog(pipelines, dict(sorted(groups.items())), kept, refused, left_out, ages)


def _choose_groups(
    declared: Mapping[str, tuple[Pipeline | Group, ...]], ages: Ages
) -> tuple[dict[str, Group], dict[str, str]]:
    """Return group -> its declaration; file -> which group it declares differently, with the next step. Equal
    declarations are one.
    """
    said = [(file, one) for file, found in declared.items() for one in found if isinstance(one, Group)]
    if any(one != other for _, one in said for _, other in said if one.name == other.name):
        said.sort(key=lambda item: ages.rank_file(item[0], declared[item[0]]))
    chosen: dict[str, tuple[str, Group]] = {}
    differ: dict[str, str] = {}
    for file, one in said:
        elder, served = chosen.setdefault(one.name, (file, one))
        if one != served:
            differ[file] = (
                f"it declares group {one.name!r} otherwise than {elder}, which stays{ages.doubt}. Declare both alike, or "
                f"give this one another name"
            )
    return {name: one for name, (_, one) in chosen.items()}, differ


def load_file(path: Path) -> Pipeline:
    """Return the pipeline of one file, whatever the other files declare. Raises ConfigError if it declares none."""
    if not path.is_file():
        raise ConfigError(
            f"There is no file {str(path)!r}. Give the path of a pipeline file, such as pipelines/flights.py"
        )
    for found in _find_declared(path, _import_file(path)):
        if isinstance(found, Pipeline):
            return found
    raise ConfigError(f"{path} declares a group and no pipeline. Give a file with `pipeline = Pipeline(...)`")


def has_changed(pipeline: Pipeline) -> bool:
    """Return whether the pipeline's file is gone, or has changed since it was loaded."""
    module = pipeline.module
    return module is not None and getattr(module, STAMP) != _read_stamp(Path(str(module.__file__)))


def read_stamps(folder: Path) -> dict[str, object]:
    """Return file name -> a value that changes with the file. Raises ConfigError if there is no such folder."""
    return {path.name: _read_stamp(path) for path in _list_files(folder)}


def _list_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ConfigError(
            f"No folder {str(folder)!r} with pipelines. Set ROTA_PIPELINES, or `pipelines` in your code location, to the "
            "folder that holds them"
        )
    return sorted(folder.glob("[!_.]*.py"))


def _read_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


class _TextLoader(SourceFileLoader):
    """Reads and writes no bytecode: Python would take bytecode of an older text of the same second and size for the
    file's.
    """

    def get_code(self, _: str) -> CodeType:
        """Return the compiled text of the file. Raises SyntaxError, OSError."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _import_file(path: Path) -> ModuleType:
    """Import the file as a module of its own, in `sys.modules`, so that its functions can be sent to Spark."""
    name = f"rota_pipelines_{path.stem}"
    loader = _TextLoader(name, str(path))
    spec = ModuleSpec(name, loader, origin=str(path))
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    setattr(module, STAMP, _read_stamp(path))  # before it is read: a change meanwhile is a change
    try:
        loader.exec_module(module)
    except ConfigError:
        raise
    except (
        Exception,
        SystemExit,
    ) as error:  # the user's file may raise anything; one bad file must not take the others along
        early = EARLY.search(str(error))  # of the run: later
        mend = "Make UDFs and columns inside transform" if early else "Mend the file"
        said = " ".join(str(error).split())
        line = "" if isinstance(error, SyntaxError) or not (at := find_place(error, module)) else f" ({at})"
        raise ConfigError(
            f"{path} raised {type(error).__name__}: {said}{line}. {mend}; the others are served"
        ) from error
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


def _find_nested(pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """Return pipeline -> which of its folders overlaps a table, with the next step.

    Of two pipelines the one without a table is refused; else the owner of the landing folder or of the inner table.
    """
    tables = [(one, _resolve_place(one.table.path)) for one in pipelines]
    sources = [(one, _resolve_place(one.source.path)) for one, _ in tables if isinstance(one.source, Files)]
    found: dict[str, str] = {}
    for owner, table in tables:
        around = [(one, f"landing folder {at!r}") for one, at in sources if _is_in(at, table) or _is_in(table, at)]
        within = [f"{table}/{name}" for name in DELTAS]
        around += [(one, f"table {at!r}") for one, at in tables if any(_is_in(at, folder) for folder in within)]
        for one, what in around:
            way = "each would take the other's files for its own. Give one of the two a folder beside the other"
            if one is not owner and _has_table(one) and not _has_table(owner):
                found[owner.name] = (
                    f"table {table!r} and the {what} of pipeline {one.name!r} lie within each other: {way}"
                )
            else:
                whose = "" if one is owner else f" of pipeline {owner.name!r}"
                found[one.name] = f"{what} and the table {table!r}{whose} lie within each other: {way}"
    return found


def _find_takers(pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """Return pipeline -> whose unread files it would remove, with the next step."""
    sources = [(one, one.source, _resolve_place(one.source.path)) for one in pipelines if isinstance(one.source, Files)]
    return {
        one.name: f"after={declared.after!r} would take files away that pipeline {other.name!r} reads in {at!r}, too. Say "
        f"after='keep', or give each pipeline a folder of its own"
        for one, declared, place in sources
        if declared.after != "keep"
        for other, _, at in sources
        if other is not one and (_is_in(at, place) or _is_in(place, at))
    }


def _is_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/".replace("//", "/"))


def _has_table(pipeline: Pipeline) -> bool:
    """Return whether the table exists and is the pipeline's, or its owner is unknown."""
    from rota import registry

    try:
        place = _resolve_place(pipeline.table.path)
        return registry.find_owner(pipeline.table, place, [pipeline.name]) is not None
    except RotaError:
        return True


def _find_owners(pipelines: Iterable[Pipeline], ages: Ages) -> dict[str, str]:
    """Return pipeline -> which other pipeline owns its table, with the next step."""
    places: dict[str, list[Pipeline]] = {}
    for pipeline in pipelines:
        places.setdefault(_resolve_place(pipeline.table.path), []).append(pipeline)
    shared = {place: sharing for place, sharing in places.items() if len(sharing) > 1}
    said = (_explain_refusals(place, sharing, ages) for place, sharing in shared.items())
    return {name: why for one in said for name, why in one.items()}


def _explain_refusals(place: str, sharing: list[Pipeline], ages: Ages) -> dict[str, str]:
    from rota import registry

    names = [one.name for one in sharing]
    try:
        owner = registry.find_owner(sharing[0].table, place, names) or min(names, key=ages.rank)
    except RotaError as error:
        files = ", ".join(f"{name}.py" for name in names)
        why = f"table {place!r} is declared in {files}, and its owner is unknown: {error}"
        return dict.fromkeys(names, why)
    return {
        one.name: f"table {place!r} is the one of pipeline {owner!r}. {suggest_path(owner, one.name, one.group)}"
        for one in sharing
        if one.name != owner
    }


def _resolve_place(path: str) -> str:
    """Return the resolved path, or the URL: the same for all spellings. An unset variable is kept as text."""
    place = VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), path)
    return place.rstrip("/") if is_url(place) else os.path.realpath(place)
