"""`rota pin`: a partition stays at one worker."""

import click

from rota.cli import view
from rota.cli.group import group_option, open_group
from rota.errors import ConfigError


@click.command("pin")
@click.argument("partition")
@click.argument("worker", required=False)
@click.option("--clear", is_flag=True, help="Remove the pin.")
@click.option(
    "--wait", is_flag=True, help="Pin to a worker that is not live yet: nobody has the partition until it is."
)
@group_option
def command(partition: str, worker: str | None, clear: bool, wait: bool, group: str) -> None:
    """Pin PARTITION to WORKER: no other worker gets it."""
    from rota.coordination import overrides

    if clear == bool(worker):
        raise ConfigError("Give a worker to pin to, or --clear. For example: rota pin flights:UA w2")

    with open_group(group) as tree:
        live = sorted(tree.newest(tree.live()))
        absent = worker is not None and worker not in live
        if absent and not wait:
            raise ConfigError(
                f"{worker} is not live, so nobody would have {partition}. Live: {', '.join(live) or 'nobody'}. "
                f"Choose one of them, or give --wait to leave {partition} alone until {worker} is there"
            )
        overrides.pin(tree, partition, worker)
    if worker is None:
        view.print_line(f"{partition} is no longer pinned")
    else:
        view.print_line(f"{partition} is pinned to {worker}{': it waits until that is live' if absent else ''}")
