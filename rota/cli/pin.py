"""`rota pin`: lets only one worker own a partition."""

import click

from rota.cli import view
from rota.cli.group import group_option, open_group
from rota.errors import ConfigError
from rota.settings import check_known


@click.command("pin")
@click.argument("partition")
@click.argument("worker", required=False)
@click.option("--clear", is_flag=True, help="Remove the pin.")
@click.option(
    "--wait", is_flag=True, help="Pin to a worker that may not have it yet; the partition has no owner until it may."
)
@group_option
def command(partition: str, worker: str | None, clear: bool, wait: bool, group: str) -> None:
    """Pin PARTITION to WORKER: no other worker gets it."""
    from rota.coordination import overrides
    from rota.coordination.snapshot import explain_pin

    if clear == bool(worker):
        raise ConfigError("Give a worker to pin to, or --clear. For example: rota pin flights:UA w2")

    with open_group(group) as tree:
        check_known("partition", partition, tree.ids())
        why = explain_pin(tree, partition, worker) if worker is not None else ""
        if why and not wait:
            live = ", ".join(sorted(tree.newest(tree.live()))) or "none"
            raise ConfigError(
                f"{worker} {why}, so no worker would have {partition}. Live: {live}. Choose one that may have it, or give "
                f"--wait to leave {partition} without an owner until {worker} may have it"
            )
        overrides.pin(tree, partition, worker)
    if worker is None:
        view.print_line(f"{partition} is no longer pinned")
    else:
        view.print_line(f"{partition} is pinned to {worker}{f', but waits: {worker} {why}' if why else ''}")
