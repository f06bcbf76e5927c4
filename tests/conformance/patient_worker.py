"""`rota worker` with a Spark that may be silent for the seconds that its last argument gives; `inf` removes the guard."""

import sys

from rota.cli import main
from rota.dataplane.spark.spark_server import SparkServer

SparkServer.__init__.__kwdefaults__["silence"] = float(sys.argv.pop())
sys.argv[:1] = ["rota", "worker"]
main()
