"""rota as a library of Dagster's: `dg.Definitions.merge(mine, rota.dagster.definitions("pipelines/"))`.

`assets`, `sensors` and `resources` here are the folders of these names at the root of the repository.
"""

from rota.dagster.component import PipelinesComponent
from rota.dagster.location import definitions
from rota.dagster.resources.spark import SparkResource
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.dagster.sensors.alerts import Alert, make_alert_sensor

__all__ = ["Alert", "PipelinesComponent", "SparkResource", "ZooKeeperResource", "definitions", "make_alert_sensor"]
