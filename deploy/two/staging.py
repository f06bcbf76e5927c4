"""The code location `staging`: its settings come from staging.env, and all of its names begin with `staging`."""

import os
from pathlib import Path

from dotenv import load_dotenv

import rota.dagster

load_dotenv(Path(__file__).with_name("staging.env"), override=True)
defs = rota.dagster.definitions(os.environ["ROTA_PIPELINES"], key_prefix="staging")
