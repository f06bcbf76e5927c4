"""Makes the Dagster definitions of a folder of pipeline files, for any code location.

Laws:
1. To import this module does nothing. `definitions` needs no ZooKeeper, no Java and no Spark.
2. If a file does not load, only that file is refused. If a file's extras do not load with the rest, only they are left out.
   Both are a warning in the log, and a failed check on each `<group>/membership`.
3. It sets no executor, no resource key except `rota_...`, and no automation of other assets.
"""

import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dagster as dg

from rota.catalog import Catalog, load
from rota.dagster import jobs, pipeline_files
from rota.dagster.assets.group import make_assignment, make_files_check, make_membership
from rota.dagster.assets.names import Names
from rota.dagster.assets.pipeline import make_pipeline_assets
from rota.dagster.assets.pipeline_checks import make_checks
from rota.dagster.extras import choose_extras, flatten
from rota.dagster.maintain import make_maintain_job, make_maintain_schedule
from rota.dagster.purge import make_purge_job
from rota.dagster.resources.spark import SparkResource
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors.backlog import make_backlog_sensor
from rota.dagster.sensors.checks import make_checks_sensor
from rota.dagster.sensors.membership import make_membership_sensor
from rota.ids import checked_id

if TYPE_CHECKING:
    from rota.coordination.store import Store

log = logging.getLogger("rota")

# The same objects each time: Dagster merges two definitions only if they have the same resource under one key.
RESOURCES = {"rota_zookeeper": ZooKeeperResource(), "rota_spark": SparkResource()}


def definitions(
    pipelines: str | os.PathLike[str] = "pipelines/",
    *,
    key_prefix: str | Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
) -> dg.Definitions:
    """Return the assets, checks, sensors and jobs of every pipeline file in the folder, and the user's own assets in them.

    `pipelines` is the folder; a relative one is below the process's working directory.
    `key_prefix` begins each asset key, partition set, job and sensor. Give each of two deployments on one instance its own.
    `resources` are those that the files' own assets need, and replacements of `rota_zookeeper` and `rota_spark`.

    Merge the result with the location's other definitions: `dg.Definitions.merge(mine, rota.dagster.definitions(...))`.
    Raises ConfigError if the folder does not exist, or the prefix is not a valid name.
    """
    zookeeper = {**RESOURCES, **(resources or {})}["rota_zookeeper"]
    catalog = load(Path(pipelines), partial(_open_store, zookeeper))
    for why in catalog.unserved.values():
        log.warning(why)
    parts = (key_prefix,) if isinstance(key_prefix, str) else tuple(key_prefix or ())
    return compose(catalog, Names(tuple(checked_id("key prefix", part) for part in parts)), resources)


@contextmanager
def _open_store(zookeeper: Any) -> "Iterator[Store]":
    with dg.build_resources({"zookeeper": zookeeper}) as built, built.zookeeper.store() as store:
        yield store


def compose(catalog: Catalog, names: Names = Names(), resources: Mapping[str, Any] | None = None) -> dg.Definitions:  # noqa: B008
    """Return the definitions of each group and pipeline of the catalog, and the extras of the files, without those that
    Dagster refuses (law 2)."""
    return _settle(catalog, names, resources)[1]


def find_unserved(folder: Path) -> dict[str, str]:
    """Find the files of the folder that Dagster does not serve completely.

    A definition that needs a resource of the code location counts as served. `rota.face.unserved` calls this in another
    process, because a command does not import Dagster.

    Returns:
        File -> the reason, in one line.
    """
    catalog, theirs = load(folder), dict[str, Any]()
    while True:
        served, _ = _settle(catalog, Names(), theirs)
        missing = set(re.findall(r"resource with key '(\w+)'", " ".join(served.left_out.values()))) - theirs.keys()
        if not missing:
            return served.unserved
        theirs |= {key: dg.ResourceDefinition.none_resource() for key in missing}


def _settle(catalog: Catalog, names: Names, resources: Mapping[str, Any] | None) -> tuple[Catalog, dg.Definitions]:
    """Return the part of the catalog that is served, and its definitions."""
    try:
        return catalog, _merge(catalog, [*map(pipeline_files.load_file, catalog.modules)], names, resources)
    except Exception:  # Dagster raises any type; the file at fault is found by loading file by file
        served, own = _choose(catalog, names, resources)
        return served, _merge(served, own, names, resources)


def _choose(
    catalog: Catalog, names: Names, resources: Mapping[str, Any] | None
) -> tuple[Catalog, list[dg.Definitions]]:
    """Return the catalog without the pipelines that Dagster refuses, for example for an invalid owner, and the extras of the
    files that load together."""
    refused: dict[str, str] = {}
    for name, pipeline in catalog.pipelines.items():
        try:
            _merge(replace(catalog, pipelines={name: pipeline}), [], names, resources)
        except Exception as error:
            assert pipeline.module is not None
            why = f"{pipeline.module.__file__}: {flatten(error)}. Correct the file; the others are served"
            refused[_name_file(pipeline.module)] = why
    modules = [module for module in catalog.modules if _name_file(module) not in refused]
    modules.sort(key=lambda module: catalog.ages.rank(Path(_name_file(module)).stem))
    pipelines = {name: one for name, one in catalog.pipelines.items() if one.module in modules}
    kept = replace(catalog, pipelines=pipelines, refused={**catalog.refused, **refused})
    own, less = choose_extras(modules, lambda parts: _merge(kept, parts, names, resources))
    left_out = dict(catalog.left_out)
    for module, why in less.items():
        also = f"{left_out[file]}; " if (file := _name_file(module)) in left_out else ""
        left_out[file] = f"{also}{module.__file__}: {why}. Correct the file; its pipeline is served"
    for line in (*refused.values(), *left_out.values()):
        log.warning(line)
    return replace(kept, left_out=left_out), own


def _name_file(module: ModuleType) -> str:
    return Path(str(module.__file__)).name


def _merge(
    catalog: Catalog, owns: Sequence[dg.Definitions], names: Names, resources: Mapping[str, Any] | None
) -> dg.Definitions:
    """rota's definitions of the whole catalog, and what files declare beside. Raises what Dagster raises if they do not
    fit."""
    base = _make_definitions(catalog, names, resources)
    with warnings.catch_warnings():  # some of what this calls is a preview of Dagster's
        warnings.simplefilter("ignore")
        own = dg.Definitions.merge(*owns)
        if names.prefix:
            theirs = (*pipeline_files.list_keys(own.assets or ()), *_list_plain_keys(catalog))
            sets = {str(Names().partition_set(p).name): names.partition_set(p) for p in catalog.pipelines}
            own = pipeline_files.rename(own, {key: key.with_prefix(names.prefix) for key in theirs}, sets)
    merged = dg.Definitions.merge(base, own)
    if automated := pipeline_files.select_automated(merged):
        merged = dg.Definitions.merge(merged, _automate(automated, names))
    if own.assets or own.asset_checks or own.jobs or own.schedules or own.sensors:
        dg.Definitions.validate_loadable(merged)
    return merged


def _list_plain_keys(catalog: Catalog) -> Iterator[dg.AssetKey]:
    """Yield the keys of rota's assets without the prefix, as pipeline files name them."""
    plain = Names()
    for group in catalog.groups:
        yield from (plain.membership(group), plain.assignment(group))
    for pipeline in catalog.pipelines:
        yield from plain.consumed(pipeline)


def _automate(what: dg.AssetSelection, names: Names) -> dg.Definitions:
    """Return a sensor that evaluates the automation conditions of only these assets and checks."""
    sensor = dg.AutomationConditionSensorDefinition(
        names.name("rota", "automation"),
        target=what,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=30,
    )
    return dg.Definitions(sensors=[sensor])


def _make_definitions(catalog: Catalog, names: Names, resources: Mapping[str, Any] | None) -> dg.Definitions:
    """Return rota's own definitions."""
    groups, pipelines = catalog.groups.values(), catalog.pipelines.values()
    return dg.Definitions(
        assets=[
            *(make_membership(group, catalog.of_group(group.name), catalog.unserved, names) for group in groups),
            *(make_assignment(group, catalog.of_group(group.name), names) for group in groups),
            *(make_pipeline_assets(pipeline, names) for pipeline in pipelines),
        ],
        asset_checks=[
            *(make_files_check(group, catalog.unserved, names) for group in groups),
            *(make_checks(pipeline, names) for pipeline in pipelines),
        ],
        jobs=[
            *(jobs.make_rebalance_job(group, names) for group in groups),
            *(jobs.make_consume_job(pipeline, names) for pipeline in pipelines),
            *(jobs.make_replay_job(pipeline, names) for pipeline in pipelines),
            *(make_maintain_job(pipeline, names) for pipeline in pipelines),
            make_purge_job(pipelines, names),
        ],
        schedules=[make_maintain_schedule(pipeline, names) for pipeline in pipelines],
        sensors=[
            *(make_membership_sensor(group, catalog, names) for group in groups),
            *(make_backlog_sensor(pipeline, names) for pipeline in pipelines),
            *(make_checks_sensor(pipeline, names) for pipeline in pipelines),
        ],
        resources={**RESOURCES, **(resources or {})},
    )
