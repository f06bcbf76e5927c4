"""What commands ask of Dagster's page: run this job, and say what it said."""

from collections.abc import Mapping
from time import sleep

from rota.cli.view import show_wait
from rota.errors import EnvironmentFailed
from rota.local.page import DagsterPage
from rota.settings import Settings

PAUSE = 0.5  # seconds between two looks at a run


def run_job(job: str, op: str, config: Mapping[str, object]) -> str:
    """Launches the job with this config of its op at ROTA_DAGSTER, waits until it ends, and returns the last line that it
    logged. Raises EnvironmentFailed, with the reason of the run."""
    page = DagsterPage(Settings.from_environment().dagster.rstrip("/"))
    with show_wait(f"waiting for Dagster at {page.address}"):
        run = page.launch(job, {"ops": {op: {"config": dict(config)}}})
        while (status := page.read_status(run)) not in ("SUCCESS", "FAILURE", "CANCELED"):
            sleep(PAUSE)
        said, failed = page.read_words(run)
    if status != "SUCCESS":
        raise EnvironmentFailed(f"{failed or status} Look at {page.address}/runs/{run}")
    return said
