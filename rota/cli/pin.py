"""`rota pin`: a partition stays at one worker."""

import click

from rota.cli import view
from rota.cli.group import group_option, open_group
from rota.errors import ConfigError


@click.command("pin")
@click.argument("partition")
@click.argument("worker", required=False)
@click.option("--clear", is_flag=True, help="Remove the pin.")
@group_option
def command(partition: str, worker: str | None, clear: bool, group: str) -> None:
    """Pin PARTITION to WORKER: no other worker gets it. WORKER need not be live yet."""
    from rota.coordination import overrides

    if clear == bool(worker):
        raise ConfigError("Give a worker to pin to, or --clear. For example: rota pin flights:UA w2")

    with open_group(group) as tree:
        overrides.pin(tree, partition, worker)
        live = sorted(tree.newest(tree.live()))
    if worker is None:
        view.print_line(f"{partition} is no longer pinned")
    else:
        absent = "" if worker in live else f". {worker} is not live, so it waits; live: {', '.join(live) or 'nobody'}"
        view.print_line(f"{partition} is pinned to {worker}{absent}")
