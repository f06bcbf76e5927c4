"""Everything that a folder of pipeline files gives a code location of Dagster.

Laws:
1. Importing this does nothing, and calling it needs no ZooKeeper, no Java and no Spark.
2. A file that cannot be loaded is refused alone: with a warning in the log, and a failed check on each `<group>/membership`.
3. It takes nothing that is its host's: no executor, no resource key but `rota_...`, no automation of other assets.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from rota.dagster import jobs
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
from rota.pipeline import Catalog, load

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
        logging.getLogger("rota").warning(why)
    parts = (key_prefix,) if isinstance(key_prefix, str) else tuple(key_prefix or ())
    return compose(catalog, Names(tuple(checked_id("key prefix", part) for part in parts)), resources)


def compose(catalog: Catalog, names: Names = Names(), resources: Mapping[str, Any] | None = None) -> dg.Definitions:  # noqa: B008
    """The assets, checks, sensors and jobs of each group and pipeline of the catalog."""
    groups, pipelines = catalog.groups.values(), catalog.pipelines.values()
    return dg.Definitions(
        assets=[
            *(make_membership(group, catalog.of_group(group.name), catalog.refused, names) for group in groups),
            *(make_assignment(group, catalog.of_group(group.name), names) for group in groups),
            *(make_pipeline_assets(pipeline, names) for pipeline in pipelines),
            *dg.load_assets_from_modules(catalog.modules),
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
            *(
                one
                for module in catalog.modules
                for one in vars(module).values()
                if isinstance(one, dg.SensorDefinition)
            ),
            dg.AutomationConditionSensorDefinition(
                names.automation_sensor(),
                target=dg.AssetSelection.all(),
                default_status=dg.DefaultSensorStatus.RUNNING,
                minimum_interval_seconds=30,
            ),
        ],
        resources={**RESOURCES, **(resources or {})},
    )
