"""`rota purge`: removes old consuming runs from Dagster's storage."""

import re
from datetime import timedelta

import click

from rota.cli import view
from rota.cli.page import location_option, run_job
from rota.errors import ConfigError

UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def parse_age(text: str) -> timedelta:
    """Return `7d`, `12h` or `2w` as a duration. Raises ConfigError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text)
    if found is None:
        raise ConfigError(f"--older-than {text!r} is not an age. Give a number and h, d or w, for example 7d")
    return float(found[1]) * UNITS[found[2]]


@click.command("purge")
@click.option("--older-than", default="7d", show_default=True, help="Remove runs that ended longer ago: 12h, 7d, 2w.")
@click.option("--dry-run", is_flag=True, help="Remove nothing, only count the runs.")
@location_option
def command(older_than: str, dry_run: bool, location: str | None) -> None:
    """Remove old consuming runs from Dagster's storage.

    Runs the job rota__purge through Dagster's page at ROTA_DAGSTER. The newest materialization of each partition stays.
    """
    days = parse_age(older_than) / timedelta(days=1)
    view.print_line(run_job("rota", "purge", "remove", {"older_than_days": days, "dry_run": dry_run}, location))
