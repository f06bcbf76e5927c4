"""The code location of this checkout. Change here the folder, the prefix, the resources and the executor, and add your own
definitions beside rota's."""

import os
from pathlib import Path

import dagster as dg

from rota.dagster import definitions

PIPELINES = os.environ.get("ROTA_PIPELINES") or Path(__file__).parents[1] / "pipelines"

defs = dg.Definitions.merge(
    definitions(PIPELINES),
    dg.Definitions(
        executor=dg.in_process_executor
    ),  # a run is a process already; one for each step would connect again
)
