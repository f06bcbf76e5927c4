"""Dagster's definitions, made from the pipeline files. Law: loading needs no ZooKeeper, no Java and no Spark.

A file that cannot be loaded is refused alone: with a warning here, and a failed check on every `<group>/membership`.
"""

import logging
import os
from pathlib import Path

import dagster as dg

from dagster_project import jobs
from dagster_project.warm import warm
from rota.dagster.assets.group import make_assignment, make_files_check, make_membership
from rota.dagster.assets.look import make_checks
from rota.dagster.assets.pipeline import make_pipeline_assets
from rota.dagster.resources.spark import SparkResource
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors.backlog import make_backlog_sensor
from rota.dagster.sensors.checks import make_checks_sensor
from rota.dagster.sensors.membership import make_membership_sensor
from rota.pipeline import Catalog, load
from rota.settings import Settings

ROOT = Path(__file__).parents[1]


def compose(catalog: Catalog) -> dg.Definitions:
    """The assets, sensors and jobs of each group and pipeline of the catalog."""
    groups, pipelines = catalog.groups.values(), catalog.pipelines.values()
    return dg.Definitions(
        assets=[
            *(make_membership(group, catalog.of_group(group.name), catalog.refused) for group in groups),
            *(make_assignment(group, catalog.of_group(group.name)) for group in groups),
            *(make_pipeline_assets(pipeline) for pipeline in pipelines),
            *dg.load_assets_from_modules(catalog.modules),
        ],
        asset_checks=[
            *(make_files_check(group, catalog.refused) for group in groups),
            *(make_checks(pipeline) for pipeline in pipelines),
        ],
        jobs=[
            *(jobs.make_rebalance_job(group) for group in groups),
            *(jobs.make_consume_job(pipeline) for pipeline in pipelines),
        ],
        sensors=[
            *(make_membership_sensor(group, catalog) for group in groups),
            *(make_backlog_sensor(pipeline) for pipeline in pipelines),
            *(make_checks_sensor(pipeline) for pipeline in pipelines),
            *(
                one
                for module in catalog.modules
                for one in vars(module).values()
                if isinstance(one, dg.SensorDefinition)
            ),
            dg.AutomationConditionSensorDefinition(
                "automation",
                target=dg.AssetSelection.all(),
                default_status=dg.DefaultSensorStatus.RUNNING,
                minimum_interval_seconds=30,
            ),
        ],
        resources={"zookeeper": ZooKeeperResource(), "spark": SparkResource()},
        executor=dg.in_process_executor,  # a run is a process already; one for each step would connect again
    )


def load_catalog() -> Catalog:
    """Loads ROTA_PIPELINES, or `pipelines/` of this checkout if it is not set. Raises ConfigError."""
    settings = Settings.from_environment({"ROTA_PIPELINES": str(ROOT / "pipelines"), **os.environ})
    found = load(settings.pipelines)
    for why in found.refused.values():
        logging.getLogger("rota").warning(why)
    return found


warm()
defs = compose(load_catalog())
