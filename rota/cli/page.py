"""What commands request from Dagster's page: to run a job, and its result.

Law: a command runs only an unambiguous job. If a second deployment on the instance has the job, or may have it, none
runs until `--location`, or ROTA_LOCATION, names one.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import sleep
from typing import Any, TypeVar

import click

from rota.cli.view import show_wait
from rota.errors import ConfigError, EnvironmentFailed
from rota.ids import dagster_name, quote
from rota.local.page import DagsterPage, FoundJobs, PlacedJob
from rota.settings import Settings

POLL_INTERVAL = 0.5  # seconds between two polls of a run
F = TypeVar("F", bound=Callable[..., Any])


def location_option(command: F) -> F:
    """Add `--location`."""
    text = "The code location, if several have the job; LOCATION/PREFIX if one has it twice.  [default: ROTA_LOCATION]"
    return click.option("--location", help=text)(command)


def run_job(of: str, kind: str, op: str, config: Mapping[str, object], location: str | None) -> str:
    """Launch `<of>__<kind>` with this config of its step `<of>__<op>` at ROTA_DAGSTER, and wait until it ends.

    Returns:
        The last line that the run logged.

    Raises:
        ConfigError: see `choose_job`.
        EnvironmentFailed: the run failed; with its reason.
    """
    settings = Settings.from_environment()
    page = DagsterPage(settings.dagster.rstrip("/"), settings.location)
    with show_wait(f"waiting for Dagster at {page.address}"):
        job = choose_job(page.find_jobs(of, kind), location or page.location or None)
        run = page.launch(job, {"ops": {dagster_name(*job.prefix, job.of, op): {"config": dict(config)}}})
        while (status := page.read_status(run)) not in ("SUCCESS", "FAILURE", "CANCELED"):
            sleep(POLL_INTERVAL)
        outcome = page.read_outcome(run)
    if status != "SUCCESS":
        raise EnvironmentFailed(f"{(outcome.why or status).rstrip('.')}. Look at {page.address}/runs/{run}")
    return outcome.last_line


def choose_job(found: FoundJobs, location: str | None) -> PlacedJob:
    """Return the job that `--location` names. Raises ConfigError if there is none, or if a second one exists or may
    exist.
    """
    job, address = dagster_name(found.of, found.kind), found.address
    meant = [one for one in found.jobs if "/".join((one.location, *one.prefix)) == location]
    meant = meant or [one for one in found.jobs if location in (None, one.location)]
    unsure = "" if location else ", ".join(found.unloaded)
    if len(meant) == 1 and not unsure:
        return meant[0]
    places = _name_places(meant or found.jobs)
    choose = f"Give {' or '.join(f'--location {quote(place)}' for place in places)}"
    look = "Look at the code locations on the page, or set ROTA_DAGSTER"
    if len(meant) > 1:
        raise ConfigError(f"{len(meant)} deployments at {address} have the job {job}: {', '.join(places)}. {choose}")
    if meant:
        raise ConfigError(
            f"{places[0]} at {address} has the job {job}, and {unsure} is not loaded and may have it, too. {choose}"
        )
    if location in found.unloaded:
        raise ConfigError(f"The code location {location} at {address} is not loaded. {look}")
    if location:
        raise ConfigError(f"No code location {location!r} at {address} has the job {job}. {choose if places else look}")
    raise ConfigError(f"No code location at {address} has the job {job}{unsure and f'; not loaded: {unsure}'}. {look}")


def _name_places(jobs: Sequence[PlacedJob]) -> list[str]:
    """Return the `--location` of each: its code location, with the key prefix if that has several deployments."""
    many = Counter(one.location for one in jobs)
    return sorted("/".join((one.location, *one.prefix)) if many[one.location] > 1 else one.location for one in jobs)
