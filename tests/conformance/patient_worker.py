"""`rota worker` with a Spark that may be silent for as long as the last word says; `inf` removes the guard.

Called as `--group GROUP --id WORKER SECONDS`.
"""

import sys

from rota.cli.worker import Process
from rota.coordination.records import Live
from rota.dataplane.spark.spark_server import SparkServer, SparkSettings
from rota.settings import Settings

_, _, group, _, worker, silence = sys.argv
server = SparkServer(worker, SparkSettings("local[1]", {"spark.driver.memory": "600m"}), silence=float(silence))
settings = Settings.from_environment()
sys.exit(Process(group, worker, Live(), server, settings, settings.zookeeper).run())
