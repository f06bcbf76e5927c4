"""Everything Dagster shows, made from the pipeline files. Law: loading needs no ZooKeeper, no Java and no Spark.

A file that cannot be loaded is refused by itself: one warning here, one line and a red check on every `<group>/membership`.
"""

import logging
import os
from pathlib import Path

import dagster as dg

from assets.group import assignment, every_file_served, membership
from assets.pipeline import consumed
from dagster_project import jobs
from dagster_project.warm import warm
from resources.spark import SparkResource
from resources.zookeeper import ZooKeeperResource
from rota.pipeline import Catalog, load
from rota.settings import Settings
from sensors.backlog import backlog
from sensors.membership import membership as membership_sensor

ROOT = Path(__file__).parents[1]


def compose(catalog: Catalog) -> dg.Definitions:
    """The face of a catalog: the assets, sensors and jobs of each group and pipeline."""
    groups, pipelines = catalog.groups.values(), catalog.pipelines.values()
    return dg.Definitions(
        assets=[
            *(membership(group, catalog.of_group(group.name), catalog.refused) for group in groups),
            *(assignment(group, catalog.of_group(group.name)) for group in groups),
            *(consumed(pipeline) for pipeline in pipelines),
            *dg.load_assets_from_modules(catalog.modules),
        ],
        asset_checks=[every_file_served(group, catalog.refused) for group in groups],
        jobs=[*(jobs.rebalance(group) for group in groups), *(jobs.consume(pipeline) for pipeline in pipelines)],
        sensors=[
            *(membership_sensor(group, catalog) for group in groups),
            *(backlog(pipeline) for pipeline in pipelines),
            dg.AutomationConditionSensorDefinition(
                "automation",
                target=dg.AssetSelection.all(),
                default_status=dg.DefaultSensorStatus.RUNNING,
                minimum_interval_seconds=30,
            ),
        ],
        resources={"zookeeper": ZooKeeperResource(), "spark": SparkResource()},
        executor=dg.in_process_executor,  # a run is a process of its own already; a step each would start a client each
    )


def catalog() -> Catalog:
    """What the folder of this environment declares; the checkout's own `pipelines/` when ROTA_PIPELINES is not set."""
    settings = Settings.from_environment({"ROTA_PIPELINES": str(ROOT / "pipelines"), **os.environ})
    found = load(settings.pipelines)
    for why in found.refused.values():
        logging.getLogger("rota").warning(why)
    return found


warm()
defs = compose(catalog())
