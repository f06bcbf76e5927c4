"""Everything that a folder of pipeline files gives a code location of Dagster.

Laws:
1. Importing this does nothing, and calling it needs no ZooKeeper, no Java and no Spark.
2. A file that cannot be loaded is refused alone: with a warning in the log, and a failed check on each `<group>/membership`.
3. It takes nothing that is its host's: no executor, no resource key but `rota_...`, no automation of other assets.
"""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg

from rota.catalog import Catalog, load
from rota.dagster import jobs, pipeline_files
from rota.dagster.assets.group import make_assignment, make_files_check, make_membership
from rota.dagster.assets.look import make_checks
from rota.dagster.assets.names import Names
from rota.dagster.assets.pipeline import make_pipeline_assets
from rota.dagster.purge import make_purge_job
from rota.dagster.resources.spark import SparkResource
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors.backlog import make_backlog_sensor
from rota.dagster.sensors.checks import make_checks_sensor
from rota.dagster.sensors.membership import make_membership_sensor
from rota.ids import checked_id
from rota.pipeline import Group

log = logging.getLogger("rota")

# The same objects each time: Dagster merges two definitions only if they have the same resource under one key.
RESOURCES = {"rota_zookeeper": ZooKeeperResource(), "rota_spark": SparkResource()}


def definitions(
    pipelines: str | os.PathLike[str] = "pipelines/",
    *,
    key_prefix: str | Sequence[str] | None = None,
    resources: Mapping[str, Any] | None = None,
) -> dg.Definitions:
    """The assets, checks, sensors and jobs of every pipeline file in the folder, with the user's own assets in these files.

    `pipelines` is the folder; a relative one is below the process's working directory.
    `key_prefix` begins each asset key, partition set, job and sensor. Give each of two deployments on one instance its own.
    `resources` are those that the files' own assets need, and what replaces `rota_zookeeper` and `rota_spark`.

    Merge the result with what else the location has: `dg.Definitions.merge(mine, rota.dagster.definitions(...))`. Raises
    ConfigError if there is no such folder, or the prefix is no name.
    """
    catalog = load(Path(pipelines))
    for why in catalog.refused.values():
        log.warning(why)
    parts = (key_prefix,) if isinstance(key_prefix, str) else tuple(key_prefix or ())
    return compose(catalog, Names(tuple(checked_id("key prefix", part) for part in parts)), resources)


def compose(catalog: Catalog, names: Names = Names(), resources: Mapping[str, Any] | None = None) -> dg.Definitions:  # noqa: B008
    """The definitions of each group and pipeline of the catalog, and what the files declare beside.

    A file that Dagster does not load beside the others is refused, by law 2. All are tried together first, for that is
    quick."""
    try:
        return _merge(catalog, catalog.modules, names, resources)
    except Exception:  # Dagster raises what it likes; whose fault it was is found file by file
        served = _refuse_files(catalog, names, resources)
        return _merge(served, served.modules, names, resources)


def _refuse_files(catalog: Catalog, names: Names, resources: Mapping[str, Any] | None) -> Catalog:
    """The catalog without the files that do not go with the others. Of two that collide the first by name is served."""
    kept: list[ModuleType] = []
    waiting, failed = list(catalog.modules), True
    why: dict[str, str] = {}
    while failed and waiting:  # a file may need what a later one declares
        left: list[ModuleType] = []
        for module in waiting:
            try:
                _merge(catalog, [*kept, module], names, resources)
                kept.append(module)
            except Exception as error:
                said = " ".join(f"{error} {error.__cause__ or ''}".split())
                why[_name_file(module)] = f"{module.__file__}: {said}. Mend the file; the others are served"
                left.append(module)
        failed, waiting = len(left) < len(waiting), left
    refused = {_name_file(module): why[_name_file(module)] for module in waiting}
    for line in refused.values():
        log.warning(line)
    return _keep(catalog, kept, refused)


def _keep(catalog: Catalog, modules: Sequence[ModuleType], refused: Mapping[str, str]) -> Catalog:
    """The catalog of these files; the others are refused, or were never there."""
    pipelines = {name: one for name, one in catalog.pipelines.items() if one.module in modules}
    groups = [one for module in modules for one in vars(module).values() if isinstance(one, Group)]
    named = {one.name: one for one in groups}
    for one in pipelines.values():
        named.setdefault(one.group, Group(one.group))
    return Catalog(pipelines, dict(sorted(named.items())), tuple(modules), {**catalog.refused, **refused})


def _name_file(module: ModuleType) -> str:
    return Path(str(module.__file__)).name


def _merge(
    catalog: Catalog, modules: Sequence[ModuleType], names: Names, resources: Mapping[str, Any] | None
) -> dg.Definitions:
    """rota's definitions of the whole catalog, and these files' own. Raises what Dagster raises if they do not fit."""
    base = _make_definitions(catalog, names, resources)
    with warnings.catch_warnings():  # some of what this calls is a preview of Dagster's
        warnings.simplefilter("ignore")
        own = dg.Definitions.merge(*map(pipeline_files.load_file, modules))
        if names.prefix:
            theirs = (*pipeline_files.list_keys(own.assets or ()), *_list_plain_keys(catalog))
            own = pipeline_files.rename(own, {key: key.with_prefix(names.prefix) for key in theirs})
    merged = dg.Definitions.merge(base, own)
    if automated := pipeline_files.find_automated(merged.assets or ()):
        merged = dg.Definitions.merge(merged, _automate(automated, names))
    if own.assets or own.asset_checks or own.jobs or own.schedules or own.sensors:
        dg.Definitions.validate_loadable(merged)
    return merged


def _list_plain_keys(catalog: Catalog) -> Iterator[dg.AssetKey]:
    """rota's keys as a pipeline file says them."""
    plain = Names()
    for group in catalog.groups:
        yield from (plain.membership(group), plain.assignment(group))
    for pipeline in catalog.pipelines:
        yield from plain.consumed(pipeline)


def _automate(keys: Sequence[dg.AssetKey], names: Names) -> dg.Definitions:
    """The sensor that evaluates the automation conditions of these assets, and of no others."""
    sensor = dg.AutomationConditionSensorDefinition(
        names.automation_sensor(),
        target=dg.AssetSelection.assets(*keys),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=30,
    )
    return dg.Definitions(sensors=[sensor])


def _make_definitions(catalog: Catalog, names: Names, resources: Mapping[str, Any] | None) -> dg.Definitions:
    """What rota itself gives to Dagster."""
    groups, pipelines = catalog.groups.values(), catalog.pipelines.values()
    return dg.Definitions(
        assets=[
            *(make_membership(group, catalog.of_group(group.name), catalog.refused, names) for group in groups),
            *(make_assignment(group, catalog.of_group(group.name), names) for group in groups),
            *(make_pipeline_assets(pipeline, names) for pipeline in pipelines),
        ],
        asset_checks=[
            *(make_files_check(group, catalog.refused, names) for group in groups),
            *(make_checks(pipeline, names) for pipeline in pipelines),
        ],
        jobs=[
            *(jobs.make_rebalance_job(group, names) for group in groups),
            *(jobs.make_consume_job(pipeline, names) for pipeline in pipelines),
            *(jobs.make_replay_job(pipeline, names) for pipeline in pipelines),
            make_purge_job(pipelines, names),
        ],
        sensors=[
            *(make_membership_sensor(group, catalog, names) for group in groups),
            *(make_backlog_sensor(pipeline, names) for pipeline in pipelines),
            *(make_checks_sensor(pipeline, names) for pipeline in pipelines),
        ],
        resources={**RESOURCES, **(resources or {})},
    )
