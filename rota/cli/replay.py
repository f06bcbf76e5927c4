"""`rota replay`: asks Dagster to read consumed offsets of a partition again and to replace their rows."""

import click

from rota.cli import view
from rota.cli.page import location_option, run_job
from rota.ids import checked_partition, pipeline_of
from rota.spans import Choice


@click.command("replay")
@click.argument("partition")
@click.option("--from", "start", type=click.IntRange(min=0), help="The first offset.")
@click.option("--to", "end", type=click.IntRange(min=1), help="The offset after the last.")
@click.option("--files", multiple=True, help="A file, as a path below the landing folder. May be given again.")
@click.option("--changed", is_flag=True, help="The files that changed after they were consumed.")
@location_option
def command(
    partition: str, start: int | None, end: int | None, files: tuple[str, ...], changed: bool, location: str | None
) -> None:
    """Read consumed offsets of PARTITION again and replace their rows.

    Asks Dagster's page at ROTA_DAGSTER for the job <pipeline>__replay.
    """
    given = None if start is None and end is None else (start or 0, end or 0)
    Choice(given, files, None, changed)
    pipeline = pipeline_of(checked_partition(partition))
    said: dict[str, object] = {"from": given[0], "to": given[1]} if given else {"changed": True} if changed else {}
    replay = {**said, **({"files": list(files)} if files else {})}
    config = {"partitions": [partition], "replay": replay}
    view.print_line(run_job(pipeline, "replay", "batch", config, location))
