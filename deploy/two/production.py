"""The code location `production`: its settings come from production.env."""

import os
from pathlib import Path

from dotenv import load_dotenv

import rota.dagster

load_dotenv(Path(__file__).with_name("production.env"), override=True)
defs = rota.dagster.definitions(os.environ["ROTA_PIPELINES"])
