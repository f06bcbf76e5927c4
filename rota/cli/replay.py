"""`rota replay`: launches a Dagster run that reads consumed offsets of a partition again and replaces their rows."""

import math
from typing import TYPE_CHECKING

import click

from rota.cli import view
from rota.cli.group import load_catalog, open_group
from rota.cli.page import location_option, run_job
from rota.errors import ConfigError, RotaError
from rota.ids import checked_partition, pipeline_of

if TYPE_CHECKING:
    from rota.run.spans import Choice


@click.command("replay")
@click.argument("partition")
@click.option("--from", "start", type=click.IntRange(min=0), help="The first offset.")
@click.option("--to", "end", type=click.IntRange(min=1), help="The offset after the last.")
@click.option("--files", multiple=True, help="A file, as a path below the landing folder. May be given again.")
@click.option("--since", default="", help="What was consumed then or later, such as 2026-01-31T12:00 (UTC).")
@click.option("--until", default="", help="What was consumed before.")
@click.option("--stamped", is_flag=True, help="--since and --until are the records' own times, such as Kafka's.")
@click.option("--changed", is_flag=True, help="The files that changed after they were consumed.")
@location_option
def command(
    partition: str,
    start: int | None,
    end: int | None,
    files: tuple[str, ...],
    since: str,
    until: str,
    stamped: bool,
    changed: bool,
    location: str | None,
) -> None:
    """Read consumed offsets of PARTITION again and replace their rows.

    Runs the job <pipeline>__replay through Dagster's page at ROTA_DAGSTER.
    """
    from rota.run.spans import Choice, parse_time

    ranged = start is not None or end is not None
    timed = bool(since or until)
    if ranged + bool(files) + timed + changed != 1:
        raise ConfigError(
            "Choose what to replay: --from and --to, or --files, or --since and --until, or --changed. One of them"
        )
    if ranged and end is None:
        raise ConfigError(f"Give --to, too: the offset after the last, such as --from {start} --to {(start or 0) + 1}")
    given = (start or 0, end or 0) if ranged else None
    times = (parse_time(since, 0.0), parse_time(until, math.inf)) if timed else None
    pipeline = pipeline_of(checked_partition(partition))
    _check(pipeline, partition, Choice(given, files, times, changed, stamped))
    replay: dict[str, object] = {"from": given[0], "to": given[1]} if given else {"changed": True} if changed else {}
    replay |= {"since": since, "until": until, "stamped": stamped} if timed else {}
    replay |= {"files": list(files)} if files else {}
    config = {"partitions": [partition], "replay": replay}
    view.print_line(run_job(pipeline, "replay", "batch", config, location))


def _check(name: str, partition: str, choice: "Choice") -> None:
    """Raise ConfigError if the run would refuse the replay: a failed run sends an alert.

    If the source or the table cannot be read here, the run decides.
    """
    from rota.registry import open_ports
    from rota.run.replay import check_replay

    try:
        pipeline = load_catalog().pipelines[name]
        with open_group(pipeline.group) as tree:
            ports = open_ports(pipeline, tree.group, tree.meta().id)
        ports.source.list_keys()
        known = ports.main.read_positions((partition,))[partition].offset is not None
    except (RotaError, OSError, KeyError):
        return
    if known:
        check_replay(ports, partition, choice)
